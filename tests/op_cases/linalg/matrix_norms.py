"""Cases of the ops in ``ops/linalg/matrix_norms.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case
from .decompositions import POSITIVE, SQUARE, TALL, WIDE
from .solving import INVERTED, POWERS, SINGULAR

PSEUDO = [
    case(T(values=SQUARE)),
    case(T(values=TALL)),
    case(T(values=WIDE)),
    case(T(values=[TALL, [[1.0, -1.0], [2.0, 0.5], [-1.0, 3.0]]])),
    case(T(0, 2)),
    case(T(2, 3, 0)),
    case(T(3)),
]

NORMED = [
    case(T(2, 3)),
    case(T(2, 3, 4), "fro", (0, -1), True),
    case(T(2, 2, values=[[0.0, 0.0], [0.0, 0.0]], constant=True)),
    case(T(0, 3)),
    case(T(values=[TALL, [[1.0, -1.0], [2.0, 0.5], [-1.0, 3.0]]]), ord="nuc"),
    case(T(values=[[3.0, 1.0], [0.5, 2.0]]), "nuc", (1, 0), True),
    case(T(2, 3), dtype="float64"),
    case(T(2, 3), "max"),
    case(T(3)),
    case(T(2, 3), dim=(0, 0)),
    case(T(2, 3), dim=(0, 1, 2)),
    case(T(2, 3), dim=(0, 5)),
]


CASES: Cases = {
    "inverse": INVERTED,
    "pinverse": PSEUDO,
    "matrix_power": POWERS,
    "det": [*INVERTED, *SINGULAR],
    "slogdet": [*INVERTED, *SINGULAR],
    "logdet": [*INVERTED, *SINGULAR, case(T(values=[[2.0, 0.0], [0.0, -1.0]], constant=True))],
    "cholesky": [
        case(T(values=POSITIVE)),
        case(T(values=POSITIVE), True),
        case(T(0, 0, dtype="float64")),
        case(T(2, 3)),
    ],
    "qr": [case(T(values=SQUARE)), case(T(values=TALL)), case(T(values=WIDE), False), case(T(3))],
    "svd": [
        case(T(values=SQUARE)),
        case(T(values=TALL)),
        case(T(values=TALL, constant=True), some=False),
        case(T(values=TALL), compute_uv=False),
        case(T(3)),
    ],
    "linalg_pinv": [
        *PSEUDO,
        case(T(values=[[1.0, 2.0], [2.0, 4.0]])),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), atol=1.0),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), rtol=0.1),
        case(T(values=SQUARE, constant=True), hermitian=True),
        case(T(values=[[1.0, 9.0], [2.0, 4.0]], constant=True), hermitian=True),
        case(T(2, 3), hermitian=True),
    ],
    "linalg_pinv.rcond": [
        case(T(values=TALL), 0.1),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), 0.2, True),
        case(T(values=[[3.0, 0.0], [0.0, 0.5]]), rcond=0.3),
    ],
    "linalg_matrix_norm": NORMED,
    "linalg_matrix_norm.ord": [
        case(T(values=WIDE), 2),
        case(T(values=[SQUARE, POSITIVE]), -2, keepdim=True),
        *[case(T(2, 3, 4), ord, (0, -1)) for ord in (1, -1, math.inf, -math.inf)],
        case(T(values=[[1.0, 1.0], [2.0, 0.0]]), math.inf),
        case(T(0, 3), -math.inf),
        case(T(0, 3), math.inf),
        case(T(0, 3), 2),
        case(T(0, 3), -2),
        case(T(2, 3), 3),
    ],
    "linalg_matrix_rank": [
        case(T(values=TALL)),
        case(T(values=[[1.0, 2.0], [2.0, 4.0]])),
        case(T(values=[SQUARE, POSITIVE])),
        case(T(values=SQUARE), atol=1.2),
        case(T(values=SQUARE), rtol=0.5, hermitian=True),
        case(T(0, 3, dtype="float64")),
        case(T(3)),
    ],
    "linalg_matrix_rank.tol_tensor": [case(T(values=[SQUARE, POSITIVE]), T(2, values=[1.2, 0.1], constant=True))],
    "linalg_matrix_rank.tensor": [
        case(T(values=[SQUARE, POSITIVE]), atol=T(2, values=[1.2, 0.0], constant=True)),
        case(T(values=[SQUARE, POSITIVE]), rtol=T(2, values=[0.5, 0.1], constant=True)),
        case(T(values=SQUARE), atol=T(values=0.0, constant=True), rtol=T(values=0.5, constant=True)),
    ],
    "linalg_matrix_rank.tol": [case(T(values=SQUARE), 1.2), case(T(values=SQUARE), tol=1.2, hermitian=True)],
    "linalg_cond": [
        case(T(values=SQUARE)),
        case(T(values=TALL), 2),
        case(T(values=[SQUARE, POSITIVE]), -2),
        # Constants, since torch overwrites what the derivative of these needs.
        *[case(T(values=SQUARE, constant=True), p) for p in ("fro", "nuc", 1, -1, math.inf, -math.inf)],
        case(T(values=[[1.0, 2.0], [2.0, 4.0]], constant=True), 1),
        case(T(values=TALL), "fro"),
        case(T(values=SQUARE), "x"),
        case(T(values=SQUARE), 5),
        case(T(3)),
    ],
}
