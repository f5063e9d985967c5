"""Losses that ask for a margin, and the distance that some of them measure. Formulas: torch.nn.functional's."""

from __future__ import annotations

from typing import Any

from ..cases import I, T, case
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType, ShapeMismatch
from ..params import Array, Bool, Int, Number, Str
from ..registry import composite
from ..specs import Size
from .loss import check_reduction, reduce_loss

# Distance ------------------------------------------------------------------------------------------------


@composite(
    functional=True,
    method=False,
    cases=[
        case(T(3, 4), T(3, 4)),
        case(T(3, 4), T(4), 1.0, keepdim=True),
        case(T(4), T(3, 4), 3, 0.1),
        case(T(4), T(4)),
        case(T(3, 4), T(2, 4)),
    ],
)
def pairwise_distance(F: Any, x1: Array, x2: Array, p: Number = 2.0, eps: Number = 1e-6, keepdim: Bool = False) -> Any:
    """The ``p``-norm of ``x1 - x2 + eps`` along the last dimension."""
    return F.norm(x1 - x2 + eps, p, (-1,), keepdim)


# Two sides -----------------------------------------------------------------------------------------------

SIGNS = T(2, 3, values=[[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], constant=True)
REDUCTIONS = ("mean", "sum", "none")


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(2, 3), SIGNS, 0.5, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(3, values=[1.0, -1.0, 0.0], constant=True)),
        case(T(2, 3), SIGNS, reduction="median"),
    ],
)
def hinge_embedding_loss(F: Any, input: Array, target: Array, margin: Number = 1.0, *, reduction: Str = "mean") -> Any:
    """The input where the target is 1, what it lacks of ``margin`` where it is -1."""
    check_reduction(reduction)
    lacking = F.to(F.clamp(margin - input, min=0), dtype=input.dtype)
    return reduce_loss(F, F.where(target == -1, 0, input) + F.where(target == 1, 0, lacking), reduction)


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(2, 3), T(2, 3), SIGNS, 0.3, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(2, 3), T(3, constant=True)),
    ],
)
def margin_ranking_loss(
    F: Any, input1: Array, input2: Array, target: Array, margin: Number = 0, *, reduction: Str = "mean"
) -> Any:
    """What the difference, in the direction that ``target`` gives, lacks of ``margin``."""
    check_reduction(reduction)
    if not input1.dim() == input2.dim() == target.dim():
        sizes = [repr(Size(x.shape)) for x in (input1, input2, target)]
        raise ShapeMismatch(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{sizes[0]}, input2: {sizes[1]}, target: {sizes[2]} "
        )
    return reduce_loss(F, F.clamp(-target * (input1 - input2) + margin, min=0), reduction)


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(2, 3), SIGNS, reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(3, values=[1.0, -1.0, 1.0], constant=True)),
    ],
)
def soft_margin_loss(F: Any, input: Array, target: Array, *, reduction: Str = "mean") -> Any:
    """``log(1 + exp(-target * input))``."""
    check_reduction(reduction)
    if not input.is_floating_point():
        kind = input.dtype.kernel_name
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kind}")
    return reduce_loss(F, -F.logsigmoid(target * input), reduction)


# Several labels ------------------------------------------------------------------------------------------


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(2, 3), T(2, 3, low=0.0, high=1.0), reduction=how) for how in REDUCTIONS],
        case(T(2, 3), T(2, 3, low=0.0, high=1.0), T(3, low=0.5, constant=True)),
    ],
)
def multilabel_soft_margin_loss(
    F: Any, input: Array, target: Array, weight: Array = None, *, reduction: Str = "mean"
) -> Any:
    """The binary cross entropy of the logits of each label, averaged over the labels (the last dimension)."""
    check_reduction(reduction)
    losses = -(target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduce_loss(F, F.sum(losses, (-1,)) / input.shape[-1], reduction)


def _check_classes(input: Any, target: Any, p: int) -> None:
    if p not in (1, 2):
        raise InvalidValue("only p == 1 and p == 2 supported")
    rows = input.shape[0] if input.dim() == 2 else 1
    if tuple(target.shape) != (rows,) and not (input.dim() < 2 and target.dim() == 0):
        raise ShapeMismatch(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{rows}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if not input.is_floating_point():
        kind = input.dtype.kernel_name
        raise NotImplementedForDType(f"\"multi_margin_loss_cpu_kernel\" not implemented for '{kind}'")


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(4, 3), I(4, high=3), reduction=how) for how in REDUCTIONS],
        case(T(4, 3), I(4, high=3), 2, 0.5, T(3, low=0.5, constant=True)),
        case(T(3), T(values=1, dtype="int64")),
        case(T(4, 3), I(3, high=3)),
        case(T(4, 3), I(4, high=3), 3),
    ],
)
def multi_margin_loss(
    F: Any,
    input: Array,
    target: Array,
    p: Int = 1,
    margin: Number = 1.0,
    weight: Array = None,
    *,
    reduction: Str = "mean",
) -> Any:
    """What each other class comes nearer to the target's than ``margin``, to the power ``p``, over all classes."""
    check_reduction(reduction)
    _check_classes(input, target, p)
    rows = input if input.dim() == 2 else F.unsqueeze(input, 0)
    places = F.reshape(target, (-1, 1))
    lacking = F.clamp(margin - F.gather(rows, 1, places) + rows, min=0)
    lacking = lacking if p == 1 else lacking * lacking
    if weight is not None:
        lacking = lacking * F.unsqueeze(F.index_select(weight, 0, F.reshape(target, (-1,))), 1)
    losses = F.sum(F.scatter(lacking, 1, places, 0.0), (1,)) / rows.shape[1]
    return reduce_loss(F, losses if input.dim() == 2 and target.dim() else F.squeeze(losses, 0), reduction)


# Triplets ------------------------------------------------------------------------------------------------


@composite(
    namespace="torch.nn.functional",
    cases=[
        *[case(T(3, 4), T(3, 4), T(3, 4), reduction=how) for how in REDUCTIONS],
        case(T(3, 4), T(3, 4), T(3, 4), 0.5, 1, swap=True),
        case(T(4), T(4), T(4)),
        case(T(3, 4), T(3, 4), T(4)),
        case(T(3, 4), T(3, 4), T(3, 4), 0.0),
    ],
)
def triplet_margin_loss(
    F: Any,
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: Number = 1.0,
    p: Number = 2.0,
    eps: Number = 1e-6,
    swap: Bool = False,
    *,
    reduction: Str = "mean",
) -> Any:
    """How much nearer than ``margin`` the negative is than the positive; with ``swap``, to the nearer of the two."""
    check_reduction(reduction)
    if margin <= 0:
        raise InvalidValue(f"margin must be greater than 0, got {margin}")
    dims = [x.dim() for x in (anchor, positive, negative)]
    if len(set(dims)) > 1:
        raise InvalidOperation(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near = F.pairwise_distance(anchor, positive, p, eps)
    far = F.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = F.minimum(far, F.pairwise_distance(positive, negative, p, eps))
    return reduce_loss(F, F.clamp(margin + near - far, min=0), reduction)
