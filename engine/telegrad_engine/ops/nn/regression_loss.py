"""Losses of numbers, divergences, distances and margin losses. Formulas: the documentation of torch.nn.functional."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...dtypes import int64, is_floating, widened
from ...errors import DTypeMismatch, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import FUNCTION, INTERNAL, NN_FUNCTION, blocks, scratch
from ...schema.memory_admission import BLOCK
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, Reduction
from ...schema.promotion import FLOAT32, FLOAT32_ON_CUDA, UNWIDENED, common_dtype
from ...shapes import Spec, broadcast_axes, broadcast_shapes, check_keeps_shape, size_at, torch_size
from ..batching import nn_rules
from ..blocked_loops import reduce_in_blocks
from ..guards import check_dtype, check_floats, kernel_name, no_kernel
from .classification_loss import check_cast, check_reduction, check_weighted, reduce_loss, share, weighted


def _different_sizes(input: Any, target: Any, *_: Any, **__: Any) -> str | None:
    """Torch's warning about a loss of tensors that are broadcast, which is seldom what was meant."""
    if input.shape == target.shape:
        return None
    return (
        f"Using a target size ({torch_size(target.shape)}) that is different to the input size "
        f"({torch_size(input.shape)}). This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size."
    )


def _reduce_pairs(xp: Any, losses: Callable[[Any, Any], Any], input: Any, target: Any, reduction: str) -> Any:
    """``losses(input, target)`` unreduced, or its mean or sum, computed in blocks."""
    if reduction == "none":
        return losses(input, target)
    total = reduce_in_blocks(xp, xp.sum, losses, (input, target))
    return total / math.prod(broadcast_shapes(input.shape, target.shape)) if reduction == "mean" else total


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def l1_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean", weight: Array = None) -> Any:
    """The absolute differences: their mean, weighted if there is a ``weight``, or as ``reduction`` says."""
    losses = F.abs(input - target)
    return reduce_loss(F, losses, reduction) if weight is None else weighted(F, losses, input, weight, reduction)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def mse_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean", weight: Array = None) -> Any:
    """The squared differences: their mean, weighted if there is a ``weight``, or as ``reduction`` says."""
    if weight is None and not input.is_floating_point() and not target.is_floating_point():
        raise no_kernel("mse_cpu", input)
    if weight is None and reduction in ("mean", "sum") and input.dtype is target.dtype and _is_large(input, target):
        return F.squared_errors(input, target, reduction=reduction)
    losses = F.square(input - target)
    return reduce_loss(F, losses, reduction) if weight is None else weighted(F, losses, input, weight, reduction)


def _is_large(input: Any, target: Any) -> bool:
    """Whether the differences take more than one block."""
    return math.prod(broadcast_shapes(input.shape, target.shape)) * int(input.dtype.itemsize) > BLOCK


def _squared_errors_rule(input: Any, target: Any, reduction: str) -> Spec:
    broadcast_shapes(input.shape, target.shape)
    if reduction not in ("mean", "sum"):
        raise InvalidValue(f"{reduction} is not a valid value for reduction")
    if not is_floating(input.dtype) or input.dtype != target.dtype:
        raise DTypeMismatch("squared_errors(): input and target must have one floating point dtype")
    return Spec((), input.dtype)


@op(
    _squared_errors_rule,
    variants=INTERNAL,
    node="MseLossBackward0",
    memory=blocks(2.0),
    batching=nn_rules.squared_errors,
)
def squared_errors(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean") -> Any:
    """The mean or the sum of the squared differences of large tensors, in blocks."""

    def squares(input: Any, target: Any) -> Any:
        gaps = widened(input) - widened(target)
        return gaps * gaps

    return _reduce_pairs(xp, squares, input, target, reduction)


def _squared_errors_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str) -> Any:
    """Twice the differences times the gradient, summed in blocks for an input that was broadcast."""
    shape = broadcast_shapes(input.shape, target.shape)
    factor = share(2 * grad, shape, reduction)
    if F.xp is None or shape == input.shape:
        return (input - target) * factor
    axis = broadcast_axes(input.shape, shape)
    gaps = reduce_in_blocks(F.xp, F.xp.sum, lambda x, y: widened(x) - widened(y), (input, target), axis, True)
    return F.xp.reshape(gaps, input.shape) * factor


