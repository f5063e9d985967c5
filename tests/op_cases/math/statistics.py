"""Cases of the ops in ``ops/math/statistics.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case
from .sorting import NANS, ROWS

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")

GAPS = T(2, 4, values=[[math.nan, 1.0, 3.0, 2.0], [4.0, math.nan, 7.0, math.nan]])

OBSERVED = T(2, 3, values=[[1.0, 2.0, 4.0], [2.0, 0.0, 1.0]])


CASES: Cases = {
    "quantile": [
        case(T(2, 3), 0.3),
        case(T(5), 1),
        case(T(2, 5), 0.6, 1),
        case(T(3, 4, 2), 0.4, -2, True),
        case(T(2, 3), 0.5, keepdim=True),
        case(T(11), 0.7),
        case(T(2, 5), T(3, values=[0.9, 0.2, 0.5]), 1),
        case(T(2, 5), T(low=0.1, high=0.9), dim=0, keepdim=True),
        case(T(2, 5), T(2, low=0.1, high=0.9), keepdim=True),
        case(T(2, 5), T(0), 1),
        *[case(T(2, 4), 0.4, 1, interpolation=how) for how in (*INTERPOLATIONS, "other")],
        *[case(T(2, 4), T(2, low=0.1, high=0.9), 1, interpolation=how) for how in INTERPOLATIONS],
        case(T(2, 3, values=[[1.0, math.nan, 2.0], [3.0, 1.0, 2.0]]), T(2, values=[0.2, 0.7]), 1),
        case(T(), 0.5),
        case(T(), 0.5, 0, True),
        case(T(0, 3), 0.5),
        case(T(3), 1.5),
        case(T(3), 0.5, 2),
        case(T(3), T(1, 1)),
        case(T(3, dtype="float32"), T(2, dtype="float64", low=0.0, high=1.0)),
    ],
    "nanquantile": [
        case(T(2, 3), 0.3),
        case(T(3, 4, 2), 0.4, -2, True),
        case(GAPS, 0.3),
        case(GAPS, 0.6, 1, True),
        case(GAPS, T(3, values=[0.9, 0.2, 0.5]), 1),
        *[case(GAPS, 0.4, 1, interpolation=how) for how in INTERPOLATIONS],
        case(T(2, 2, values=[[math.nan, math.nan], [1.0, math.nan]]), 0.5, 1),
        case(T(), 0.5),
        case(T(0, 3), 0.5),
        case(T(3), 1.5),
    ],
    "cov": [
        case(OBSERVED),
        case(T(4)),
        case(T(2, 3, dtype="int64")),
        case(OBSERVED, correction=0),
        case(OBSERVED, fweights=T(3, values=[1, 2, 3], dtype="int64")),
        case(OBSERVED, aweights=T(3, values=[0.1, 0.2, 0.3], constant=True)),
        case(
            OBSERVED,
            correction=0,
            fweights=T(3, values=[1, 2, 3], dtype="int64"),
            aweights=T(3, values=[0.1, 0.2, 0.3], constant=True),
        ),
        case(T(1, 2, 3)),
        case(T(3, dtype="bool")),
        case(OBSERVED, fweights=T(2, values=[1, 2], dtype="int64")),
    ],
    "corrcoef": [case(OBSERVED), case(T(4)), case(T(2, 3, dtype="int64")), case(T(1, 1, 1)), case(T())],
    "histc": [
        case(T(9, constant=True), 4, -1, 1),
        case(T(3, 3, constant=True), 5),
        case(T(3, values=[1.0, 1.0, 1.0], constant=True), 3),
        case(T(4, values=[0.0, 1.0, 2.0, 3.0], constant=True), bins=3, min=0, max=3),
        case(T(0, constant=True), 3),
        case(T(2, dtype="int64"), 3),
        case(T(2, constant=True), 0),
        case(T(2, constant=True), 3, 2, 1),
    ],
    "histogram": [
        case(T(9, constant=True), 4, range=(-1.0, 1.0)),
        case(T(3, 3, constant=True), 5),
        case(T(9, constant=True)),
        case(T(3, constant=True), 4, weight=T(3, constant=True), density=True, range=(0.0, 3.0)),
        case(T(3, dtype="int64"), 3),
        case(T(3, constant=True), 0),
        case(T(3, constant=True), 3, range=(3.0, 1.0)),
        case(T(3, constant=True), 3, range=(3.0,)),
        case(T(3, constant=True), 3, weight=T(2, constant=True)),
    ],
    "histogram.edges": [
        case(T(9, constant=True), T(4, values=[-2.0, 0.0, 0.5, 2.0], constant=True)),
        case(T(9, constant=True), T(4, values=[-2.0, 0.0, 0.5, 2.0], constant=True), density=True),
        case(T(9, constant=True), T(2, 2, constant=True)),
    ],
    "nanmedian": [
        case(T(2, 3)),
        case(T(4, values=[1.0, math.nan, 3.0, 2.0])),
        case(T(2, values=[math.nan, math.nan], constant=True)),
        case(T(3, dtype="int64")),
    ],
    "nanmedian.dim": [*ROWS, case(NANS, 0)],
    "msort": [case(T(3)), case(T(2, 3)), case(T()), case(T(0, 2))],
}
