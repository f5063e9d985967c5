"""Cases of the ops in ``ops/nn/normalization.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

CASES: Cases = {
    "group_norm": [
        case(T(2, 4, 3), 2),
        case(T(2, 4, 3, 2), 2, T(4), T(4)),
        case(T(2, 4), 1, T(4)),
        case(T(2, 4, 3), 4, T(4), None, 0.1),
        case(T(0, 4, 3), 2),
        case(T(2, 4), 3),
        case(T(4), 2),
        case(T(1, 4), 4),
        case(T(2, 4, 3), 2, T(3)),
    ],
    "layer_norm": [
        case(T(2, 3), (3,)),
        case(T(2, 3, 4), (3, 4), T(3, 4), T(3, 4)),
        case(T(2, 3, 4), (4,), T(4)),
        case(T(4), (4,), T(4), T(4), 0.1),
        case(T(2, 3), (3,), None, T(3, constant=True)),
        case(T(0, 3), (3,), T(3), T(3)),
        case(T(2, 0), (0,)),
        case(T(2, 2, values=[[1.0, 1.0], [2.0, 2.0]]), (2,)),
        case(T(2, 3), (2,)),
        case(T(2, 3), ()),
        case(T(2, 3), (3,), T(2)),
    ],
    "rms_norm": [
        case(T(2, 3), (3,)),
        case(T(2, 3, 4), (3, 4), T(3, 4)),
        case(T(2, 3, 4), (4,), T(4), 0.1),
        case(T(4), (4,), T(4)),
        case(T(0, 3), (3,), T(3)),
        case(T(2, 0), (0,)),
        case(T(2, 3), (2,)),
        case(T(2, 3), ()),
        case(T(2, 3), (3,), T(2)),
    ],
    "normalize": [
        case(T(2, 3)),
        case(T(2, 3, 4), 1.0, -1),
        case(T(2, 3), dim=0, eps=10.0),
        case(T(2, 3), 2.0, (0, 1)),
        case(T(0, 3)),
        case(T(2, 3), dim=2),
    ],
}
