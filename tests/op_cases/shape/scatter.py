"""Cases of the ops in ``ops/shape/scatter.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case

SCATTERS = [
    case(T(3, 4), 1, T(3, 2, values=[[0, 3], [1, 2], [2, 0]], dtype="int64"), T(3, 2)),
    case(T(3, 4), 0, T(1, 4, values=[[0, 2, 1, 0]], dtype="int64"), T(2, 4)),
    case(T(5), -1, T(3, values=[4, 0, 2], dtype="int64"), T(3)),
    case(T(), 0, T(1, values=[0], dtype="int64"), T(1)),
    case(T(), 0, T(values=0, dtype="int64"), T()),
]


CASES: Cases = {
    "index_add": [
        case(T(3, 4), 0, T(3, values=[2, 0, 2], dtype="int64"), T(3, 4)),
        case(T(3, 4), -1, T(2, values=[1, 1], dtype="int64"), T(3, 2), alpha=2),
        case(T(3), 0, I(0, high=3), T(0)),
        case(T(), 0, T(values=0, dtype="int64"), T()),
        case(T(3), 0, T(values=2, dtype="int64"), T(1)),
        case(T(3, 4), 0, I(2, high=3), T(3, 4)),
        case(T(3, 4), 0, I(2, high=3), T(2)),
        case(T(3), 0, I(1, 2, high=3), T(2)),
        case(T(3), 0, I(1, high=3), T(1, dtype="bool")),
    ],
    "index_copy": [
        case(T(3, 4), 0, T(2, values=[2, 0], dtype="int64"), T(2, 4)),
        case(T(3, 4), -1, T(2, values=[1, 3], dtype="int64"), T(3, 2)),
        case(T(3), 0, I(0, high=3), T(0)),
        case(T(), 0, T(1, values=[0], dtype="int64"), T(1)),
        case(T(3), 0, T(values=2, dtype="int64"), T()),
        case(T(3, 4), 0, I(2, high=3), T(3, 4)),
        case(T(3, 4), 0, I(2, high=3), T(2)),
        case(T(3, 4), 0, I(2, high=3), T(2, 3)),
        case(T(3), 0, I(1, 2, high=3), T(2)),
    ],
    "index_fill": [
        case(T(3, 4), 0, T(2, values=[2, -1], dtype="int64"), 1.5),
        case(T(3, 4), -1, T(3, values=[1, 3, 1], dtype="int64"), T()),
        case(T(3), 0, I(0, high=3), T()),
        case(T(), 0, T(1, values=[0], dtype="int64"), 2),
        case(T(3), 0, T(values=2, dtype="int64"), T()),
        case(T(3), 0, I(1, high=3), T(1)),
        case(T(3), 0, I(1, 2, high=3), 1.0),
    ],
    "gather": [
        case(T(3, 4), 1, I(3, 2, high=4)),
        case(T(3, 4), 0, I(2, 3, high=3)),
        case(T(3), -1, I(5, high=3)),
        case(T(3, 4), 1, I(0, 2, high=4)),
        case(T(5), 0, T(0, dtype="bool")),
        case(T(5), 0, T(2, 0, dtype="int64")),
        case(T(), 0, I(1, high=0)),
        case(T(), 0, I(high=0)),
    ],
    "scatter": SCATTERS,
    "scatter.value": [case(T(3, 4), 1, T(3, 2, values=[[0, 3], [1, 2], [2, 0]], dtype="int64"), 1.5)],
    "scatter_add": [*SCATTERS, case(T(3, 4), 1, I(3, 6, high=4), T(3, 6))],
    "slice_scatter": [
        case(T(4, 2), T(2, 2), 0, 1, 3),
        case(T(4, 2), T(2, 2), 0, 0, 4, 2),
        case(T(4, 2), T(4, 2)),
        case(T(4, 2), T(2, 2), start=-2),
        case(T(2, 5), T(2, 2), -1, 3, 99),
        case(T(2, 5), T(2, 0), 1, 4, 2),
        case(T(4, 2), T(1, 2), 0, 1, 3),
        case(T(4, 2), T(2, 2), 0, 1, 3, -1),
    ],
    "select_scatter": [
        case(T(2, 3), T(3), 0, 1),
        case(T(2, 3), T(2), -1, -1),
        case(T(3), T(), 0, 0),
        case(T(2, 3), T(2), 0, 1),
        case(T(2, 3), T(3), 0, 5),
    ],
    "as_strided_scatter": [
        # Constant: where src was written, torch gives the input a gradient, and none elsewhere.
        case(T(3, 3, constant=True), T(2, 2), (2, 2), (1, 2)),
        case(T(3, 3, constant=True), T(2, 2), (2, 2), (1, 2), 1),
        case(T(3, 3), T(2), (2, 2), (1, 2)),
    ],
    "put": [
        case(T(2, 3), T(2, values=[4, 0], dtype="int64"), T(2)),
        case(T(2, 3), T(2, 2, values=[[4, 0], [-1, 2]], dtype="int64"), T(4)),
        case(T(3), T(2, values=[1, 1], dtype="int64"), T(2), True),
        case(T(3), T(2, values=[1, 0], dtype="int64"), T(2), accumulate=True),
        case(T(), T(1, values=[0], dtype="int64"), T()),
        case(T(3), I(0, high=3), T(0)),
        case(T(3), T(1, values=[0], dtype="int64"), T(2)),
        case(T(3), T(1, dtype="bool"), T(1)),
        case(T(3), T(1, values=[0], dtype="int64"), T(1, dtype="bool")),
    ],
    "fill_diagonal": [case(T(3, 3), 2), case(T(5, 3), 2), case(T(2, 4), 1.5), case(T(2, 2, 2), 1)],
}
