"""Cases of the ops in ``ops/nn/regression_loss.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case


def chances(*shape: int) -> T:
    return T(*shape, low=0.1, high=0.9)


LOGS = T(2, 3, low=-3.0, high=-0.1)

SIDES = T(3, values=[1, -1, 1], dtype="int64")

WEIGHED = [
    *[case(T(2, 3), T(2, 3), reduction=how, weight=T(2, 3, low=0.5)) for how in ("mean", "sum", "none")],
    case(T(2, 3), T(2, 3), weight=T(2, 1)),
    case(*[T(2, 3, dtype="float32")] * 2, reduction="median", weight=T(2, 3, dtype="float32")),
]

PAIRS = [
    case(T(2, 3), T(2, 3)),
    case(T(2, 3), T(2, 3), reduction="sum"),
    case(T(2, 3), T(3), reduction="none"),
    case(T(3, values=[1.0, 0.0, -1.0]), T(3, values=[1.0, 2.0, -3.0]), reduction="none"),
    case(T(), T()),
    case(T(0, 3), T(0, 3), reduction="sum"),
    case(T(0, 3), T(0, 3)),
    case(T(2, 3), T(2, 2)),
    case(T(2, 3), T(2, 3), reduction="median"),
    case(T(2, 3, dtype="float32", constant=True), T(2, 3, constant=True)),
]

SIGNS = T(2, 3, values=[[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], constant=True)

REDUCTIONS = ("mean", "sum", "none")

LABELS = T(2, 4, dtype="int64", values=[[0, 2, -1, 1], [3, -1, 0, 0]])


CASES: Cases = {
    "kl_div": [
        case(LOGS, chances(2, 3)),
        case(LOGS, chances(2, 3), reduction="batchmean"),
        case(LOGS, chances(3), reduction="none"),
        case(LOGS, T(2, 3, low=-3.0, high=-0.1), reduction="sum", log_target=True),
        case(T(2), T(2, values=[0.0, 1.0], constant=True), reduction="none"),
        case(T(), chances(), reduction="batchmean"),
        case(T(0, 3), chances(0, 3), reduction="sum"),
        case(LOGS, chances(2, 3), reduction="median"),
    ],
    "cosine_similarity": [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3), dim=-1),
        case(T(2, 3, 4), T(3, 1), dim=0),
        case(T(3), T(3), dim=0),
        case(T(3), T(3)),
        case(T(), T(), dim=0),
        case(T(2, 0), T(2, 0)),
        case(T(0, 3), T(0, 3)),
        case(T(2, 3), T(4, 3)),
        case(T(2, 2, values=[[0.0, 0.0], [3.0, 4.0]], constant=True), T(2, 2)),
    ],
    "cosine_embedding_loss": [
        case(T(3, 4), T(3, 4), SIDES),
        case(T(3, 4), T(3, 4), SIDES, margin=0.3, reduction="none"),
        case(T(4), T(4), T(values=-1, dtype="int64"), -0.5, reduction="sum"),
        case(T(3, 4), T(3, 4), T(values=1, dtype="int64")),
        case(T(4), T(4), SIDES),
        case(T(3, 4), T(3, 4), I(3, 1, high=2)),
        case(T(2, 0), T(2, 0), T(2, values=[1, -1], dtype="int64"), reduction="sum"),
    ],
    "l1_loss": [*PAIRS, *WEIGHED],
    "mse_loss": [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(2, 3), reduction="sum"),
        case(T(3), T(3), reduction="none"),
        case(T(), T()),
        *WEIGHED,
    ],
    "smooth_l1_loss": [
        *PAIRS,
        case(T(2, 3), T(2, 3), beta=0.5),
        case(T(3), T(3, values=[0.5, 0.0, -3.0]), beta=0.0),
        case(T(2), T(2), beta=-1.0),
    ],
    "huber_loss": [*PAIRS, *WEIGHED, case(T(2, 3), T(2, 3), delta=0.5), case(T(2), T(2), delta=0.0)],
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
