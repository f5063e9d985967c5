"""Cases of the ops in ``ops/nn/activation.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case, unary

EDGES = case(T(7, values=[-7.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0]))

LARGE = case(T(6, values=[-800.0, -90.0, -20.0, 20.0, 90.0, 800.0]))

SMOOTH = [*unary(), EDGES, LARGE]

CONSTANTS = [case(T(*shape, low=-5.0, high=5.0, constant=True)) for shape in ((2, 3), (), (0, 3))]

SOFTMAXES = [
    case(T(2, 3), 1),
    case(T(2, 3, 4), dim=-2),
    case(T(3, values=[1000.0, 0.0, -1000.0]), 0),
    case(T(), 0),
    case(T(0, 3), 1),
    case(T(2, 3, dtype="int64"), 1, dtype="float64"),
]


CASES: Cases = {
    "leaky_relu": [*unary(), EDGES, case(T(2, 3), 0.3)],
    "prelu": [
        case(T(2, 3), T(3)),
        case(T(2, 3, 4), T(3)),
        case(T(2, 3, 4), T(1)),
        case(T(2, 3), T()),
        case(T(5), T(1)),
        case(T(), T()),
        case(T(0, 3), T(3)),
        case(T(2, 3), T(2)),
        case(T(3), T(3)),
        case(T(2, 3), T(1, 3)),
    ],
    "hardtanh": [*unary(), EDGES, case(T(2, 3), -0.5, 1.5), case(T(2, 3), 1.0, -1.0)],
    "relu6": [*unary(-8, 8), EDGES, case(T(2, 3, high=9, dtype="uint8"))],
    "hardsigmoid": CONSTANTS,
    "hardswish": [*unary(-5, 5), EDGES],
    "elu": [*SMOOTH, case(T(2, 3), 0.7)],
    "selu": SMOOTH,
    "silu": SMOOTH,
    "softplus": [*SMOOTH, case(T(2, 3), 2.0, 1.0), case(T(3, values=[-1.0, 1.0, 2.0]), beta=2, threshold=2)],
    "mish": SMOOTH[:-1],
    "logsigmoid": SMOOTH,
    "gelu": [*SMOOTH, *[case(T(2, 3), approximate=how) for how in ("tanh", "sigmoid")]],
    "softmin": [
        case(T(2, 3), 1),
        case(T(2, 3, 4), dim=-2),
        case(T(), 0),
        case(T(2, 3, dtype="int64"), 1, dtype="float64"),
    ],
    "glu": [
        case(T(2, 4)),
        case(T(4, 3), 0),
        case(T(2, 4, 3), dim=-2),
        case(T(0, 4)),
        case(T(2, 3)),
        case(T()),
        case(T(2, 4), 2),
    ],
    "softsign": [*unary(), EDGES],
    "tanhshrink": [*unary(), EDGES],
    "celu": [*unary(), EDGES, case(T(2, 3), 0.5), case(T(2, 3), -2.0), case(T(2, 3), 0.0)],
    "hardshrink": [*unary(), EDGES, case(T(2, 3), 1.0), case(T(2, 3), -1.0)],
    "softshrink": [*unary(), EDGES, case(T(2, 3), 1.0), case(T(2, 3), -1.0)],
    "threshold": [
        case(T(2, 3), 0.0, 1.0),
        case(T(3, values=[-1.0, 1.0, 2.0]), 1, 20),
        case(T(), 0, 0),
        case(T(0, 3), 0, 0),
    ],
    "relu": [*unary(), case(T(3, values=[-1.0, 0.0, 2.0]))],
    "relu_backward": [case(T(2, 3), T(2, 3, values=[[0.0, 2.0, 0.5], [1.0, 0.0, 0.0]]))],
    "softmax": SOFTMAXES,
    "log_softmax": SOFTMAXES,
}
