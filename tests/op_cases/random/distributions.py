"""Cases of the ops in ``ops/random/distributions.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case

INDICES = [
    case(3, 3),
    case(2, 4, 1),
    case(4, 2, offset=-1),
    case(2, 3, -5),
    case(2, 3, 5),
    case(0, 3),
    case(2, 2, dtype="float32"),
    case(-1, 2),
]


CASES: Cases = {
    "tril_indices": INDICES,
    "triu_indices": INDICES,
    "combination_indices": [],
    "one_hot": [
        case(I(2, 3, high=4), 4),
        case(I(3, high=2), num_classes=5),
        case(T(3, values=[0, 2, 1], dtype="int64")),
        case(I(high=3), 3),
        case(I(0, high=3), 3),
        case(I(0, high=3)),
        case(I(2, high=3), 0),
        case(T(2, dtype="bool"), 2),
    ],
    "normal.size": [],
    "normal": [],
    "multinomial": [],
}
