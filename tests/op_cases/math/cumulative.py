"""Cases of the ops in ``ops/math/cumulative.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case

ZEROS = T(3, 4, values=[[1.0, 0.0, 2.0, 3.0], [0.0, 2.0, 0.0, 1.0], [2.0, -1.0, 3.0, 0.0]])

RUNNING = [
    case(T(2, 3), 0),
    case(T(2, 3, 4), -2),
    case(T(6, values=[1.0, 1.0, 3.0, 0.0, 3.0, 0.0]), 0),
    case(T(5, values=[1.0, math.nan, 3.0, math.nan, 2.0]), 0),
    case(T(5, dtype="bool"), 0),
    case(T(), 0),
    case(T(), 1),
    case(T(0, 3), 0),
    case(T(0, 3), 1),
    case(T(3), 1),
]

TRAPEZOIDS = [case(T(5)), case(T(2, 4), dx=0.5, dim=0), case(T(2, 4), dim=-1)]

ALONG = [case(T(4), T(4)), case(T(2, 4), T(2, 4)), case(T(4, 2), T(4), dim=0), case(T(2, 4), T(3))]


CASES: Cases = {
    "cumprod": [
        case(T(2, 3), 0),
        case(T(2, 7), -1),
        case(T(2, 5, 2), 1),
        case(ZEROS, 1),
        case(ZEROS, 0),
        case(T(3, dtype="int64"), 0),
        case(T(3, constant=True), 0, dtype="float64"),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(1), 0),
        case(T(3), 1),
    ],
    "prod.dim": [
        case(T(2, 3), 0),
        case(T(2, 3, 4), -2, True),
        case(ZEROS, 1),
        case(ZEROS, dim=0, keepdim=True),
        case(T(2, 3, dtype="bool"), 1),
        case(T(2, 3, constant=True), 1, dtype="float64"),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(0, 3), 1),
        case(T(3), 1),
    ],
    "cummax": RUNNING,
    "cummin": RUNNING,
    "logcumsumexp": [
        case(T(2, 3), 0),
        case(T(2, 5, 2), -2),
        case(T(4, values=[-math.inf, -math.inf, 1.0, 2.0]), 0),
        case(T(3, values=[1.0, -math.inf, 2.0]), 0),
        case(T(4, values=[100.0, 100.0, -100.0, 101.0]), 0),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(3), 1),
    ],
    "diff": [
        case(T(5)),
        case(T(2, 4), 2),
        case(T(3, 4), 1, 0),
        case(T(2, 4), prepend=T(2, 1), append=T(2, 2)),
        case(T(4, dtype="bool")),
        case(T(2, 3), 5),
        case(T(2, 3), 0),
        case(T(3), -1),
        case(T()),
    ],
    "trapezoid.dx": TRAPEZOIDS,
    "trapezoid": ALONG,
    "gradient.tensorarray": [
        case(T(5), spacing=[T(values=[0.0, 1.0, 3.0, 3.5, 5.0])]),
        case(T(3, 4), spacing=[T(values=[0.0, 1.0, 3.0]), T(values=[0.0, 1.0, 2.0, 4.0])], edge_order=2),
        case(T(3, 4), spacing=[T(values=[0.0, 1.0, 3.0, 4.5])], dim=1),
        case(T(3, 4), spacing=[T(values=[0.0, 1.0, 3.0])]),
        case(T(3, 4), spacing=[T(values=[0.0, 1.0, 3.0])], dim=(0, 1)),
        case(T(3), spacing=[T(3, 1)]),
    ],
    "gradient": [
        case(T(5)),
        case(T(3, 4)),
        case(T(5), spacing=2.0),
        case(T(5), edge_order=2),
        case(T(3, 4), dim=0),
        case(T(3, 4), dim=(1, 0), spacing=(2.0, 0.5)),
        case(T(5), edge_order=3),
        case(T(1)),
        case(T(3), dim=5),
    ],
}
