"""Margin losses, and the distance that some of them use. Formulas: the documentation of torch.nn.functional."""

from __future__ import annotations

from typing import Any

from ...dtypes import int64
from ...errors import DTypeMismatch, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.autocast_policy import FLOAT32
from ...schema.declaration import FUNCTION, INTERNAL, NN_FUNCTION, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, Reduction
from ...shapes import Spec, check_keeps_shape, size_at, torch_size
from ..guards import check_dtype, kernel_name, no_kernel
from .classification_loss import check_reduction, reduce_loss


@composite(variants=FUNCTION | NN_FUNCTION)
def pairwise_distance(F: Any, x1: Array, x2: Array, p: Number = 2.0, eps: Number = 1e-6, keepdim: Bool = False) -> Any:
    """The ``p``-norm of ``x1 - x2 + eps`` along the last dimension."""
    return F.norm(x1 - x2 + eps, p, (-1,), keepdim)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def hinge_embedding_loss(
    F: Any, input: Array, target: Array, margin: Number = 1.0, *, reduction: Reduction = "mean"
) -> Any:
    """The input where the target is 1, what it lacks of ``margin`` where it is -1."""
    check_reduction(reduction)
    lacking = F.to(F.clamp(margin - input, min=0), dtype=input.dtype)
    return reduce_loss(F, F.where(target == -1, 0, input) + F.where(target == 1, 0, lacking), reduction)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def margin_ranking_loss(
    F: Any, input1: Array, input2: Array, target: Array, margin: Number = 0, *, reduction: Reduction = "mean"
) -> Any:
    """What the difference, in the direction that ``target`` gives, lacks of ``margin``."""
    check_reduction(reduction)
    if not input1.dim() == input2.dim() == target.dim():
        sizes = [torch_size(x.shape) for x in (input1, input2, target)]
        raise ShapeMismatch(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{sizes[0]}, input2: {sizes[1]}, target: {sizes[2]} "
        )
    return reduce_loss(F, F.clamp(-target * (input1 - input2) + margin, min=0), reduction)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def soft_margin_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean") -> Any:
    """``log(1 + exp(-target * input))``."""
    check_reduction(reduction)
    if not input.is_floating_point():
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kernel_name(input)}")
    check_keeps_shape(input.shape, target.shape)
    return reduce_loss(F, F.to(-F.logsigmoid(target * input), dtype=input.dtype), reduction)


@composite(variants=NN_FUNCTION)
def multilabel_soft_margin_loss(
    F: Any, input: Array, target: Array, weight: Array = None, *, reduction: Reduction = "mean"
) -> Any:
    """The binary cross entropy of the logits of each label, averaged over the labels (the last dimension)."""
    check_reduction(reduction)
    losses = -(target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduce_loss(F, F.sum(losses, (-1,)) / size_at(input.shape, -1), reduction)


def _check_classes(input: Any, target: Any, p: int, weight: Any) -> None:
    if p not in (1, 2):
        raise InvalidValue("only p == 1 and p == 2 supported")
    rows = input.shape[0] if input.dim() == 2 else 1
    if tuple(target.shape) != (rows,) and not (input.dim() < 2 and target.dim() == 0):
        raise ShapeMismatch(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{rows}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if not input.is_floating_point():
        raise no_kernel("multi_margin_loss_cpu_kernel", input)
    classes = input.shape[-1] if input.dim() else 1
    if weight is not None and weight.numel() != classes:
        raise ShapeMismatch(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    check_dtype(target, int64)
    check_dtype(weight, input.dtype)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def multi_margin_loss(
    F: Any,
    input: Array,
    target: Array,
    p: Int = 1,
    margin: Number = 1.0,
    weight: Array = None,
    *,
    reduction: Reduction = "mean",
) -> Any:
    """What each other class comes nearer to the target's than ``margin``, to the power ``p``, over all classes."""
    check_reduction(reduction)
    _check_classes(input, target, p, weight)
    rows = input if input.dim() == 2 else F.reshape(input, (1, -1))
    places = F.reshape(target, (-1, 1))
    lacking = F.clamp(margin - F.gather(rows, 1, places) + rows, min=0)
    lacking = lacking if p == 1 else lacking * lacking
    if weight is not None:
        lacking = lacking * F.unsqueeze(F.index_select(weight, 0, F.reshape(target, (-1,))), 1)
    losses = F.sum(F.scatter(lacking, 1, places, 0.0), (1,)) / rows.shape[1]
    return reduce_loss(F, losses if target.dim() else F.squeeze(losses, 0), reduction)


def _listed_rule(target: Any) -> Spec:
    check_dtype(target, int64.numpy)
    return Spec(target.shape, int64.numpy)


@op(_listed_rule, variants=INTERNAL, memory=scratch(2.0), may_raise=True)
def listed(xp: Any, target: Array, classes: Int) -> Any:
    """1 for each of the classes that rows list before their first -1, else 0. Raises for what is no class."""
    if target.size and not -1 <= int(target.min()) <= int(target.max()) < classes:
        raise InvalidOperation("argument #2 'target' is out of range")
    return xp.cumprod((target >= 0).astype(int64.numpy), axis=-1)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def multilabel_margin_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean") -> Any:
    """What each class that is no target comes nearer than 1 to each that is, over all classes.

    A row of ``target`` lists classes; entries after the first -1 are ignored.
    """
    check_reduction(reduction)
    shape = list(input.shape)
    if len(shape) > 2 or not all(shape[-1:]):
        raise ShapeMismatch(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {shape}")
    if list(target.shape) != shape:
        raise ShapeMismatch(f"inconsistent target size: {list(target.shape)} for input of size: {shape}")
    if not input.is_floating_point():
        raise no_kernel("multilabel_margin_loss_forward_out_frame", input)
    check_dtype(target, int64)
    rows, labels = (F.reshape(x, (-1, x.shape[-1] if x.dim() else 1)) for x in (input, target))
    counts = F.to(F.listed(labels, rows.shape[1]), dtype=input.dtype)
    places = F.clamp(labels, min=0)
    others = F.eq(F.scatter_add(F.zeros_like(rows), 1, places, counts), 0)
    lacking = F.clamp(1 - F.unsqueeze(F.gather(rows, 1, places), 2) + F.unsqueeze(rows, 1), min=0)
    counted = F.logical_and(F.unsqueeze(counts, 2), F.unsqueeze(others, 1))
    losses = F.sum(F.where(counted, lacking, 0.0), (1, 2)) / rows.shape[1]
    return reduce_loss(F, losses if input.dim() == 2 else F.squeeze(losses, 0), reduction)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
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
    reduction: Reduction = "mean",
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
