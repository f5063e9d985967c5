"""Cases of the ops in ``ops/nn/batch_norm.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

CASES: Cases = {
    "batch_norm": [
        case(T(4, 3), None, None, training=True),
        case(T(4, 3, 2), None, None, T(3), T(3), True),
        case(T(2, 3, 2, 2), None, None, T(3), None, True, 0.1, 0.1),
        case(T(4, 3), T(3, constant=True), T(3, low=0.5, constant=True)),
        case(T(4, 3, 2), T(3, constant=True), T(3, low=0.5, constant=True), T(3), T(3), False, 0.1, 0.1),
        case(T(4, 3, 2), T(3, constant=True), T(3, low=0.5, constant=True), T(3), T(3), True, 0.3),
        case(T(1, 3), T(3, constant=True), T(3, low=0.5, constant=True)),
        case(*[T(*shape, dtype="float32", constant=True) for shape in ((0, 3), (3,), (3,), (3,), (3,))]),
        case(T(1, 3), None, None, training=True),
        case(T(3), None, None, training=True),
        case(T(4, 3), None, None),
        case(T(4, 3), T(2, constant=True), T(3, low=0.5, constant=True)),
        case(T(4, 3), T(3), T(3, low=0.5, constant=True)),
        case(T(4, 3), T(3, constant=True), None),
    ],
    "instance_norm": [
        case(T(2, 3, 4)),
        case(T(2, 3, 4, 2), None, None, T(3), T(3)),
        case(T(2, 3, 4), T(3, constant=True), T(3, low=0.5, constant=True), T(3), None, True, 0.3, 0.1),
        case(T(2, 3, 4), T(3, constant=True), T(3, low=0.5, constant=True), use_input_stats=False),
        case(T(2, 3, 1)),
        case(T(2, 3)),
        case(T(2, 3, 4), use_input_stats=False),
        case(T(2, 3, 4), None, None, T(2)),
    ],
}
