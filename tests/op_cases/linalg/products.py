"""Cases of the ops in ``ops/linalg/products.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

CASES: Cases = {
    "einsum": [
        case("ij,jk->ik", [T(2, 3), T(3, 4)]),
        case("ij,jk", [T(2, 3), T(3, 4)]),
        case("bij,bjk->bik", [T(5, 2, 3), T(5, 3, 4)]),
        case("i,j->ij", [T(2), T(3)]),
        case("ij->ji", [T(2, 3)]),
        case("ij->", [T(2, 3)]),
        case("ii->i", [T(3, 3)]),
        case("ii", [T(3, 3)]),
        case("...ij,...jk->...ik", [T(5, 2, 3), T(3, 4)]),
        case("ijk,kl,jl->il", [T(2, 3, 4), T(4, 5), T(3, 5)]),
        case("i,i->i", [T(0), T(0)]),
    ],
    "tensordot": [case(T(2, 3, 4), T(3, 4, 5)), case(T(2, 3), T(3, 4), 1), case(T(2), T(3), dims=0)],
    "tensordot.dims": [
        case(T(2, 3, 4), T(4, 5, 2), dims=([0, -1], [2, 0])),
        case(T(2, 3), T(1, 3), dims=([0, 1], [0, 1])),
        case(T(2, 3), T(4, 3), dims=([1], [0])),
        case(T(2, 3), T(4, 3), dims=([1], [0, 1])),
        case(T(2, 3), T(4, 3), dims=([1], [2])),
        case(T(3, 3), T(3, 3), dims=([0, 0], [0, 1])),
        case(T(2, 0), T(0, 3), dims=([1], [0])),
    ],
    "inner": [case(T(2, 3), T(4, 3)), case(T(2, 3), T(3)), case(T(), T(2, 3)), case(T(2, 3), T(4, 2))],
    "vdot": [case(T(3), T(3)), case(T(0), T(0)), case(T(3), T(4)), case(T(3), T(2, 3))],
    "kron": [
        case(T(2, 3), T(4, 2)),
        case(T(2, 3), T(4)),
        case(T(), T(2, 3)),
        case(T(2, 1, 3), T(2, 2)),
        case(T(0, 3), T(2, 2)),
        case(T(2), T(3, dtype="int64")),
    ],
    "linalg_cross": [
        case(T(2, 3), T(2, 3)),
        case(T(3, 2), T(3, 1), dim=0),
        case(T(1, 3), T(4, 3)),
        case(T(0, 3), T(0, 3)),
        case(T(2, 2), T(2, 2)),
        case(T(2, 3), T(3)),
        case(T(2, 3), T(2, 3), dim=2),
    ],
    "cross": [
        case(T(2, 3), T(2, 3)),
        case(T(3, 3), T(3, 3)),
        case(T(3, 2), T(3, 1), dim=0),
        case(T(1, 3), T(4, 3), dim=-1),
        case(T(2, 2), T(2, 2)),
        case(T(2, 3), T(3)),
        case(T(2, 3), T(2, 3), 0),
    ],
    "linalg_vecdot": [case(T(2, 3), T(2, 3)), case(T(3), T(2, 3)), case(T(3, 2), T(3, 1), dim=0), case(T(3), T(2))],
    "linalg_matmul": [case(T(2, 3), T(3, 4)), case(T(5, 2, 3), T(3)), case(T(2, 3), T(2, 3))],
    "linalg_multi_dot": [
        case([T(2, 3), T(3, 4)]),
        case([T(3), T(3, 20), T(20, 2), T(2)]),
        case([T(2, 9), T(9, 3), T(3, 7), T(7, 2)]),
        case([T(3)]),
        case([T(3), T(2, 3, 3), T(3)]),
        case([T(2, 3), T(2, 3)]),
    ],
    "trace": [case(T(3, 3)), case(T(2, 3)), case(T(0, 3)), case(T(2, 2, dtype="int32")), case(T(3))],
    "addr": [
        case(T(2, 3), T(2), T(3)),
        case(T(3), T(2), T(3), beta=0.5, alpha=2),
        case(T(2, 3), T(2), T(3), beta=0),
        case(T(2, 3), T(2, 1), T(3)),
        case(T(4, 3), T(2), T(3)),
    ],
}
