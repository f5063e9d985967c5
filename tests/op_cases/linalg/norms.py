"""Cases of the ops in ``ops/linalg/norms.py``."""

from __future__ import annotations

import math

from ..stand_ins import Cases, T, case, reduction

SOME_ZEROS = T(2, 3, values=[[0.0, 1.0, -2.0], [3.0, 0.0, 3.0]])

ORDERS = (0, 0.5, 1, 1.5, 2, 2.5, 3, math.inf, -math.inf, -1)

NANS = T(2, 3, values=[[1.0, math.nan, 2.0], [math.nan, math.nan, math.nan]])

AREAS = [case(T(5)), case(T(2, 4), dx=0.5, dim=0), case(T(2, 4), dim=-1), case(T(3, dtype="bool"))]


CASES: Cases = {
    "cdist": [
        case(T(3, 2), T(4, 2)),
        case(T(2, 3, 2), T(1, 4, 2), p=1.0),
        case(T(3, 2), T(4, 2), 3.0, "donot_use_mm_for_euclid_dist"),
        case(T(3, 2), T(4, 2), float("inf")),
        case(T(2, 1, 3, 2), T(3, 4, 2)),
        case(T(3, 2), T(4, 2), -1.0),
        case(T(3, 2), T(4, 3)),
        case(T(3), T(3)),
    ],
    "pdist": [
        case(T(4, 2)),
        case(T(4, 2), 1.0),
        case(T(3, 5), 3),
        case(T(3, 2), float("inf")),
        case(T(1, 2)),
        case(T(0, 2, constant=True)),
        case(T(4, 2), -1),
        case(T(4)),
    ],
    "linalg_vector_norm": [
        *reduction(),
        *[case(T(2, 4), ord, -1) for ord in ORDERS],
        *[case(SOME_ZEROS, ord, 1) for ord in ORDERS],
        *[case(T(2, 3, values=[[0.0] * 3, [0.0, 1.0, 2.0]]), ord, dim=1) for ord in ORDERS],
        *[case(T(0, 3), ord, 0) for ord in (0.5, 3, math.inf, -1)],
        case(T(0, 3), math.inf, 1),
        case(T(0), -math.inf),
        case(T(), 3, 0),
        case(T(2, 3, constant=True), dtype="float64"),
        case(T(2, 3, dtype="float64"), dtype="float32"),
        case(T(2, 3), dtype="int64"),
        case(T(2, 3), 2, (0, 0)),
    ],
    "norm": [
        *reduction(),
        *[case(T(2, 4), p, 1) for p in ("fro", 0, 1, 3, math.inf)],
        case(T(2, 3), "fro", (0, 1), True),
        case(T(2, 3, 2), "fro", (0, 1, 2)),
        case(T(2, 3), 3, keepdim=True, dtype="float64"),
        case(T(2, 3), "other"),
        case(T(values=[[3.0, 1.0], [0.5, 2.0]]), "nuc"),
        case(T(values=[[3.0, 1.0], [0.5, 2.0]]), "nuc", (1, 0), True),
        case(T(2, 3, 2), "nuc"),
        case(T(2), "nuc"),
        case(T(2, 3), "nuc", 0),
        case(T(2, 3), None, 1),
        case(T(0, 3), math.inf),
        case(SOME_ZEROS, 2, 0),
    ],
    "linalg_norm": [
        *reduction(),
        case(T(2, 3, 4), None, (0, 1)),
        case(T(3), 3),
        case(T(2, 3), 1),
        case(T(2, 3), 1, 1),
        case(T(2, 3, 4), math.inf, (0, 2), True),
        case(T(2, 3), ord=2, dim=0, dtype="float64"),
        case(T(2, 3), 3),
        case(T(2, 3, 4), 2),
        case(T(2, 3, 4), 2, (0, 1, 2)),
        case(T(2, 3), dtype="int64"),
    ],
    "linalg_norm.word": [
        case(T(2, 3), "fro"),
        case(T(2, 3, 4), "fro", (0, 2), True),
        case(T(2, 3, 4), "fro"),
        case(T(2, 2), "fro", 0),
        case(T(2, 3), "other"),
        case(T(3), "fro"),
    ],
    "nansum": [
        *reduction(),
        case(NANS),
        case(NANS, 1),
        case(NANS, 0, True, dtype="float64"),
        case(T(2, 3, dtype="int64"), 1),
        case(T(2, 3, dtype="bool")),
        case(T(2, 3), ()),
    ],
    "nanmean": [
        *reduction(),
        case(NANS),
        case(NANS, 1, True),
        case(T(2, 3, constant=True), dtype="float64"),
        case(T(0)),
    ],
    "count_nonzero": [
        case(SOME_ZEROS),
        case(SOME_ZEROS, 1),
        case(SOME_ZEROS, (0, -1)),
        case(SOME_ZEROS, dim=()),
        case(T(2, 3, dtype="bool"), 0),
        case(NANS, 1),
        case(T(), 0),
        case(T(0, 3), 0),
        case(T(3), 1),
        case(T(3), (0, 0)),
    ],
    "sum_to_size": [
        case(T(2, 3), (1, 3)),
        case(T(2, 3), (3,)),
        case(T(2, 3), ()),
        case(T(2, 3), (2, 3)),
        case(T(2, 3), (2,)),
    ],
    "renorm": [
        case(T(2, 3), 2, 0, 1),
        case(T(2, 3, 2), 1, -1, 0.5),
        case(T(2, 3), 2.0, 1, 100.0),
        case(T(2, 3), float("inf"), 0, 0.5),
        case(T(2), 2, 0, 1),
        case(T(2, 2), -1, 0, 1),
        case(T(2, 2), 2, 0, -1),
    ],
    "diagflat": [case(T(2)), case(T(2, 2), 1), case(T(), -1), case(T(0))],
    "vander": [
        case(T(3, constant=True)),  # beyond two columns, torch does not differentiate what it has written in place
        case(T(3, constant=True), 2),
        case(T(3, constant=True), 4, True),
        case(T(3), N=0),
        case(T(3, dtype="int64"), 3),
        case(T(0)),
        case(T(2, 2)),
        case(T(2), -1),
    ],
    "cumulative_trapezoid.dx": AREAS,
    "cumulative_trapezoid": [case(T(4), T(4)), case(T(2, 4), T(2, 4)), case(T(4, 2), T(4), dim=0), case(T(2, 4), T(3))],
}
