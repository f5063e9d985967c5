"""Cases of the ops in ``ops/shape/views.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

RESHAPES = [
    case(T(2, 3), (3, 2)),
    case(T(2, 3), (-1,)),
    case(T(2, 3, 4), (2, -1)),
    case(T(), (1, 1)),
    case(T(0, 3), (3, 0)),
    case(T(1), ()),
]

EXPANSIONS = [case(T(3, 1), (3, 4)), case(T(3), (2, 3)), case(T(), (2, 2)), case(T(1, 3), (0, 3))]

TRIANGLES = [case(T(3, 3)), case(T(2, 3), 1), case(T(2, 3, 4), diagonal=-1), case(T(0, 3))]


CASES: Cases = {
    "diagonal": [
        case(T(3, 3)),
        case(T(2, 4), 1),
        case(T(2, 3, 4), -1, 0, 2),
        case(T(2, 3, 4), offset=1, dim1=-1, dim2=0),
        case(T(2, 3), 5),
        case(T(2, 3), -7),
        case(T(0, 3)),
        case(T(3)),
        case(T(2, 3), 0, 1, -1),
    ],
    "linalg_diagonal": [case(T(2, 3, 4)), case(T(2, 3, 4), offset=1, dim1=0, dim2=-1), case(T(3))],
    "diagonal_scatter": [
        case(T(3, 3), T(3)),
        case(T(2, 4), T(2), 1),
        case(T(2, 3, 4), T(3, 1), -1, 0, -1),
        case(T(2, 3), T(0), 5),
        case(T(2, 3), T(3)),
    ],
    "diag_embed": [
        case(T(3)),
        case(T(2, 3), 1),
        case(T(2, 3), -2, 0, -1),
        case(T(0)),
        case(T()),
        case(T(2, 3), 0, 1, 1),
    ],
    "diag": [case(T(3)), case(T(2), -1), case(T(3, 2)), case(T(2, 3), 1), case(T(0)), case(T()), case(T(2, 2, 2))],
    "reshape": RESHAPES,
    "view": RESHAPES,
    "flatten": [
        case(T(2, 3, 4)),
        case(T(2, 3, 4), 1),
        case(T(2, 3, 4), start_dim=0, end_dim=1),
        case(T()),
        case(T(0, 3)),
    ],
    "squeeze": [case(T(2, 1, 3, 1)), case(T(2, 1, 3), 1), case(T(2, 1, 3), 0), case(T(), 0), case(T(1, 0))],
    "unsqueeze": [case(T(2, 3), 1), case(T(2, 3), -1), case(T(), 0), case(T(0), 0)],
    "permute": [case(T(2, 3, 4), (2, 0, 1)), case(T(2, 3), (-1, 0)), case(T(), ()), case(T(0, 3), (1, 0))],
    "transpose": [case(T(2, 3, 4), 0, 2), case(T(2, 3), -1, 0), case(T(), 0, 0), case(T(0, 3), 0, 1)],
    "t": [case(T(2, 3)), case(T(3)), case(T())],
    "expand": [*EXPANSIONS, case(T(3, 1), (-1, 4))],
    "broadcast_to": EXPANSIONS,
    "flip": [case(T(2, 3), (0,)), case(T(2, 3), (0, -1)), case(T(0, 3), (0,))],
    "tril": [*TRIANGLES, case(T(3))],
    "triu": [*TRIANGLES, case(T(3))],
    "as_strided": [
        case(T(3, 3), (2, 2), (1, 2)),
        case(T(3, 3), (2, 2), (1, 2), 1),
        case(T(5), (3, 3), (1, 1)),
        case(T(5), (2, 4), (0, 1), storage_offset=1),
        case(T(2, 3), (3, 2), (1, 3)),
        case(T(2, 3), (), ()),
        case(T(4), (0,), (1,), 9),
        case(T(4), (2, 4), (1, 1)),
        case(T(4), (2, 2), (1,)),
        case(T(4), (2, 2), (1, -1)),
        case(T(4), (2,), (1,), -1),
    ],
    "empty_strided": [case((2, 3), (1,)), case((2, 3), (1, -2))],
    "empty_permuted": [case((2, 3), (0,)), case((2, 3), (0, 0))],
}
