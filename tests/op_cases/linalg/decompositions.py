"""Cases of the ops in ``ops/linalg/decompositions.py``."""

from __future__ import annotations

from typing import Any

from ..stand_ins import Cases, T, case

TALL: Any = [[3.0, 1.0], [-1.0, 2.5], [0.5, 1.0]]

WIDE: Any = [[3.0, 1.0, -1.0], [0.5, 2.0, 1.5]]

WIDER: Any = [[-1.5, -2.0, -0.5, 1.5], [-3.0, 1.5, -1.0, -1.0], [3.0, -2.0, 1.5, -0.5]]

SQUARE: Any = [[3.0, 1.0, 0.5], [1.0, -1.5, 0.2], [0.5, 0.2, 1.0]]

POSITIVE: Any = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]

SYMMETRIC = [
    case(T(values=SQUARE)),
    case(T(values=POSITIVE), "U"),
    case(T(values=[SQUARE, POSITIVE])),
    case(T(values=[[1.0, 9.0], [0.5, 3.0]])),
    case(T(0, 0, dtype="float64")),
    case(T(0, 2, 2, dtype="float64")),
    case(T(2, 3)),
    case(T(3)),
    case(T(2, 2), "X"),
]

LOWER: Any = [[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-1.0, 0.5, 1.0]]

UPPER: Any = [[2.0, 0.5, -1.0], [0.0, 1.5, 0.5], [0.0, 0.0, 1.0]]


CASES: Cases = {
    "linalg_cholesky": [
        case(T(values=POSITIVE)),
        case(T(values=POSITIVE), upper=True),
        case(T(values=[POSITIVE, [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 5.0]]])),
        case(T(values=[[2.0, 9.0], [1.0, 3.0]])),
        case(T(0, 0)),
        case(T(2, 3)),
        case(T(3)),
    ],
    "linalg_qr": [
        case(T(values=SQUARE)),
        case(T(values=TALL)),
        case(T(values=WIDE)),
        case(T(values=[TALL, [[1.0, -1.0], [2.0, 0.5], [-1.0, 3.0]]])),
        case(T(values=WIDE), "complete"),
        case(T(values=TALL, constant=True), "complete"),
        case(T(values=TALL, constant=True), mode="r"),
        case(T(0, 2)),
        case(T(3, 0)),
        case(T(2, 3), "full"),
        case(T(3)),
    ],
    "linalg_eigh": SYMMETRIC,
    "linalg_eigvalsh": SYMMETRIC,
    "linalg_svd": [
        case(T(values=SQUARE)),
        case(T(values=TALL), False),
        case(T(values=WIDER), full_matrices=False),
        case(T(values=[SQUARE, POSITIVE])),
        case(T(0, 2)),
        case(T(0, 2, 2), False),
        case(T(2, 2), driver="gesvd"),
        case(T(3)),
    ],
    "linalg_svdvals": [case(T(values=TALL)), case(T(values=[SQUARE, POSITIVE])), case(T(0, 2)), case(T(3))],
    "cholesky_solve": [
        case(T(3, 2), T(values=LOWER)),
        case(T(3, 2), T(values=UPPER), True),
        case(T(2, 3, 1), T(values=LOWER)),
    ],
    "cholesky_inverse": [
        case(T(values=LOWER)),
        case(T(values=UPPER), True),
        case(T(values=[LOWER, LOWER])),
    ],
    "chain_matmul": [case(T(2, 3), T(3, 2)), case(T(2, 3), T(3, 2), T(2, 4)), case(T(2, 2))],
    "frobenius_norm": [case(T(2, 3), 1), case(T(2, 3), (0, 1)), case(T(2, 3), 0, True)],
    "nuclear_norm": [case(T(values=SQUARE)), case(T(values=POSITIVE), True)],
    "nuclear_norm.dim": [case(T(values=[SQUARE, POSITIVE]), (1, 2))],
    "norm_except_dim": [case(T(2, 3)), case(T(2, 3), 2, 1), case(T(2, 3, 2), 1, 0), case(T(2, 3), 2, -1)],
    "triangular_solve": [
        case(T(3, 2), T(values=UPPER)),
        case(T(3, 2), T(values=LOWER), False),
        case(T(3, 2), T(values=UPPER), True, True),
        case(T(3, 2), T(values=UPPER), True, False, True),
    ],
}
