"""Cases of the ops in ``ops/nn/max_pooling.py``."""

from __future__ import annotations

import math
from typing import Any

from ..stand_ins import Cases, T, case


def places(*values: Any) -> T:
    return T(dtype="int64", values=values)


CASES: Cases = {
    "adaptive_max_pool1d": [
        case(T(2, 3, 7), 3),
        case(T(3, 4), 6, True),
        case(T(1, 5, values=[[1.0, math.nan, 2.0, math.nan, 3.0]]), 2, True),
        case(T(1, 6, values=[[1.0, 1.0, 2.0, 0.0, 3.0, 3.0]]), 3, return_indices=True),
        case(T(0, 1, 3), 2),
        case(T(1, 3, constant=True), 0),
        case(T(1, 3), -1),
        case(T(1, 3), (2, 2)),
        case(T(1, 0), 2),
        case(T(3), 2),
    ],
    "adaptive_max_pool2d": [
        case(T(2, 3, 5, 7), (2, 3)),
        case(T(2, 3, 5, 7), (None, 3)),
        case(T(2, 6, 6), 4, True),
        case(T(1, 2, 3, values=[[[1.0, math.nan, 1.0], [math.nan, 1.0, 1.0]]]), (1, 2), True),
        case(T(0, 3, 3, 3), 2),
        case(T(1, 3, 3, constant=True), 0),
        case(T(1, 3, 3), -1),
        case(T(1, 3, 3), (2,)),
        case(T(1, 3, 3), (2, 2, 2)),
        case(T(1, 3, 0), 2),
        case(T(3, 3), 2),
    ],
    "adaptive_max_pool3d": [
        case(T(1, 2, 3, 4, 5), (2, 3, 2)),
        case(T(1, 2, 3, 4, 5), (2, None, 2), True),
        case(T(2, 3, 3, 3), 2, True),
        case(T(1, 3, 3, 3, constant=True), 0),
        case(T(1, 3, 3, 3), (2, 2)),
        case(T(1, 3, 0, 3), 2),
        case(T(3, 3, 3), 2),
    ],
    "max_pool2d": [
        case(T(2, 3, 6, 5), 2),
        case(T(3, 7, 6), (3, 2), (2, 1), (1, 0)),
        case(T(2, 1, 7, 7), 3, 2, 1, 1, True),
        case(T(1, 1, 5, 5), 2, 2, ceil_mode=True),
        case(T(1, 2, 7, 7), 2, 1, dilation=(2, 3)),
        case(T(1, 1, 4, 4, values=[[[[1, 1, 0, 0], [1, 1, 0, 2], [3, 0, 5, 5], [3, 3, 5, 4]]]]), 2),
        case(T(1, 3, 3, values=[[[1.0, math.nan, 2.0], [0.0, 3.0, 1.0], [5.0, math.nan, 1.0]]]), 2, 1),
        case(T(1, 2, 2, values=[[[-math.inf, -math.inf], [-math.inf, -math.inf]]]), 2, 1, 1),
        case(T(0, 3, 4, 4), 2),
        case(T(1, 0, 3, 3), 2),
        case(T(3, 3), 2),
        case(T(1, 3, 3), 4),
        case(T(1, 3, 3), 2, padding=2),
        case(T(1, 3, 3), 2, 0),
        case(T(1, 3, 3), 2, dilation=0),
        case(T(1, 3, 3), (2, 2, 2)),
        case(T(1, 3, 3, dtype="bool"), 2),
    ],
    "max_pool3d": [
        case(T(2, 3, 4, 5, 4), 2),
        case(T(3, 5, 4, 4), (3, 2, 1), (2, 1, 1), (1, 0, 0), 1, True),
        case(T(0, 3, 4, 4, 4), 2),
        case(T(1, 0, 3, 3, 3), 2),
        case(T(3, 3, 3), 2),
        case(T(1, 3, 3, 3), 4),
        case(T(1, 3, 3, 3), 2, -1),
        case(T(1, 3, 3, 3), (2, 2)),
        case(T(1, 3, 3, 3, dtype="bool"), 2),
    ],
    "max_pool1d": [
        case(T(2, 3, 7), 2),
        case(T(3, 7), 3, 2, 1, 1, True),
        case(T(1, 1, 6, values=[[[1, 1, 0, 2, 2, 2]]]), 3, 1, dilation=2),
        case(T(0, 3, 4), 2),
        case(T(3), 2),
        case(T(1, 3), 4),
        case(T(1, 3), 2, padding=2),
        case(T(1, 3), 2, 0),
        case(T(1, 3), (2, 2)),
    ],
    "max_unpool1d": [
        case(T(1, 1, 2), places([[0, 2]]), 2),
        case(T(1, 3), places([1, 3, 5]), 2),
        case(T(1, 1, 2), places([[0, 2]]), 3, 2, 1),
        case(T(1, 1, 2), places([[0, 4]]), 2, output_size=(5,)),
        case(T(1, 1, 2), places([[0, 4]]), (2,), output_size=(1, 1, 5)),
        case(T(1, 1, 2), places([[0, 2]]), 2, output_size=(9,)),
        case(T(1, 1, 3), places([[0, 2]]), 2),
        case(T(2), places(0, 2), 2),
        case(T(1, 1, 2), T(1, 1, 2, dtype="int32"), 2),
    ],
    "max_unpool2d": [
        case(T(1, 1, 2, 2), places([[[0, 2], [9, 11]]]), 2),
        case(T(2, 1, 2), places([[1, 2]], [[0, 3]]), (1, 2)),
        case(T(1, 1, 2, 2), places([[[0, 2], [9, 11]]]), 3, 2, 1, (4, 4)),
        case(T(1, 1, 2, 2), places([[[0, 2], [9, 11]]]), 2, output_size=(1, 1, 5, 5)),
        case(T(0, 1, 2, 2), T(0, 1, 2, 2, dtype="int64"), 2),
        case(T(1, 1, 2, 2), places([[[0, 2], [9, 11]]]), 2, output_size=(5,)),
        case(T(1, 1, 2, 2), places([[[0, 2]]]), 2),
        case(T(1, 0, 2, 2), T(1, 0, 2, 2, dtype="int64"), 2),
        case(T(2, 2), places([0, 2], [9, 11]), 2),
    ],
    "max_unpool3d": [
        case(T(1, 1, 1, 1, 2), places([[[[3, 12]]]]), 2),
        case(T(1, 1, 1, 2), places([[[0, 7]]]), (1, 2, 2)),
        case(T(1, 1, 1), places([[0]]), 2),
    ],
}
