"""Cases of the ops in ``ops/shape/joining.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

SHAPES = ((), (2,), (2, 3), (2, 3, 4), (1, 2, 3, 4), (0,))
ALONE = [case(T(*shape)) for shape in SHAPES]
SEVERAL = [case(*[T(*shape) for shape in SHAPES]), case([T(), T(2)]), case([T()]), case([])]


CASES: Cases = {
    "block_diag": [
        case(T(2), T(), T(2, 3), T(1, 1, dtype="int64")),
        case(T(2, 3)),
        case(T(0, 2), T(1, 1)),
        case(T(1, 1, 1)),
        case(),
    ],
    "unravel_index": [
        case(T(2, 2, dtype="int64", values=[[1, 5], [0, 3]]), (2, 3)),
        case(T(dtype="int64", values=3), 5),
        case(T(2, dtype="int64", values=[1, 6]), (2, 3)),
        case(T(2, dtype="int64", values=[7, 8]), (2, 2, 3)),
        case(T(2, dtype="float32"), (2, 3)),
        case(T(dtype="int64", values=3), (-1, 3)),
    ],
    "cat": [
        case([T(2, 3), T(1, 3)]),
        case([T(2, 3), T(2, 1), T(2, 2)], dim=-1),
        case([T(0, 3), T(2, 3)]),
        case([T(3)]),
        case([T(0), T(2, 3)], 1),
        case([T(2, 3), T(0), T(1, 3)]),
        case([T(0), T(0)], dim=1),
        case([T(0), T(3, dtype="float64")]),
        case([T(0, 0), T(1, 2)], 1),
    ],
    "stack": [case([T(2, 3), T(2, 3)]), case([T(2), T(2), T(2)], dim=-1), case([T(), T()]), case([T(0)])],
    "split": [case(T(5, 2), 2), case(T(5, 2), [1, 4]), case(T(2, 4), 2, dim=1), case(T(0, 2), 3)],
    "chunk": [
        case(T(5, 2), 2),
        case(T(2, 4), 3, dim=1),
        case(T(4), 4),
        case(T(2, 6), 4, -1),
        case(T(0, 2), 3),
        case(T(4), 0),
        case(T(), 2),
        case(T(4), 2, 1),
    ],
    "unbind": [case(T(3, 2)), case(T(3, 2), -1), case(T(3, 0))],
    "narrow": [case(T(5, 2), 0, 1, 3), case(T(2, 4), -1, 2, 2), case(T(3), 0, -2, 1), case(T(3), 0, 3, 0)],
    "select": [case(T(3, 2), 0, 1), case(T(2, 3), -1, -2), case(T(3), 0, 0)],
    "tensor_split": [
        case(T(7, 2), 3),
        case(T(7), (1, 4)),
        case(T(2, 5), 2, 1),
        case(T(5), (-1, 9)),
        case(T(2, 3), (2, 1), -1),
        case(T(2), 3),
        case(T(3), 0),
        case(T(), 2),
    ],
    "tensor_split.tensor": [
        case(T(7, 2), T(values=3, dtype="int64")),
        case(T(7), T(2, values=[1, 4], dtype="int64")),
        case(T(2, 5), T(values=2, dtype="int64"), 1),
        case(T(4), T(1, values=[1.0], dtype="float32", constant=True)),
        case(T(4), T(1, 1, values=[[1]], dtype="int64")),
    ],
    "hsplit": [case(T(2, 4), 2), case(T(5), (1, 3)), case(T(4), 2), case(T(2, 3), 2), case(T(), 1)],
    "vsplit": [case(T(4, 2), 2), case(T(4, 2), (1, 3)), case(T(3, 2), 2), case(T(4), 2)],
    "dsplit": [case(T(1, 2, 4), 2), case(T(1, 2, 4), (1, 3)), case(T(2, 4), 2)],
    "fliplr": [case(T(2, 3)), case(T(0, 2)), case(T(3))],
    "flipud": [case(T(2, 3)), case(T(3)), case(T())],
    "ravel": [case(T(2, 3)), case(T()), case(T(0, 2))],
    "atleast_1d": ALONE,
    "atleast_1d.tensors": SEVERAL,
    "atleast_2d": ALONE,
    "atleast_2d.tensors": SEVERAL,
    "atleast_3d": ALONE,
    "atleast_3d.tensors": SEVERAL,
}
