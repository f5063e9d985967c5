"""Cases of the ops in ``ops/math/elementary.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, binary, case, unary

GRADIENTS = [case(T(2, 3, dtype="float64"), T(2, 3, dtype="float64"))]

TIES = case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 1.0, 4.0]))

ORIGIN = case(T(4, values=[0.0, 0.0, 1.0, -1.0]), T(4, values=[0.0, 1.0, 0.0, 0.0]))

GAMMA = [
    *unary(0.3, 4.0),
    case(T(4, values=[-0.5, -1.5, -0.25, 20.0])),
    case(T(5, values=[0.0, -1.0, -math.inf, math.inf, math.nan], constant=True)),
]


CASES: Cases = {
    "exp": unary(),
    "expm1": unary(),
    "log": unary(0.2, 3.0),
    "log1p": unary(-0.8, 3.0),
    "sqrt": unary(0.2, 3.0),
    "rsqrt": unary(0.2, 3.0),
    "square": [*unary(), case(T(2, 3, dtype="bool"))],
    "reciprocal": unary(0.3, 3.0),
    "sin": unary(),
    "cos": unary(),
    "tanh": unary(),
    "tanh_backward": GRADIENTS,
    "sigmoid": [*unary(), case(T(2, 3, low=-90.0, high=90.0))],
    "sigmoid_backward": GRADIENTS,
    "floor": unary(),
    "ceil": unary(),
    "trunc": unary(),
    "round": [*unary(), case(T(4, values=[0.5, 1.5, 2.5, -0.5]))],
    "round.decimals": [case(T(2, 3), decimals=1), case(T(3, low=-900, high=900), decimals=-2), case(T(3), decimals=0)],
    "clamp": [
        case(T(2, 3), -0.5, 0.5),
        case(T(2, 3), min=0),
        case(T(2, 3), max=0.5),
        case(T(3, values=[-1.0, 0.0, 1.0]), -1, 1),
        case(T(2, 3), T(3, low=-2, high=-1), T(2, 3, low=1, high=2)),
        case(T(0, 3), min=0.0),
        case(T(), 0.0, 1.0),
    ],
    "maximum": [*binary()[:-1], TIES],
    "minimum": [*binary()[:-1], TIES],
    "tan": unary(-1.3, 1.3),
    "asin": unary(-0.9, 0.9),
    "acos": unary(-0.9, 0.9),
    "atan": unary(),
    "sinh": unary(),
    "cosh": unary(),
    "asinh": unary(),
    "acosh": unary(1.2, 4.0),
    "atanh": unary(-0.9, 0.9),
    "sinc": [*unary(0.2, 1.8), case(T(3, values=[0.0, 0.5, 1.0]))],
    "atan2": [*binary()[:-1], ORIGIN],
    "hypot": [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3)),
        case(T(2, 2), T()),
        case(T(0, 3), T(1, 3)),
        case(T(2, 1, 3, dtype="float64"), T(4, 1)),
        case(T(2, 3, dtype="int64"), T(2, 3)),
        ORIGIN,
    ],
    "deg2rad": unary(),
    "rad2deg": unary(),
    "exp2": unary(),
    "log2": unary(0.2, 3.0),
    "log10": unary(0.2, 3.0),
    "logaddexp": [
        *binary()[:-1],
        case(T(2, low=-300, high=300), T(3, 1, low=-300, high=300)),
        case(T(3, values=[-math.inf, math.inf, -math.inf]), T(3, values=[0.0, 0.0, -math.inf])),
    ],
    "logaddexp2": [*binary()[:-1], case(T(2), T(2, dtype="int64"))],
    "xlogy": [
        *binary(0.2, 3.0),
        case(2.0, T(2, 3, low=0.2, high=3.0)),
        case(T(4, values=[0.0, 0.0, 0.0, 2.0]), T(4, values=[0.0, -1.0, math.nan, -1.0], constant=True)),
        case(T(2, values=[0.0, 1.0]), 0),
        case(T(2, values=[0.0, 1.0]), 2),
    ],
    "logit": [
        *unary(0.1, 0.9),
        case(T(5, values=[0.05, 0.1, 0.5, 0.9, 0.95]), 0.1),
        case(T(2, 3, low=0.1, high=0.9), eps=None),
        case(T(3, values=[0.5, 2.0, -1.0])),
        case(T(4, values=[0.2, 0.5, 0.7, 0.8]), eps=0.7),
        case(T(3, values=[1.0, 2.0, -1.0], dtype="int64"), 0.25),
    ],
    "erf": unary(),
    "erfc": [*unary(), case(T(3, low=4, high=6))],
    "erfinv": [*unary(-0.9, 0.9), case(T(3, values=[0.0, 1.0, 2.0]))],
    "lgamma": [*GAMMA, case(T(2, values=[1.0, 2.0]))],
    "digamma": GAMMA,
    "polygamma": [case(n, T(3, low=0.4, high=4.0)) for n in (0, 1, 2, 5, -1)] + [case(1, T()), case(2, T(0, 3))],
    "mvlgamma": [
        case(T(3, low=2.0, high=4.0), 2),
        case(T(2, 2, low=3.0, high=4.0), 3),
        case(T(2, low=1.0, high=2.0), 1),
        case(T(2), 0),
    ],
}
