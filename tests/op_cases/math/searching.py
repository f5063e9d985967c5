"""Cases of the ops in ``ops/math/searching.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, I, T, case

ROWS = T(4, 2, values=[[1, 2], [0, 5], [1, 2], [0, 2]], constant=True)

RUNS = T(6, values=[1, 1, 2, 2, 3, 1], constant=True)

STEPS = T(4, values=[1.0, 3.0, 3.0, 7.0])


CASES: Cases = {
    "repeat_interleave": [
        case(T(2, 3), 2),
        case(T(2, 3), 3, -1),
        case(T(2, 3), 0, dim=0),
        case(T(), 2),
        case(T(0, 3), 2, 1),
        case(T(2, 3), 2, 0, output_size=4),
        case(T(2, 3), 2, 0, output_size=5),
        case(T(2, 3), -1),
        case(T(2, 3), 2, 2),
        case(T(), 2, 0),
    ],
    "repeat_interleave.tensor": [
        case(T(2, 3), T(2, values=[1, 2], dtype="int64"), 0),
        case(T(2, 3), T(3, values=[0, 2, 1], dtype="int64"), -1, output_size=3),
        case(T(4), T(4, values=[0, 1, 0, 2], dtype="int64")),
        case(T(2, 3), T(1, values=[2], dtype="int64"), 1, output_size=6),
        case(T(2, 3), T(values=2, dtype="int64"), 1),
        case(T(), T(1, values=[2], dtype="int64")),
        case(T(2, 3), T(2, values=[1, 2], dtype="int64")),
        case(T(2, 3), T(1, 1, values=[[2]], dtype="int64"), 0),
    ],
    "repeat_interleave.counts": [
        case(T(3, values=[2, 0, 1], dtype="int64")),
        case(T(2, values=[1, 2], dtype="int32"), output_size=3),
        case(T(0, dtype="int64")),
        case(T(1, 1, values=[[2]], dtype="int64")),
        case(T(1, values=[1], dtype="float64", constant=True)),
    ],
    "_unique2": [
        case(T(2, 3, high=1, constant=True)),
        case(T(5, values=[3, 1, 3, 2, 1], constant=True), True, True, True),
        case(T(3, values=[1, float("nan"), float("nan")], constant=True), return_counts=True),
    ],
    "unique_dim": [case(ROWS, 0, True, True, True), case(ROWS, 1, return_inverse=True, return_counts=True)],
    "unique": [
        case(T(5, values=[3, 1, 3, 2, 1], constant=True)),
        case(T(2, 3, high=1, constant=True), return_inverse=True),
        case(T(2, 3, high=1, constant=True), return_counts=True),
        case(T(constant=True), sorted=False, return_inverse=True, return_counts=True),
        case(T(0, constant=True), return_inverse=True, return_counts=True),
        *[case(ROWS, dim=dim, return_inverse=True, return_counts=True) for dim in (0, -1)],
        case(T(2, 0, constant=True), dim=0),
        case(T(0, 2, constant=True), dim=0),
        case(T(constant=True), dim=0),
        case(T(2, constant=True), dim=1),
    ],
    "bincount": [
        case(T(4, values=[0, 3, 1, 3], dtype="int64")),
        case(T(2, values=[0, 1], dtype="int64"), minlength=4),
        case(T(3, values=[2, 0, 2], dtype="int64"), T(3, constant=True)),
        case(T(0, dtype="int64"), minlength=2),
        case(T(2, values=[0, 1], dtype="int64"), minlength=-1),
        case(T(2, 2, low=0, dtype="int64")),
        case(T(3, values=[2, 0, 2], dtype="int64"), T(2, constant=True)),
        case(T(2, dtype="bool")),
    ],
    "isin": [
        case(I(2, 3, high=4), I(3, high=4)),
        case(I(5, high=4), I(2, 2, high=4), invert=True),
        case(I(5, high=4), 2),
        case(2, I(5, high=4)),
        case(T(3, values=[1.0, 2.0, 3.0]), T(2, values=[2.0, 5.0]), assume_unique=True),
        case(T(2), T(0)),
    ],
    "bucketize": [
        case(T(2, 3, low=0, high=8), T(3, values=[1.0, 3.0, 7.0])),
        case(T(3, values=[1.0, 3.0, 4.0]), T(3, values=[1.0, 3.0, 7.0]), right=True),
        case(2.0, T(3, values=[1.0, 3.0, 7.0]), out_int32=True),
        case(T(2), T(2, 2)),
    ],
    "cartesian_prod": [case(T(2), T(3)), case(T(3)), case(T(2), T(0)), case(T(2), T(1), T(2)), case(T(2, 2))],
    "combinations": [
        case(T(4)),
        case(T(4), 3),
        case(T(3), 2, True),
        case(T(3), r=1),
        case(T(2), 3),
        case(T(0)),
        case(T(2, 2)),
        case(T(3), -1),
    ],
    "argwhere": [case(T(2, 3, dtype="bool")), case(T(0, 3))],
    "nonzero.as_tuple": [
        case(T(2, 3, dtype="bool"), as_tuple=True),
        case(T(0, 3), as_tuple=True),
        case(T(2), as_tuple=False),
    ],
    "where.condition": [case(T(2, 3, dtype="bool")), case(T(2, 3)), case(T())],
    "nonzero_static": [
        case(T(3, values=[0, 1, 1], dtype="int64"), size=4),
        case(T(3, values=[0, 1, 1], dtype="int64"), size=1, fill_value=7),
        case(T(2, 2, values=[[0, 1], [1, 0]], dtype="int64"), size=3),
        case(T(2), size=-1),
    ],
    "unique_consecutive": [
        case(RUNS),
        case(RUNS, return_inverse=True, return_counts=True),
        case(T(2, 3, values=[[1, 1, 2], [2, 2, 1]], constant=True), return_inverse=True),
        case(T(3, 2, values=[[1, 2], [1, 2], [0, 2]], constant=True), return_counts=True, dim=0),
        case(T(0, constant=True), return_counts=True),
    ],
    "searchsorted": [
        case(STEPS, T(2, 3, low=0, high=8)),
        case(STEPS, T(5, values=[3.0, 1.0, 0.0, 9.0, 7.0])),
        case(STEPS, T(5, values=[3.0, 1.0, 0.0, 9.0, 7.0]), right=True),
        case(STEPS, T(2, values=[3.0, 1.0]), side="right"),
        case(STEPS, T(2, values=[3.0, 1.0]), side="left", right=True),
        case(STEPS, T(2), side="other"),
        case(STEPS, 3),
        case(STEPS, T(), out_int32=True),
        case(STEPS, T(2, dtype="int64")),
        case(T(2, 3, values=[[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]]), T(2, 4, low=-1, high=6)),
        case(T(1, 3), T(2, 1)),
        case(T(1, 3), 2.0),
        case(T(3, values=[3.0, 1.0, 2.0]), T(2), sorter=T(3, values=[1, 2, 0], dtype="int64")),
        case(T(3), T(2), sorter=T(2, values=[1, 2], dtype="int64")),
        case(T(3), T(2), sorter=T(3, dtype="float32", constant=True)),
        case(T(3, values=[1.0, 2.0, math.nan]), T(3, values=[math.nan, 2.0, 5.0])),
        case(T(3, dtype="bool"), T(2, dtype="bool")),
        case(T(0), T(2)),
        case(STEPS, T(0)),
    ],
}
