"""Cases of the ops in ``ops/linalg/solving.py``."""

from __future__ import annotations

from typing import Any

from ..stand_ins import Cases, T, case
from .decompositions import POSITIVE, SQUARE, TALL, WIDE

INVERTIBLE: Any = [[3.0, 1.0, 0.5], [-1.0, 2.5, 0.0], [0.5, 1.0, -2.0]]

OTHER: Any = [[-2.0, 0.5, 1.0], [0.0, 3.0, -1.0], [1.5, 1.0, 4.0]]

ONES: Any = [[1.0, 1.0], [1.0, 1.0]]

INVERTED = [
    case(T(values=INVERTIBLE)),
    case(T(values=[INVERTIBLE, OTHER])),
    case(T(0, 0)),
    case(T(0, 2, 2)),
    case(T(2, 3)),
    case(T(3)),
]

SINGULAR = [case(T(values=ONES, constant=True)), case(T(values=[[[2.0, 1.0], [1.0, 2.0]], ONES], constant=True))]

POWERS = [
    case(T(3, 3), 0),
    case(T(2, 3, 3), 1),
    case(T(3, 3), 2),
    case(T(2, 3, 3), 5),
    case(T(values=[[3.0, 1.0], [0.5, 2.0]]), -1),
    case(T(values=[[3.0, 1.0], [0.5, 2.0]]), -3),
    case(T(0, 0), 2),
    case(T(2, 3), 2),
    case(T(3), 2),
]


CASES: Cases = {
    "linalg_solve": [
        case(T(values=INVERTIBLE), T(3)),
        case(T(values=INVERTIBLE), T(3, 2)),
        case(T(values=[INVERTIBLE, OTHER]), T(2, 3)),
        case(T(values=[INVERTIBLE, OTHER]), T(3)),
        case(T(values=[INVERTIBLE, OTHER]), T(3, 2)),
        case(T(values=INVERTIBLE), T(2, 3, 1)),
        case(T(values=INVERTIBLE), T(2, 3), left=False),
        case(T(values=[INVERTIBLE, OTHER]), T(2, 3), left=False),
        case(T(0, 0), T(0, 2)),
        case(T(2, 3), T(2)),
        case(T(2, 2), T(3)),
        case(T(3, 2, 2), T(4, 2, 4)),
        case(T(2, 2), T()),
    ],
    "linalg_solve_triangular": [
        case(T(values=INVERTIBLE), T(3, 2), upper=True),
        case(T(values=INVERTIBLE), T(3, 2), upper=False),
        case(T(values=[INVERTIBLE, OTHER]), T(2, 3), upper=True, left=False),
        case(T(values=[INVERTIBLE, OTHER]), T(3, 2), upper=False, unitriangular=True),
        case(T(values=INVERTIBLE), T(2, 3, 1), upper=True, unitriangular=True),
        case(T(0, 0), T(0, 2), upper=True),
        case(T(2, 2, values=[[0.0, 1.0], [0.0, 0.0]], constant=True), T(2, 2, constant=True), upper=True),
        case(T(2, 2), T(3, 3), upper=True, left=False),
        case(T(2, 2), T(2), upper=True),
        case(T(2, 3), T(3, 3), upper=True),
    ],
    "linalg_tensorinv": [case(T(4, 2, 2)), case(T(2, 3, 6)), case(T(4, 2, 2), 1), case(T(2, 3)), case(T(4, 2, 2), 0)],
    "linalg_tensorsolve": [
        case(T(2, 3, 6), T(2, 3)),
        case(T(6, 2, 3), T(6)),
        case(T(2, 6, 3), T(2, 3), dims=(1,)),
        case(T(2, 3), T(2)),
    ],
    "linalg_inv": INVERTED,
    "linalg_matrix_power": POWERS,
    "linalg_det": [*INVERTED, *SINGULAR, case(T(values=[[2.0]]))],
    "linalg_slogdet": [*INVERTED, *SINGULAR],
    "linalg_lstsq": [
        case(T(values=SQUARE), T(3, 2)),
        case(T(values=TALL), T(3, 2)),
        case(T(values=WIDE), T(2, 1)),
        case(T(values=TALL), T(3)),
        case(T(values=[SQUARE, POSITIVE]), T(2, 3)),
        case(T(values=[SQUARE, POSITIVE]), T(2, 3, 2), driver="gelss"),
        case(T(values=TALL), T(3, 2), driver="gels"),
        case(T(values=TALL), T(3, 2), driver="gelsd"),
        case(T(values=[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], constant=True), T(3, 1, constant=True), driver="gelsd"),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]], constant=True), T(2, 1, constant=True), 0.3, driver="gelsd"),
        case(T(values=TALL), T(2, 1)),
        case(T(values=TALL), T(3, 1), driver="other"),
        case(T(values=TALL), T(3, 1, dtype="float16", constant=True)),
        case(T(3), T(3)),
    ],
}