squared_errors.derivative(
    input=_squared_errors_grad,
    target=lambda F, grad, input, target, reduction: _squared_errors_grad(F, grad, target, input, reduction),
)


_pair_op = partial(op, promotion=UNWIDENED)


def _pair_spec(kernel: str, input: Any, target: Any, reduction: str, refusal: str | None) -> Spec:
    """The spec of an elementwise loss, in the common dtype. Raises ``refusal``, if given, after shape errors."""
    shape = broadcast_shapes(input.shape, target.shape)
    check_reduction(reduction)
    if refusal:
        raise InvalidOperation(refusal)
    spec = Spec(shape if reduction == "none" else (), common_dtype((input, target)))
    check_floats(kernel, spec)
    return spec


def _smooth_rule(input: Any, target: Any, reduction: str, beta: float) -> Spec:
    refusal = None if beta >= 0 else "smooth_l1_loss does not support negative values for beta."
    return _pair_spec("smooth_l1_cpu", input, target, reduction, refusal)


@_pair_op(
    _smooth_rule,
    variants=NN_FUNCTION,
    node="SmoothL1LossBackward0",
    memory=blocks(3.0),
    autocast=FLOAT32,
    batching=nn_rules.losses,
)
def smooth_l1_loss(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean", beta: Number = 1.0) -> Any:
    """Half the squared differences over ``beta`` where they are below ``beta``, else the absolute ones less a half."""

    def losses(input: Any, target: Any) -> Any:
        sizes = xp.absolute(input - target)
        return xp.where(sizes < beta, 0.5 * sizes * sizes / beta, sizes - 0.5 * beta) if beta else sizes

    return _reduce_pairs(xp, losses, input, target, reduction)


def _smooth_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str, beta: float) -> Any:
    gaps = input - target
    slopes = F.where(F.abs(gaps) >= beta, F.sign(gaps), gaps / beta) if beta else F.sign(gaps)
    return share(grad, gaps.shape, reduction) * slopes


smooth_l1_loss.derivative(
    input=_smooth_grad,
    target=lambda F, grad, input, target, reduction, beta: -_smooth_grad(F, grad, input, target, reduction, beta),
)


def _huber_rule(input: Any, target: Any, reduction: str, delta: float) -> Spec:
    refusal = None if delta > 0 else "huber_loss does not support non-positive values for delta."
    spec = _pair_spec("huber_cpu", input, target, reduction, refusal)
    check_cast(spec, input)
    return Spec(spec.shape, input.dtype)


@_pair_op(_huber_rule, variants=INTERNAL, node="HuberLossBackward0", memory=blocks(2.0), batching=nn_rules.losses)
def huber_losses(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean", delta: Number = 1.0) -> Any:
    """Half the squared differences up to ``delta``, from there on linear (Huber 1964)."""

    def losses(input: Any, target: Any) -> Any:
        sizes = xp.absolute(input - target)
        return xp.where(sizes <= delta, 0.5 * sizes * sizes, delta * (sizes - 0.5 * delta))

    return _reduce_pairs(xp, losses, input, target, reduction)


def _huber_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str, delta: float) -> Any:
    gaps = input - target
    slopes = F.where(F.abs(gaps) >= delta, F.sign(gaps) * delta, gaps)
    return share(grad, gaps.shape, reduction) * slopes


huber_losses.derivative(
    input=_huber_grad,
    target=lambda F, grad, input, target, reduction, delta: -_huber_grad(F, grad, input, target, reduction, delta),
)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def huber_loss(
    F: Any, input: Array, target: Array, reduction: Reduction = "mean", delta: Number = 1.0, weight: Array = None
) -> Any:
    """Half the squared differences up to ``delta``, from there on linear (Huber 1964)."""
    if weight is None:
        return F.huber_losses(input, target, reduction=reduction, delta=delta)
    check_weighted(input, weight, reduction)
    losses = F.huber_losses(input, target, reduction="none", delta=delta)
    return reduce_loss(F, losses * weight, reduction)


