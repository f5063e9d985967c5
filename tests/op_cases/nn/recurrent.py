"""Cases of the ops in ``ops/nn/recurrent.py``."""

from __future__ import annotations

from typing import Any

from ..stand_ins import Case, Cases, T, case


def stacks(gates: int, pair: bool = False) -> list[Case]:
    """Stacks with and without biases, of one layer and two, one direction and both, batch first or second."""

    def states(count: int) -> Any:
        made = [T(count, 2, 3) for _ in range(1 + pair)]
        return made if pair else made[0]

    def weights(*widths: int, biases: bool = True) -> list[T]:
        wide = gates * 3
        return [p for w in widths for p in (T(wide, w), T(wide, 3), *([T(wide), T(wide)] if biases else []))]

    return [
        case(T(4, 2, 2), states(1), weights(2), True, 1, 0.0, False, False, False),
        case(T(3, 2, 2), states(1), weights(2, biases=False), False, 1, 0.0, True, False, False),
        case(T(2, 3, 2), states(2), weights(2, 2), True, 1, 0.0, False, True, True),
        case(T(3, 2, 2), states(2), weights(2, 3, biases=False), False, 2, 0.0, False, False, False),
        case(T(2, 2, 2), states(4), weights(2, 2, 6, 6), True, 2, 0.0, True, True, False),
        case(T(0, 2, 2), states(1), weights(2), True, 1, 0.0, False, False, False),
        case(T(3, 2, 2), states(1), weights(2), True, 2, 0.0, False, False, False),
    ]


PROJECTIONS = [
    case(
        T(3, 2, 2),
        [T(1, 2, 2), T(1, 2, 3)],
        [T(12, 2), T(12, 2), T(12), T(12), T(2, 3)],
        True,
        1,
        0.0,
        False,
        False,
        False,
    ),
    case(T(2, 3, 2), [T(2, 2, 2), T(2, 2, 3)], [T(12, 2), T(12, 2), T(2, 3)] * 2, False, 1, 0.0, True, True, True),
]

INPUT = T(2, 3, values=[[0.5, -1.0, 1.5], [-0.5, 2.0, 0.25]])

ELMAN_CASES = [
    case(INPUT, T(2, 4), T(4, 3), T(4, 4)),
    case(INPUT, T(2, 4), T(4, 3), T(4, 4), T(4), T(4)),
    case(T(2, 3), T(2, 5), T(4, 3), T(4, 4)),
]


CASES: Cases = {
    "lstm": stacks(4, pair=True) + PROJECTIONS,
    "lstm_cell": [
        case(T(2, 3), [T(2, 4), T(2, 4)], T(16, 3), T(16, 4)),
        case(T(2, 3), [T(2, 4), T(2, 4)], T(16, 3), T(16, 4), T(16), T(16)),
        case(T(2, 3), [T(2, 4)], T(16, 3), T(16, 4)),
        case(T(2, 2), [T(2, 4), T(2, 4)], T(16, 3), T(16, 4)),
        case(T(2, 3), [T(2, 4), T(2, 3)], T(16, 3), T(16, 4)),
    ],
    "gru_cell": [
        case(T(2, 3), T(2, 4), T(12, 3), T(12, 4)),
        case(T(2, 3), T(2, 4), T(12, 3), T(12, 4), T(12), T(12)),
        case(T(2, 3), T(1, 4), T(12, 3), T(12, 4)),
    ],
    "rnn_tanh_cell": ELMAN_CASES,
    "rnn_relu_cell": ELMAN_CASES,
    "gru": stacks(3),
    "rnn_tanh": stacks(1),
    "rnn_relu": stacks(1),
}
