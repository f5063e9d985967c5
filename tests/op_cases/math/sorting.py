"""Cases of the ops in ``ops/math/sorting.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case, reduction

WHOLE = [
    case(T(2, 3)),
    case(T()),
    case(T(4, values=[1.0, 2.0, 2.0, -3.0])),
    case(T(4, values=[1.0, -3.0, -3.0, 0.0])),
]

ALONG = [
    case(T(2, 3), 1),
    case(T(2, 3, 4), -2, True),
    case(T(3), dim=0),
    case(T(), 0),
    case(T(0, 3), 1),
    case(T(2, 3, values=[[1.0, 2.0, 2.0], [5.0, 5.0, 0.0]]), 1),
]

EXTREMES = [*reduction()[:-1], case(T(2, 3, values=[[1.0, 2.0, 2.0], [5.0, 5.0, 0.0]]), dim=1)]

ARGUMENTS = [case(T(2, 3)), case(T(2, 3), 1), case(T(2, 3), dim=0, keepdim=True), case(T()), case(T(0, 3), 1)]

TIED = T(2, 5, values=[[1.0, 2.0, 1.0, 2.0, 0.0], [3.0, 3.0, 3.0, 1.0, 4.0]])

NANS = T(5, values=[1.0, math.nan, 2.0, math.nan, -1.0])

SORTS = [
    case(T(2, 3)),
    case(T(2, 3, 4), 1),
    case(T(2, 3), -2, True),
    case(T(2, 3), dim=0, descending=True),
    case(TIED),
    case(TIED, descending=True),
    case(NANS),
    case(NANS, 0, True),
    case(T(4, dtype="bool"), descending=True),
    case(T()),
    case(T(0, 3), 0),
    case(T(3), 1),
]

DISTINCT = T(2, 5, values=[[3.0, -1.0, 4.0, 0.0, 5.0], [-2.0, 6.0, 1.0, 9.0, 7.0]])

STABLE = [case(TIED, stable=True), case(TIED, stable=True, dim=0, descending=True), case(T(), stable=False)]

ROWS = [
    case(T(2, 3), 1),
    case(T(2, 3, 4), -2, True),
    case(TIED, 1),
    case(TIED, dim=0, keepdim=True),
    case(T(), 0),
    case(T(0, 3), 0),
    case(T(0, 3), 1),
    case(T(3), 1),
    case(T(3, dtype="bool"), 0),
]


CASES: Cases = {
    "aminmax": [
        case(T(2, 3)),
        case(T(2, 3), dim=1),
        case(T(3, values=[1.0, 2.0, 2.0]), dim=0, keepdim=True),
        case(T()),
    ],
    "dist": [case(T(2, 3), T(2, 3)), case(T(3), T(2, 3), 1), case(T(2, 2), T(2, 1), 3.5), case(T(2), T(3))],
    "max": WHOLE,
    "min": WHOLE,
    "max.dim": ALONG,
    "min.dim": ALONG,
    "max.other": [case(T(2, 3), T(3))],
    "min.other": [case(T(2, 3), T(3))],
    "amax": EXTREMES,
    "amin": EXTREMES,
    "argmax": ARGUMENTS,
    "argmin": ARGUMENTS,
    "sort": SORTS,
    "sort.stable": STABLE,
    "argsort": SORTS,
    "argsort.stable": STABLE,
    "topk": [
        case(DISTINCT, 2),
        case(DISTINCT, 1, 0),
        case(DISTINCT, 2, -1, False),
        case(DISTINCT, 5, largest=False, sorted=True),
        case(T(4, values=[1.0, 3.0, 3.0, 2.0]), 2),
        case(NANS, 3),
        case(T(2, 3, dtype="bool"), 1),
        case(T(3), 0),
        case(T(), 1),
        case(T(), 2),
        case(T(0, 3), 1),
        case(T(3), 4),
        case(T(3), -1),
    ],
    "kthvalue": [
        case(DISTINCT, 2),
        case(DISTINCT, 2, 0, True),
        case(NANS, 3),
        case(T(), 1),
        case(T(), 2),
        case(T(0, 3), 1),
        case(T(0, 3), 1, 0),
        case(T(3), 4),
        case(T(3), 0),
        case(T(3, dtype="bool"), 1),
    ],
    "median": [
        case(T(2, 3)),
        case(T(2, 2)),
        case(T()),
        case(T(0, 3, constant=True)),
        case(T(4, values=[1.0, 2.0, 2.0, 2.0])),
        case(NANS),
        case(T(3, dtype="bool")),
    ],
    "median.dim": [*ROWS, case(NANS, 0)],
    "mode": [*ROWS, case(TIED), case(T())],
}
