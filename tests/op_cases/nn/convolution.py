"""Cases of the ops in ``ops/nn/convolution.py``."""

from __future__ import annotations

from ..stand_ins import Case, Cases, T, case

SIZES = {1: (5,), 2: (5, 6), 3: (3, 4, 4)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 3, 1)}


def convolutions(ndim: int) -> list[Case]:
    sizes, kernel, ones = SIZES[ndim], KERNELS[ndim], (1,) * ndim
    plain = (T(2, 3, *sizes), T(2, 3, *kernel))
    return [
        case(T(2, 4, *sizes), T(6, 2, *kernel), T(6), (2, *ones[1:]), 1, (1, *(2,) * (ndim - 1)), 2),
        case(T(3, *sizes), T(2, 3, *kernel)),
        case(T(0, 3, *sizes), T(2, 3, *kernel), T(2)),
        case(T(2, 3, *sizes), T(2, 2, *kernel)),
        case(T(1, 1, *ones), T(2, 1, *kernel)),
        case(*plain, None, 1, "same"),
        case(T(3, *sizes), T(2, 3, *kernel), T(2), padding="valid", stride=2),
        case(*plain, padding="same", dilation=2),
        case(*plain, padding="same", stride=2),
        case(*plain, padding="full"),
    ]


def transposed(ndim: int) -> list[Case]:
    sizes, kernel, ones = SIZES[ndim], KERNELS[ndim], (1,) * ndim
    plain = (T(2, 3, *sizes), T(3, 2, *kernel))
    steps = tuple(range(2, 2 + ndim))
    return [
        case(T(2, 4, *sizes), T(4, 3, *kernel), T(6), steps, 1, (*steps[::-1][:-1], 1), 2, 1),
        case(T(3, *sizes), T(3, 2, *kernel)),
        case(T(0, 3, *sizes), T(3, 2, *kernel), T(2)),
        case(*plain, dilation=3, output_padding=2),
        case(*plain, output_padding=1),
        case(T(2, 4, *sizes), T(3, 2, *kernel)),
        case(T(1, 1, *ones), T(1, 1, *ones), padding=1),
    ]


MORE = [
    case(T(2, 3, 5, 6), T(2, 3, 5, 6)),
    case(T(3, 5), T(2, 3, 3, 2)),
    case(T(2, 3, 5, 6), T(2, 3, 3, 2), T(3)),
    case(T(2, 3, 5, 6), T(2, 3, 3, 2), stride=(1, 1, 1)),
    case(T(2, 3, 5, 6), T(2, 3, 1, 1, dtype="bool")),
    case(T(4, 1, 7, 7), T(3, 1, 3, 3), T(3), stride=3),
    case(T(2, 4, 5, 6), T(3, 2, 3, 3), groups=2),
]


CASES: Cases = {
    "conv_tbc": [case(T(5, 2, 3), T(3, 3, 4), T(4)), case(T(5, 2, 3), T(2, 3, 4), T(4), 1)],
    "convolution": [
        case(T(2, 4, 5, 6), T(6, 2, 3, 2), T(6), (2, 1), (1, 0), (1, 2), False, (0, 0), 2),
        case(T(2, 4, 3, 4), T(4, 3, 3, 2), T(6), (2, 3), (1, 0), (1, 2), True, (1, 2), 2),
        case(T(2, 3, 5), T(2, 3, 3), None, (1,), (0,), (1,), False, (0,), 1),
        case(T(3, 5), T(2, 3, 3), None, (1,), (0,), (1,), False, (0,), 1),
    ],
    "conv1d": convolutions(1),
    "conv2d": [*convolutions(2), *MORE],
    "conv3d": convolutions(3),
    "conv_transpose1d": transposed(1),
    "conv_transpose2d": transposed(2),
    "conv_transpose3d": transposed(3),
}