for _loss in (l1_loss, mse_loss, smooth_l1_loss, huber_loss):
    _loss.warns(_different_sizes)


# Divergence and cosine losses ----------------------------------------------------------------------------


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def kl_div(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean", log_target: Bool = False) -> Any:
    """The divergence of ``exp(input)`` from ``target`` (its logarithm if ``log_target``), elementwise; then reduced."""
    if reduction != "batchmean":
        check_reduction(reduction)
    if not input.is_floating_point() or not target.is_floating_point():
        raise InvalidOperation("kl_div: Integral inputs not supported.")
    losses = F.exp(target) * (target - input) if log_target else F.xlogy(target, target) - target * input
    if reduction != "batchmean":
        return reduce_loss(F, losses, reduction)
    return F.sum(losses) / input.shape[0] if input.shape else F.sum(losses)


@composite(variants=NN_FUNCTION, autocast=FLOAT32_ON_CUDA)
def cosine_similarity(F: Any, x1: Array, x2: Array, dim: Int = 1, eps: Number = 1e-8) -> Any:
    """The cosine of the angle between vectors along ``dim``; lengths count as ``eps`` at least."""
    if not x1.is_floating_point() and not x2.is_floating_point():
        raise DTypeMismatch(f"expected common dtype to be floating point, yet common dtype is {kernel_name(x1)}")
    if not eps >= 0:
        raise InvalidOperation(f"eps must be non-negative, got: {eps:g}")
    shape = broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    return F.sum(_unit(F, F.expand(x1, shape), dim, eps) * _unit(F, F.expand(x2, shape), dim, eps), (dim,))


def _unit(F: Any, x: Any, dim: int, eps: float) -> Any:
    return x / F.sqrt(F.clamp(F.sum(x * x, (dim,), True), min=eps * eps))


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def cosine_embedding_loss(
    F: Any, input1: Array, input2: Array, target: Array, margin: Number = 0, *, reduction: Reduction = "mean"
) -> Any:
    """One less the cosine of pairs whose target is 1, what it is above ``margin`` where the target is -1."""
    ndim = len(target.shape)
    if ndim > 1:
        raise InvalidOperation("0D or 1D target tensor expected, multi-target not supported")
    if {len(input1.shape), len(input2.shape)} != {ndim + 1}:
        raise ShapeMismatch(
            f"{ndim}D target tensor expects {ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    pairs = ((input1, input2), (input1, input1), (input2, input2))
    dots, squares1, squares2 = (F.sum(a * b, (-1,)) for a, b in pairs)
    cosines = dots / F.sqrt((squares1 + 1e-12) * (squares2 + 1e-12))
    apart = F.where(target == -1, F.clamp(cosines - margin, min=0), 0.0)
    return reduce_loss(F, F.where(target == 1, 1 - cosines, 0.0) + apart, reduction)


# Margin losses, and the distance that some of them use ---------------------------------------------------


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
    check_floats("multi_margin_loss_cpu_kernel", input)
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
    check_floats("multilabel_margin_loss_forward_out_frame", input)
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
    tensors = (anchor, positive, negative)
    return triplet_loss(F, tensors, lambda x, y: F.pairwise_distance(x, y, p, eps), margin, swap, reduction)


def triplet_loss(
    F: Any, tensors: Sequence[Any], distance: Callable[[Any, Any], Any], margin: float, swap: bool, reduction: str
) -> Any:
    """The loss of (anchor, positive, negative) for any distance. Raises unless ``margin`` is positive."""
    check_reduction(reduction)
    if margin <= 0:
        raise InvalidValue(f"margin must be greater than 0, got {margin}")
    dims = [x.dim() for x in tensors]
    if len(set(dims)) > 1:
        raise InvalidOperation(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    anchor, positive, negative = tensors
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    return reduce_loss(F, F.clamp_min(margin + near - far, 0), reduction)
