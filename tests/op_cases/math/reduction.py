"""Cases of the ops in ``ops/math/reduction.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case, reduction

TRUTHS = [
    case(T(2, 3, dtype="bool")),
    case(T(2, 3), dim=1),
    case(T(2, 3), 0, True),
    case(T(0, 3), dim=0),
    case(T()),
]

VARIANCES = [
    *[case(*c.args, **c.kwargs) for c in reduction((3, 2, 4)) if c.args[0].shape],
    case(T(3, 4), dim=1, correction=0),
    case(T(3, 4), dim=0, unbiased=False),
]

MOMENTS = [
    case(T(2, 3)),
    case(T(2, 3, 4), 1),
    case(T(2, 3, 4), (0, 2), True, True),
    case(T(2, 3), 1, False),
    case(T(2, 3), dim=0, correction=0, keepdim=True),
    case(T(2, 3), 2),
]

UNBIASED = [case(T(2, 3), False), case(T(2, 3), True), case(T(4), unbiased=False), case(T(), False), case(T(0), True)]


CASES: Cases = {
    "sum": [
        *reduction(),
        case(T(2, 3, dtype="int64")),
        case(T(2, 3, dtype="bool"), dim=1),
        case(T(2, 3), dtype="float64"),
        case(T(2, 3, 4), dim=()),
    ],
    "mean": [*reduction(), case(T(2, 3, dtype="int64"), dtype="float32")],
    "prod": [
        case(T(2, 3)),
        case(T(2, 3, dtype="int64")),
        case(T()),
        case(T(0)),
        case(T(3, values=[1.0, 0.0, 2.0])),
        case(T(7)),
        case(T(5, values=[0.0, 1.0, 2.0, 0.0, 3.0])),
    ],
    "cumsum": [case(T(2, 3), 0), case(T(2, 3), -1), case(T(3, dtype="int64"), 0), case(T(), 0), case(T(0, 3), 0)],
    "all": TRUTHS,
    "any": TRUTHS,
    "logsumexp": [
        case(T(2, 3), 1),
        case(T(2, 3, 4), (0, 2), True),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(2, 2, values=[[-math.inf, -math.inf], [-math.inf, 1.0]]), 1),
        case(T(3, values=[1000.0, 1000.0, -1000.0]), 0),
    ],
    "var": VARIANCES,
    "std": VARIANCES,
    "var_mean": MOMENTS,
    "std_mean": MOMENTS,
    "var.unbiased": UNBIASED,
    "std.unbiased": UNBIASED,
    "var_mean.unbiased": UNBIASED,
    "std_mean.unbiased": UNBIASED,
}
