"""Cases of the ops in ``ops/nn/margin_loss.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case

SIGNS = T(2, 3, values=[[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], constant=True)

REDUCTIONS = ("mean", "sum", "none")

LABELS = T(2, 4, dtype="int64", values=[[0, 2, -1, 1], [3, -1, 0, 0]])


CASES: Cases = {
    "pairwise_distance": [
        case(T(3, 4), T(3, 4)),
        case(T(3, 4), T(4), 1.0, keepdim=True),
        case(T(4), T(3, 4), 3, 0.1),
        case(T(4), T(4)),
        case(T(3, 4), T(2, 4)),
    ],
    "hinge_embedding_loss": [
        *[case(T(2, 3), SIGNS, 0.5, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(3, values=[1.0, -1.0, 0.0], constant=True)),
        case(T(2, 3), SIGNS, reduction="median"),
    ],
    "margin_ranking_loss": [
        *[case(T(2, 3), T(2, 3), SIGNS, 0.3, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(2, 3), T(3, constant=True)),
    ],
    "soft_margin_loss": [
        *[case(T(2, 3), SIGNS, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(3, values=[1.0, -1.0, 1.0], constant=True)),
    ],
    "multilabel_soft_margin_loss": [
        *[case(T(2, 3), T(2, 3, low=0.0, high=1.0), reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(2, 3, low=0.0, high=1.0), T(3, low=0.5, constant=True)),
    ],
    "multi_margin_loss": [
        *[case(T(4, 3), I(4, high=3), reduction=how) for how in REDUCTIONS],
        case(T(4, 3), I(4, high=3), 2, 0.5, T(3, low=0.5, constant=True)),
        case(T(3), T(values=1, dtype="int64")),
        case(T(), T(values=0, dtype="int64")),
        case(T(), T(1, values=[0], dtype="int64"), reduction="none"),
        case(T(4, 3), I(3, high=3)),
        case(T(4, 3), I(4, high=3), 3),
    ],
    "multilabel_margin_loss": [
        *[case(T(2, 4), LABELS, reduction=how) for how in REDUCTIONS],
        case(T(3), T(3, dtype="int64", values=[1, -1, 0])),
        case(T(3), T(3, dtype="int64", values=[1, 1, 2])),
        case(T(), T(dtype="int64", values=0)),
        case(T(2, 3), T(3, dtype="int64", values=[1, -1, 0])),
        case(T(2, 3), T(2, 3, dtype="float32", constant=True)),
        case(T(2, 2, 3), T(2, 2, 3, dtype="int64")),
    ],
    "triplet_margin_loss": [
        *[case(T(3, 4), T(3, 4), T(3, 4), reduction=how) for how in REDUCTIONS],
        case(T(3, 4), T(3, 4), T(3, 4), 0.5, 1, swap=True),
        case(T(4), T(4), T(4)),
        case(T(3, 4), T(3, 4), T(4)),
        case(T(3, 4), T(3, 4), T(3, 4), 0.0),
    ],
}
