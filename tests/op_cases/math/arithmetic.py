"""Cases of the ops in ``ops/math/arithmetic.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, M, T, binary, case, unary

SHIFTED = [
    case(T(2, 3, low=0, high=9, dtype="int64"), T(3, low=0, high=4, dtype="int64")),
    case(T(4, values=[1, -8, 7, -1], dtype="int64"), T(4, values=[70, 70, -1, 63], dtype="int64")),
    case(T(3, low=0, high=9, dtype="int64"), 2),
    case(2, T(3, low=0, high=9, dtype="int64")),
    case(T(2, dtype="bool"), T(2, dtype="bool")),
    case(T(2, dtype="bool"), 1),
    case(T(0, 3, dtype="int64"), 1),
    case(T(2), T(2)),
]

DIVIDED = [
    case(T(2, 3, low=-9, high=9, dtype="int64"), T(3, low=1, high=9, dtype="int64")),
    case(T(3, values=[6, 0, -4], dtype="int64"), T(3, values=[4, 0, 6], dtype="int64")),
    case(T(2), T(2)),
    case(T(2, dtype="bool"), T(2, dtype="bool")),
]

TIES = case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 3.0, 2.0]))

NANS = case(T(4, values=[1.0, math.nan, 2.0, math.nan]), T(4, values=[1.0, 2.0, math.nan, math.nan]))

BOUNDS = [*binary(), TIES, NANS, case(T(3, values=[1.0, 2.0, 3.0]), 2), case(T(3, dtype="bool"), True)]

THREE = [
    case(T(2, 3), T(2, 3), T(2, 3, low=0.5, high=2.0)),
    case(T(2, 3), T(3), T(2, 1, low=0.5, high=2.0), value=0.5),
    case(T(), T(2), T(low=0.5, high=2.0), value=-2),
    case(T(0, 3), T(3), T(1, low=0.5, high=2.0)),
    case(T(3), T(3, dtype="int64"), T(3, low=0.5, high=2.0, dtype="float64")),
    case(T(3, dtype="bool"), T(3, dtype="bool"), T(3, dtype="bool")),
    case(T(3), T(3, dtype="int64"), T(3, low=1, high=3, dtype="int64"), value=1.5),
]

COMPARED = [*binary(), case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 3.0, 2.0]))]

LOGICAL = [case(M(2, 3), M(3)), case(T(2, 3), T(2, 3)), case(M(), M(0, 2))]

BITS = [case(M(2, 3), M(3)), case(T(2, 3, low=0, high=9, dtype="int64"), T(3, low=0, high=9, dtype="int64"))]

SPECIAL = [case(T(4, values=[float("nan"), float("inf"), -float("inf"), 1.0])), case(T(2, 3)), case(T(0))]


CASES: Cases = {
    "add": [*binary(), case(T(2, 3), T(3), alpha=2.5), case(T(2, 3), 1, alpha=2)],
    "sub": [*binary(), case(T(2, 3), T(3), alpha=2.5)],
    "rsub": [case(T(2, 3), T(3)), case(T(2, 3), 2), case(T(2, 3), T(3), alpha=2.5), case(T(2, 3), 1, alpha=3)],
    "mul": binary(),
    "div": binary(0.5, 3.0),
    "div.mode": [
        case(T(2, 3), T(3, low=0.5, high=3), rounding_mode="floor"),
        case(T(2, 3), 1.5, rounding_mode="trunc"),
        case(T(2, 3, low=-9, high=9, dtype="int64"), T(3, low=1, high=4, dtype="int64"), rounding_mode="trunc"),
    ],
    "floor_divide": [case(T(2, 3), T(3, low=0.5, high=3)), case(T(2, 3), 1.5), case(T(0, 3), T(3, low=0.5, high=3))],
    "remainder": [case(T(2, 3), T(3, low=0.5, high=3)), case(T(2, 3), 1.5), case(T(0, 3), T(3, low=0.5, high=3))],
    "neg": unary(),
    "positive": [*unary(), case(T(2, dtype="bool"))],
    "abs": [*unary(), case(T(3, values=[0.0, -1.0, 2.0]))],
    "sign": unary(),
    "pow": [*binary(0.3, 2.0), case(T(2, 3), 2), case(T(2, 3), 3.0), case(T(2, 3), 0), case(2.0, T(2, 3))],
    "float_power": [
        case(T(3, low=0.3), T(3)),
        case(T(2, 3, low=0.3), 2),
        case(2, T(3)),
        case(T(3, dtype="int64", low=1), 0.5),
    ],
    "bitwise_left_shift": SHIFTED,
    "bitwise_right_shift": SHIFTED,
    "gcd": DIVIDED,
    "lcm": DIVIDED,
    "clamp_min": BOUNDS,
    "clamp_max": BOUNDS,
    "fmax": [*binary()[:-1], TIES, NANS],
    "fmin": [*binary()[:-1], TIES, NANS],
    "lerp": [
        case(T(2, 3), T(2, 3), 0.3),
        case(T(2, 3), T(3), 2),
        case(T(2, 3), T(2, 1), T(2, 3, low=0.0, high=1.0)),
        case(T(3, dtype="float64"), T(2, 1, dtype="float64"), T(2, 3, low=0.0, high=1.0, dtype="float64")),
        case(T(2, 3), T(2, 3), T()),
        case(T(), T(), 0.5),
        case(T(0, 3), T(3), weight=T(3)),
        case(T(3), T(3, dtype="float64"), 0.5),
        case(T(3), T(3), T(3, dtype="float64")),
        case(T(3), T(3), T(low=0, high=1, dtype="float64", constant=True)),
    ],
    "addcmul": THREE,
    "addcdiv": THREE,
    "eq": COMPARED,
    "ne": COMPARED,
    "lt": COMPARED,
    "le": COMPARED,
    "gt": COMPARED,
    "ge": COMPARED,
    "logical_and": LOGICAL,
    "logical_or": LOGICAL,
    "logical_xor": LOGICAL,
    "logical_not": [case(M(2, 3)), case(T(2, 3)), case(T(0))],
    "bitwise_and": BITS,
    "bitwise_or": BITS,
    "bitwise_xor": BITS,
    "bitwise_not": [case(M(2, 3)), case(T(3, low=0, high=9, dtype="int64"))],
    "isnan": SPECIAL,
    "isinf": SPECIAL,
    "isfinite": SPECIAL,
    "where": [
        case(M(2, 3), T(2, 3), T(3)),
        case(M(3), T(2, 1), 0.5),
        case(M(2, 3), 1.0, T()),
        case(M(0, 3), T(3), T(0, 3)),
    ],
}
