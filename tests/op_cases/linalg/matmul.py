"""Cases of the ops in ``ops/linalg/matmul.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case

BATCHES = [
    case(T(5, 2, 4), T(5, 2, 3), T(5, 3, 4), alpha=1.5),
    case(T(4), T(5, 2, 3), T(5, 3, 4), beta=0.5, alpha=-2),
    case(T(2, 4), T(0, 2, 3), T(0, 3, 4)),
    case(T(2, 4), T(5, 2, 3), T(5, 3, 4), beta=2, alpha=0.5),
    case(T(4), T(5, 2, 3), T(4, 3, 4)),
]


CASES: Cases = {
    "addmm": [
        case(T(2, 4), T(2, 3), T(3, 4)),
        case(T(4), T(2, 3), T(3, 4), beta=0.5, alpha=-2),
        case(T(), T(2, 3), T(3, 4), alpha=1.5),
        case(T(2, 2, values=[[math.nan] * 2] * 2), T(2, 3), T(3, 2), beta=0),
        case(T(2, 4), T(2, 0), T(0, 4), beta=2),
        case(T(2, 4), T(2, 3), T(4, 4)),
        case(T(3), T(2, 3), T(3, 4)),
        case(T(1, 2, 4), T(2, 3), T(3, 4)),
    ],
    "addmv": [
        case(T(2), T(2, 3), T(3)),
        case(T(), T(2, 3), T(3), beta=0.5, alpha=-2),
        case(T(1), T(2, 3), T(3)),
        case(T(2), T(2, 0), T(0), beta=3),
        case(T(2), T(2, 3), T(4)),
        case(T(4), T(2, 3), T(3)),
    ],
    "baddbmm": BATCHES,
    "addbmm": BATCHES[2:],
    "matmul": [
        case(T(2, 3), T(3, 4)),
        case(T(3), T(3)),
        case(T(3), T(3, 2)),
        case(T(2, 3), T(3)),
        case(T(5, 2, 3), T(3, 4)),
        case(T(2, 3), T(5, 3, 4)),
        case(T(2, 1, 2, 3), T(4, 3, 2)),
        case(T(4, 2, 3), T(3)),
        case(T(3), T(4, 3, 2)),
        case(T(0, 3), T(3, 2)),
        case(T(2, 0), T(0, 3)),
    ],
    "mm": [case(T(2, 3), T(3, 4)), case(T(0, 3), T(3, 4))],
    "bmm": [case(T(5, 2, 3), T(5, 3, 4)), case(T(0, 2, 3), T(0, 3, 4))],
    "outer": [case(T(3), T(4)), case(T(0), T(4))],
    "dot": [case(T(3), T(3)), case(T(0), T(0))],
    "mv": [case(T(2, 3), T(3))],
    "linear": [
        case(T(2, 3), T(4, 3), T(4)),
        case(T(2, 3), T(4, 3)),
        case(T(5, 2, 3), T(4, 3), T(4)),
        case(T(3), T(4, 3), T(4)),
        case(T(0, 3), T(4, 3), T(4)),
    ],
}
