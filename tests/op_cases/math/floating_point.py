"""Cases of the ops in ``ops/math/floating_point.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, binary, case, unary

PARTS = T(6, values=[8.0, 0.3, 0.0, -5.0, math.inf, math.nan])

SIGNS = [*unary(), case(T(4, values=[0.0, -0.0, math.inf, -math.inf])), case(T(3, dtype="bool"))]

ODD = [math.nan, math.inf, -math.inf, 1.5]

SELF = [case(T(2, 3)), case(T()), case(T(0, 2))]


CASES: Cases = {
    "frexp": [*unary(), case(PARTS)],
    "ldexp": [
        case(T(2, 3), T(3, low=0, high=3, dtype="int64")),
        case(T(2, low=1, high=4, dtype="int64"), T(2, low=0, high=3, dtype="int64")),
        case(T(2), T(2)),
        case(T(0, 2), T(2)),
    ],
    "nextafter": [
        case(T(2, 3), T(3)),
        case(T(3, values=[1.0, 0.0, 3.0]), T(3, values=[2.0, -1.0, 3.0])),
        case(T(2, dtype="int64"), T(2, dtype="int64")),
    ],
    "signbit": SIGNS,
    "isposinf": SIGNS,
    "isneginf": SIGNS,
    "heaviside": [
        *[c for c in binary() if isinstance(c.args[1], T)],
        case(T(4, values=[0.0, -1.0, 2.0, math.nan]), T(4)),
        case(T(3, dtype="float32"), T(3, dtype="float64")),
    ],
    "sgn": [*unary(), case(T(4, values=[0.0, -3.0, 2.0, math.nan])), case(T(3, dtype="bool"))],
    "frac": [*unary(), case(T(4, values=[-1.5, 2.0, math.inf, 0.0]))],
    "fmod": [
        case(T(2, 3, low=-9, high=9), T(3, low=1, high=3)),
        case(T(2, 3, low=-9, high=9), -1.5),
        case(T(4, values=[3.0, -3.0, 3.0, -3.0]), T(4, values=[2.0, 2.0, -2.0, -2.0])),
        case(T(3), 0),
        case(T(0, 3), T(3)),
        case(T(), T(low=1, high=3)),
        case(T(3, dtype="bool"), T(3, dtype="bool")),
    ],
    "copysign": [
        *binary(),
        case(T(2, 3), -1.0),
        case(T(4, values=[0.0, -1.0, 2.0, 3.0]), T(4, values=[-1.0, 0.0, -0.0, -math.inf])),
        case(T(3, dtype="bool"), T(3, dtype="bool")),
    ],
    "nan_to_num": [
        *unary(),
        case(T(4, values=ODD)),
        case(T(4, values=ODD), 1.0, 2, neginf=-3.0),
        case(T(4, values=ODD), posinf=math.inf),
        case(T(3, dtype="bool")),
    ],
    "isclose": [
        case(T(2, 3), T(3)),
        case(T(4, values=[1.0, 2.0, 3.0, 0.0]), T(4, values=[1.0, 2.1, 3.0001, 1e-9])),
        case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 2.1, 3.5]), 0.1, 0.01),
        case(T(3, values=[10.0, 20.0, 30.0]), T(3, values=[11.0, 19.0, 37.0]), rtol=0.1),
        case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 2.0, 4.0]), rtol=0, atol=0),
        case(T(4, values=ODD), T(4, values=ODD)),
        case(T(4, values=ODD), T(4, values=[math.nan, 1.0, math.inf, 1.5]), equal_nan=True),
        case(T(1, values=[16777217], dtype="int64"), T(1, values=[16777216], dtype="int64"), 0.0, 0.5),
        case(T(3, dtype="bool"), T(3, dtype="bool")),
        case(T(3), T(3), rtol=-1),
        case(T(3), T(3), atol=-0.5),
        case(T(3), T(3, dtype="bool")),
        case(T(0, 3), T()),
    ],
    "allclose": [
        case(T(2, 3), T(3)),
        case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 2.1, 3.5]), 0.2),
        case(T(3, values=[10.0, 20.0, 30.0]), T(values=10.0), atol=20.0),
        case(T(4, values=ODD), T(4, values=ODD)),
        case(T(4, values=ODD), T(4, values=ODD), equal_nan=True),
        case(T(3, dtype="bool"), T(3, dtype="bool")),
        case(T(3), T(3), rtol=-1),
        case(T(3), T(2)),
        case(T(3), T(3, dtype="bool")),
        case(T(0, 3), T()),
    ],
    "equal": [
        case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 2.0, 3.0])),
        case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 2.0, 4.0])),
        case(T(2), T(3)),
        case(T(1, 2), T(2)),
        case(T(4, values=ODD), T(4, values=ODD)),
        case(T(2, values=[1.0, 2.0]), T(2, values=[1.0, 2.0], dtype="float64")),
        case(T(0), T(0)),
    ],
    "conj": SELF,
    "resolve_conj": SELF,
    "resolve_neg": SELF,
    "conj_physical": SELF,
    "adjoint": [case(T(2, 3)), case(T(2, 3, 4)), case(T(0, 2)), case(T(3))],
    "isreal": [*unary(), case(T(3, values=[math.nan, math.inf, 1.0]))],
    "angle": [*unary(), case(T(5, values=[1.0, -1.0, 0.0, -0.0, math.nan])), case(T(2, dtype="bool"))],
}
