"""Cases of the ops in ``ops/nn/embedding.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case

MODES = ("sum", "mean", "max")

NUMBERS = T(4, values=[0, 1, 4, 2], dtype="int64")

STARTS = T(3, values=[0, 2, 2], dtype="int64")


CASES: Cases = {
    "embedding": [
        case(I(4, high=3), T(3, 2)),
        case(I(2, 3, high=3), T(3, 2), padding_idx=-1),
        case(T(4, values=[0, 1, 1, 2], dtype="int64"), T(3, 2), 1),
        case(T(2, values=[0, 2], dtype="int64"), T(3, 2, low=0.5, constant=True), max_norm=0.5, norm_type=1.0),
        case(T(values=1, dtype="int64"), T(3, 2)),
        case(T(2, values=[0, 1], dtype="int32"), T(3, 2)),
        case(I(0, 2, high=3), T(3, 2, constant=True)),
        case(I(4, high=3), T(3)),
        case(T(2, values=[0.0, 1.0], dtype="float32", constant=True), T(3, 2)),
    ],
    "embedding_bag": [
        *[case(NUMBERS, T(5, 3), STARTS, mode=mode) for mode in MODES],
        *[case(I(2, 3, high=5), T(5, 3), mode=mode) for mode in MODES],
        case(NUMBERS, T(5, 3), STARTS, mode="sum", per_sample_weights=T(4)),
        case(I(2, 3, high=5), T(5, 3), mode="sum", per_sample_weights=T(2, 3)),
        *[case(NUMBERS, T(5, 3), STARTS, mode=mode, padding_idx=1) for mode in MODES],
        case(NUMBERS, T(5, 3), STARTS, include_last_offset=True, padding_idx=-1),
        case(T(4, values=[0, 1, 1, 1], dtype="int64"), T(5, 3), STARTS, scale_grad_by_freq=True),
        case(T(2, values=[0, 2], dtype="int32"), T(3, 2), T(1, values=[0], dtype="int32")),
        case(NUMBERS, T(5, 3)),
        case(I(2, 3, high=5), T(5, 3), STARTS),
        case(I(1, 2, 3, high=5), T(5, 3)),
        case(NUMBERS, T(3), STARTS),
        case(NUMBERS, T(5, 3), STARTS, mode="median"),
        case(NUMBERS, T(5, 3), STARTS, mode="max", scale_grad_by_freq=True),
        case(NUMBERS, T(5, 3), STARTS, mode="max", sparse=True),
        case(NUMBERS, T(5, 3), STARTS, per_sample_weights=T(4)),
        case(NUMBERS, T(5, 3), STARTS, mode="sum", per_sample_weights=T(3)),
        case(NUMBERS, T(5, 3), STARTS, padding_idx=7),
        case(NUMBERS, T(5, 3), T(2, 2, dtype="int64")),
    ],
}
