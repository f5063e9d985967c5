"""Cases of the ops in ``ops/math/elementary.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, binary, case, unary

GRADIENTS = [case(T(2, 3, dtype="float64"), T(2, 3, dtype="float64"))]

TIES = case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 1.0, 4.0]))

ORIGIN = case(T(4, values=[0.0, 0.0, 1.0, -1.0]), T(4, values=[0.0, 1.0, 0.0, 0.0]))


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
}
