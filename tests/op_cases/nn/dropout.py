"""Cases of the ops in ``ops/nn/dropout.py``."""

from __future__ import annotations

import math
from typing import Any

from ..stand_ins import Cases, T, case


def cases(*shape: int) -> list[Any]:
    """Those without chance."""
    return [case(T(*shape), 0.0), case(T(*shape), 1.0), case(T(*shape), 0.5, False), case(T(*shape), 1.5)]


CASES: Cases = {
    "dropout": [
        case(T(2, 3), 0.0),
        case(T(2, 3), 1.0),
        case(T(2, 3), 0.5, False),
        case(T(0), 0.5),
        case(T(), 0.0),
    ],
    "dropout1d": [*cases(2, 3, 4), case(T(2, 3, 4, 5), 0.5)],
    "dropout2d": cases(2, 3, 4, 5),
    "dropout3d": cases(2, 3, 2, 2, 2),
    "alpha_dropout": [case(T(2, 3), 0.0, True), case(T(2, 3), 0.5, False)],
    "feature_alpha_dropout": [*cases(2, 3, 4), case(T(3), 0.5, True), case(T(), 0.0)],
    "feature_dropout": [
        case(T(2, 3, 4), 0.0, True),
        case(T(2, 3), 0.5, False),
        case(T(2, 3), 1.0, True),
        case(T(2), 0.5, True),
    ],
    "native_dropout": [case(T(4), 0.0, True), case(T(4), 0.5, False), case(T(4), 1.0, True)],
    "rrelu": [
        case(T(2, 3)),
        case(T(2, 3), 0.1, 0.5),
        case(T(2, 3), 0.25, 0.25, True),
        case(T(2, 3), 0.5, 0.1),
        case(T(2, 3), -math.inf, 0.5, True),
    ],
    "gumbel_softmax": [
        case(T(3, dtype="int64"), 0.5),
        case(T(0, 3, dtype="float32")),
        case(T(1, dtype="float64")),
        case(T(2, 3, dtype="float32"), dim=4),
    ],
}
