"""Cases of the ops in ``ops/nn/attention.py``."""

from __future__ import annotations

from ..stand_ins import Cases, M, T, case

CASES: Cases = {
    "scaled_dot_product_attention": [
        case(T(2, 3, 4), T(2, 5, 4), T(2, 5, 6)),
        case(T(3, 4), T(5, 4), T(5, 6), scale=0.3),
        case(T(3, 4), T(5, 4), T(5, 6), is_causal=True),
        case(T(2, 5, 4), T(2, 3, 4), T(2, 3, 6), is_causal=True),
        case(T(2, 1, 3, 4), T(1, 4, 5, 4), T(2, 4, 5, 6)),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5)),
        case(T(2, 3, 4), T(2, 5, 4), T(2, 5, 6), M(3, 5)),
        case(T(2, 4), T(3, 4), T(3, 6), T(2, 3, values=[[0, 0, 0], [1, 0, 1]], dtype="bool")),
        case(*[T(*shape, dtype="float32") for shape in ((0, 4), (5, 4), (5, 6))]),
        case(T(2, 4, 3, 4), T(2, 2, 5, 4), T(2, 2, 5, 6), enable_gqa=True),
        case(T(4, 3, 4), T(2, 5, 4), T(1, 5, 6), None, 0.0, True, enable_gqa=True),
        case(T(4, 3, 4), T(3, 5, 4), T(3, 5, 6), enable_gqa=True),
        case(*[T(*shape, dtype="float32") for shape in ((3, 4), (5, 4), (5, 6))], enable_gqa=True),
        case(T(3, 4), T(5, 3), T(5, 6)),
        case(T(4), T(4), T(4)),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5), is_causal=True),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5, dtype="int64")),
    ],
}
