"""Cases of the ops in ``ops/nn/classification_loss.py``."""

from __future__ import annotations

from ..stand_ins import Cases, I, T, case


def chances(*shape: int) -> T:
    return T(*shape, low=0.1, high=0.9)


COUNTS = T(2, 3, values=[[0.0, 1.0, 2.0], [3.0, 0.0, 5.0]], constant=True)

CLASSES = [
    case(T(4, 3), I(4, high=3)),
    case(T(4, 3), I(4, high=3), reduction="sum"),
    case(T(4, 3), I(4, high=3), reduction="none"),
    case(T(4, 3), I(4, high=3), T(3, low=0.5, high=2, constant=True)),
    case(T(4, 3), I(4, high=3), T(3, low=0.5, high=2)),
    case(T(4, 3), T(4, values=[0, 1, 1, 2], dtype="int64"), ignore_index=1),
    case(T(4, 3), T(4, values=[0, 1, 1, 2], dtype="int64"), ignore_index=0),
    case(T(4, 3), T(4, values=[0, 1, 1, 2], dtype="int64"), ignore_index=2),
    *[
        case(T(4, 3), T(4, values=[0, 1, 1, 2], dtype="int64"), weight, ignore_index=2, reduction=how)
        for weight in (T(3, values=[0, 1, 0.5], constant=True), T(3, values=[0, 0, 0], constant=True))
        for how in ("none", "mean", "sum")
    ],
    case(T(3), T(values=2, dtype="int64")),
    case(T(2, 3, 4), I(2, 4, high=3)),
    case(T(1, 3, 2), T(values=[[0, 1]], dtype="int64"), T(3, values=[0, 1, 0.5], constant=True), reduction="none"),
    case(T(0, 3), I(0, high=3), reduction="sum"),
]


CASES: Cases = {
    "poisson_nll_loss": [
        *[case(T(2, 3), COUNTS, reduction=how) for how in ("mean", "sum", "none")],
        case(T(2, 3, low=0.1), COUNTS, False, True),
        case(T(2, 3), COUNTS, full=True, eps=0.1),
        case(T(2, 3), COUNTS, reduction="median"),
    ],
    "gaussian_nll_loss": [
        *[case(T(2, 3), T(2, 3), T(2, 3, low=0.1), reduction=how) for how in ("mean", "sum", "none")],
        case(T(2, 3), T(2, 3), T(2, low=0.1), full=True),
        case(T(2, 3), T(2, 3), T(2, 1, low=0.1)),
        case(T(2, 3), T(2, 3), 0.5),
        case(T(2, 3), T(2, 3), T(3, low=0.1)),
    ],
    "nll_loss": CLASSES,
    "cross_entropy": [
        *CLASSES[:-1],
        case(T(4, 3), I(4, high=3), label_smoothing=0.2),
        case(T(4, 3), I(4, high=3), T(3, low=0.5, high=2, constant=True), label_smoothing=0.1),
        case(T(4, 3), T(4, 3, low=0.1, high=1.0), T(3, low=0.5, high=2)),
        case(T(4, 3), T(4, 3, low=0.1, high=1.0), label_smoothing=0.1),
        case(T(4, 3), T(4, 3, low=0.1, high=1.0)),
        case(T(4, 3), T(4, 3, low=0.1, high=1.0), reduction="sum"),
        case(T(4, 3, low=-300.0, high=300.0), I(4, high=3)),
        *[
            case(T(2, 3, 4), target, T(3, low=0.5, constant=True), reduction=how, label_smoothing=0.2, **options)
            for how in ("none", "mean", "sum")
            for target, options in (
                (T(2, 3, 4, low=0.1, high=1.0), {}),
                (T(values=[[0, 1, 2, 1], [2, 2, 0, 1]], dtype="int64"), {"ignore_index": 1}),
            )
        ],
        case(T(2, 3), T(2, 3, low=0.1, high=1.0), ignore_index=1),
        case(T(2, 3), T(2, 3, low=0.1, high=1.0), T(2, constant=True)),
        case(T(2, 3), I(2, high=3), T(2, constant=True)),
        case(T(2, 3), I(2, high=3), label_smoothing=1.5),
        case(T(2, 3), I(3, high=3)),
        case(T(3), T(values=1, dtype="int64"), label_smoothing=0.1),
        case(T(3), T(3, low=0.1, high=1.0)),
    ],
    "binary_cross_entropy": [
        case(chances(2, 3), chances(2, 3)),
        case(chances(2, 3), chances(2, 3), reduction="sum"),
        case(chances(2, 3), chances(2, 3), T(3, low=0.5, constant=True), reduction="none"),
        case(chances(2, 3), chances(2, 3), T(2, 1, low=0.5, constant=True)),
        case(T(4, values=[0.0, 1.0, 0.0, 1.0], constant=True), T(4, values=[0.0, 1.0, 1.0, 0.0], constant=True)),
        case(chances(), chances()),
        case(chances(0, 3), chances(0, 3), reduction="sum"),
        case(chances(0, 3), chances(0, 3)),
        case(chances(2, 3), chances(3)),
        case(chances(2, 3), chances(2, 3), T(4, 2, 3, constant=True)),
        case(chances(2, 3), chances(2, 3), T(2, constant=True)),
        case(chances(2, 3), chances(2, 3), T(3)),
    ],
    "binary_cross_entropy_with_logits": [
        case(T(2, 3), chances(2, 3)),
        case(T(2, 3), chances(2, 3), reduction="sum"),
        case(T(2, 3), chances(2, 3), T(3, constant=True), reduction="none"),
        case(T(2, 3), chances(2, 3), pos_weight=T(3, low=0.5, constant=True)),
        case(T(2, 3), chances(2, 3), T(2, 1, constant=True), pos_weight=T(3, low=0.5, constant=True)),
        case(T(3, values=[-300.0, 0.0, 300.0]), T(3, values=[1.0, 0.0, 0.0]), reduction="none"),
        case(T(), chances()),
        case(T(0, 3), chances(0, 3)),
        case(T(2, 3), chances(3)),
        case(T(2, 3), chances(2, 3), T(2, constant=True)),
        case(T(2, 3), chances(2, 3), pos_weight=T(2, constant=True)),
        case(T(2, 3), chances(2, 3), T(3)),
    ],
}
