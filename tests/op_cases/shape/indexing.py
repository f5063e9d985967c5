"""Cases of the ops in ``ops/shape/indexing.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, M, T, case

REDUCERS = ("sum", "mean", "prod", "amax", "amin")

SLICED = [
    case(T(5, 3), (1,)),
    case(T(5, 3), (-1, 2)),
    case(T(5, 3), (("slice", 1, 4, 2),)),
    case(T(5, 3), (("slice", None, None, None), ("slice", -2, None, None))),
    case(T(5, 3), (None, "...", 0)),
    case(T(2, 3, 4), (1, "...", None, ("slice", 3, 1, None))),
    case(T(), (None,)),
    case(T(0, 3), (("slice", 0, 5, None), 1)),
    case(T(5, 3), (7,)),
    case(T(5, 3), (0, 0, 0)),
]

INDEXED = [
    case(T(5, 3), [I(4, high=5)]),
    case(T(5, 3), [None, I(2, 2, high=3)]),
    case(T(5, 3), [I(4, high=5), I(4, high=3)]),
    case(T(2, 3, 4), [I(2, 1, high=2), None, I(3, high=4)]),
    case(T(5, 3), [I(0, high=5)]),
]

PLACED = [
    case(T(5, 3), [I(4, high=5)], T(4, 3), True),
    case(T(5, 3), [I(4, high=5), I(4, high=3)], T(), True),
    case(T(5, 3), [T(3, values=[0, 2, 4], dtype="int64")], T(3, 3)),
    case(T(5, 3), [T(3, values=[0, -1, 2], dtype="int64")], T(3)),
]

ROWS = (T(3, 4), 0, T(3, values=[2, 0, 2], dtype="int64"), T(3, 4))

PLACES = [
    (T(3, 4), 1, T(3, 3, values=[[0, 3, 0], [1, 1, 1], [2, 0, 3]], dtype="int64"), T(3, 3)),
    (
        T(4, values=[1, 2, 0, 3]),
        -1,
        T(6, values=[0, 0, 2, 2, 1, 0], dtype="int64"),
        T(6, values=[1, 0, 3, 0, 2, 1]),
    ),
    (T(), 0, T(values=0, dtype="int64"), T()),
    (T(3), 0, I(0, high=3), T(0)),
    (T(2, 3), 0, T(1, 2, values=[[1, 0]], dtype="int64"), T(1, 2)),
]


CASES: Cases = {
    "getitem": SLICED,
    "index": INDEXED,
    "index_put": PLACED,
    "index_put.masks": [
        case(T(5, 3), [M(5)], T()),
        case(T(5, 3), [M(5, 3)], T(), True),
        case(T(2, 3), [T(2, values=[True, False], dtype="bool")], T(3)),
    ],
    "index_select": [case(T(3, 4), 0, I(5, high=3)), case(T(3, 4), -1, I(2, high=4)), case(T(3), 0, I(0, high=3))],
    "masked_fill": [
        case(T(2, 3), M(2, 3), 1.5),
        case(T(2, 3), M(3), T()),
        case(T(3), M(2, 1), 0.0),
        case(T(0, 3), M(3), 1.0),
    ],
    "nonzero": [case(T(2, 3, dtype="bool")), case(T(2, 3)), case(T(0, 3)), case(T())],
    "index_reduce": [
        *[case(*ROWS, reduce) for reduce in ("prod", "mean", "amax", "amin")],
        *[case(*ROWS, reduce, include_self=False) for reduce in ("prod", "mean", "amax", "amin")],
        case(T(3, 4), -1, T(2, values=[1, 3], dtype="int64"), T(3, 2), "amax"),
        case(T(3), 0, I(2, high=3), T(2), "sum"),
        case(T(), 0, T(1, values=[0], dtype="int64"), T(), "mean"),
        case(T(), 0, T(values=0, dtype="int64"), T(), "amax"),
    ],
    "masked_select": [
        case(T(2, 3), M(2, 3)),
        case(T(2, 3), M(3)),
        case(T(3), M(2, 1)),
        case(T(), M()),
        case(T(0, 3), M(3)),
        case(T(3), M(2)),
        case(T(3), I(3, high=2)),
    ],
    "masked_scatter": [
        case(T(2, 3), M(2, 3), T(2, 3)),
        case(T(2, 3), M(3), T(8)),
        case(T(3), T(2, 1, values=[[0], [1]], dtype="bool"), T(3)),
        case(T(2), T(2, values=[0, 0], dtype="bool"), T(0)),
        case(T(), T(values=True, dtype="bool"), T()),
        case(T(0, 3), M(3), T(2)),
        case(T(2), M(2), T(2, dtype="bool")),
        case(T(2), I(2, high=2), T(2)),
    ],
    "take": [
        case(T(3, 4), T(2, 2, values=[[0, -1], [11, 0]], dtype="int64")),
        case(T(), I(2, high=1)),
        case(T(3), I(high=3)),
        case(T(0), I(0, high=1)),
        case(T(0), I(1, high=1)),
        case(T(2), T(1, dtype="bool")),
    ],
    "take_along_dim": [
        case(T(2, 3), T(2, values=[1, 4], dtype="int64")),
        case(T(2, 3), T(1, 4, values=[[1, 2, 0, 1]], dtype="int64"), 1),
        case(T(1, 3), I(2, 2, high=3), -1),
        case(T(2, 3), T(1, 2, values=[[-1, 2]], dtype="int64"), 1),
        case(T(2, 3), I(2, high=3), 1),
        case(T(2, 3), I(3, 2, high=3), 1),
        case(T(2, 3), T(2, 2, dtype="bool"), 1),
        case(T(2, 3), I(2, 0, high=3), dim=1),
    ],
    "scatter_reduce": [
        *[case(*args, reduce) for args in PLACES for reduce in REDUCERS],
        *[case(*args, reduce, include_self=False) for args in PLACES for reduce in REDUCERS],
        case(T(2, 3), 0, T(1, 2, values=[[1, 0]], dtype="int64"), T(2, 3), "sum"),
        case(T(3), 0, I(2, high=3), T(2, dtype="bool"), "sum"),
    ],
}
