"""Losses for classes, binary targets, Poisson counts and Gaussian likelihoods.

Formulas: the documentation of torch.nn.functional.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import bool_, int64, is_floating, uint8
from ...errors import DTypeMismatch, IndexOutOfRange, InvalidArgument, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import INTERNAL, NN_FUNCTION, hiding, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, Operand, Reduction
from ...schema.promotion import FLOAT32, Autocast, Policy
from ...shapes import Spec, broadcast_shapes, check_keeps_shape, reduced_shape, torch_size, wrap_dim
from ..batching import nn_rules
from ..batching.rules import LEADING
from ..guards import check_dtype, check_floats, kernel_name, no_kernel
from ..math.arithmetic import BOOL_SUBTRACTED
from ..shape.scatter import any_outside

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    """Raise for a reduction that is not none, mean or sum."""
    if reduction not in REDUCTIONS:
        raise InvalidValue(f"{reduction} is not a valid value for reduction")


def reduce_loss(F: Any, losses: Any, reduction: str) -> Any:
    """Return the losses unreduced, their mean or their sum."""
    check_reduction(reduction)
    return losses if reduction == "none" else F.mean(losses) if reduction == "mean" else F.sum(losses)


def check_weighted(input: Any, weight: Any, reduction: str) -> None:
    """Raise for a weight not of the input's shape or an unknown reduction, with torch's texts for weighted losses."""
    if tuple(weight.shape) != tuple(input.shape):
        raise InvalidValue("Weights and input must have the same size.")
    if reduction not in REDUCTIONS:
        raise InvalidValue(f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'.")


def weighted(F: Any, losses: Any, input: Any, weight: Any, reduction: str) -> Any:
    """The losses times ``weight``, which has the input's shape: unreduced, their weighted mean, or their sum."""
    check_weighted(input, weight, reduction)
    losses = losses * weight
    return F.sum(losses) / F.sum(weight) if reduction == "mean" else reduce_loss(F, losses, reduction)


def share(grad: Any, losses_shape: Any, reduction: str) -> Any:
    """The gradient of each loss, from that of the reduced loss."""
    return grad / max(math.prod(losses_shape), 1) if reduction == "mean" else grad


def check_cast(result: Any, out: Any) -> None:
    """Raise torch's error for a loss that would be stored as integers."""
    if not is_floating(out.dtype):
        raise DTypeMismatch(
            f"result type {kernel_name(result)} can't be cast to the desired output type {kernel_name(out)}"
        )


def _class_dim(ndim: int) -> int:
    return 0 if ndim == 1 else 1


def _nll_rule(input: Any, target: Any, weight: Any, reduction: str) -> Spec:
    check_reduction(reduction)
    if not input.shape:
        raise InvalidValue("Expected 1 or more dimensions (got 0)")
    if not is_floating(input.dtype):
        raise no_kernel("nll_loss_out_frame", int64)  # whatever the dtype is
    if target.dtype not in (int64.numpy, uint8.numpy):
        raise InvalidOperation(f"expected target dtype to be Long or Byte, but got {kernel_name(target)}")
    if len(input.shape) > 1 and target.shape[:1] != input.shape[:1]:
        found = target.shape[0] if target.shape else 1
        raise InvalidValue(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({found}).")
    if len(input.shape) == 2 and len(target.shape) > 1:
        raise InvalidOperation("0D or 1D target tensor expected, multi-target not supported")
    if len(input.shape) == 1 and len(target.shape) == 1 and target.shape != (1,):
        raise InvalidValue(f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}")
    axis = _class_dim(len(input.shape))
    expected = reduced_shape(input.shape, (axis,), False)
    if target.shape != expected:
        raise ShapeMismatch(f"Expected target size {list(expected)}, got {list(target.shape)}")
    _check_class_weight(weight, input.shape[axis])
    check_dtype(weight, input.dtype)
    return Spec(expected if reduction == "none" else (), input.dtype)


def _check_class_weight(weight: Any, classes: int, function: str = "") -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise InvalidOperation(
            f"{function}weight tensor should be defined either for all {classes} classes or no classes but got weight "
            f"tensor of shape: {list(weight.shape)}"
        )


def _kept_targets(xp: Any, input: Any, target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Return which targets are not ignored, and the targets with ignored ones as 0. Raises for an invalid class."""
    kept = target != ignore_index
    safe = xp.where(kept, target, 0)
    classes = input.shape[_class_dim(len(input.shape))]
    if any_outside(xp, safe, 0, classes):
        wrong = next(int(i) for i in safe.reshape(-1).tolist() if not 0 <= i < classes)
        raise IndexOutOfRange(f"Target {wrong} is out of bounds.")
    return kept, safe


_UNSIGNED = {np.dtype(f"{sign}int{bits}"): np.dtype(f"uint{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _is_plain(xp: Any, target: Any, input: Any, ignore_index: int) -> bool:
    """Whether there are targets, all of them are valid classes, and none is ignored."""
    if not target.size:
        return False
    classes = input.shape[_class_dim(len(input.shape))]
    plain = target.view(_UNSIGNED[target.dtype]).max() < classes  # as unsigned numbers, negative ones are the largest
    if 0 <= ignore_index < classes:
        plain = plain & (target != ignore_index).all()
    return not xp.needs_care(xp.logical_not(plain))


def _at_class(xp: Any, safe: Any, ndim: int) -> tuple[Any, ...]:
    """The index of each target's class in an input of ``ndim`` dimensions."""
    if ndim == 1:
        return (safe,)
    if ndim == 2:
        return xp.arange(len(safe)), safe
    places = [
        xp.reshape(xp.arange(n), tuple(n if e == d else 1 for e in range(safe.ndim))) for d, n in enumerate(safe.shape)
    ]
    return (places[0], safe, *places[1:])


@op(
    _nll_rule,
    variants=NN_FUNCTION,
    results=hiding(
        "safe",
        "scale",
        rule=lambda input, target, weight: (Spec(target.shape, int64.numpy), Spec(target.shape, input.dtype)),
    ),
    autocast=FLOAT32,
    batching=nn_rules.nll_loss,
)
def nll_loss(
    xp: Any,
    input: Array,
    target: Array,
    weight: Array = None,
    *,
    ignore_index: Int = -100,
    reduction: Reduction = "mean",
) -> Any:
    """The negative log-likelihood of class indices: input (N, C, …) of log-probabilities, target (N, …)."""
    if weight is None and reduction != "none" and _is_plain(xp, target, input, ignore_index):
        total = -input[_at_class(xp, target, input.ndim)].sum()
        count = target.size if reduction == "mean" else 1
        return total / count, target, xp.full(target.shape, 1 / count, input.dtype)
    kept, safe = _kept_targets(xp, input, target, ignore_index)
    scale = kept.astype(input.dtype)
    if weight is not None:
        scale = scale * weight[safe]
    losses = xp.where(kept, input[_at_class(xp, safe, input.ndim)] * -scale, 0)
    if reduction == "none":
        return losses, safe, scale
    total = xp.sum(losses)
    if reduction == "mean":
        weights = xp.sum(scale)
        return total / weights, safe, scale / weights
    return total, safe, scale


def _nll_grad(F: Any, grad: Any, input_shape: Any, target: Any, safe: Any, scale: Any, ignore_index: int) -> Any:
    """Put minus each target's ``scale`` at its class; ``scale`` already includes the mean's division.

    An ignored target has gradient 0 even if the incoming gradient is NaN, as after the mean of no targets.
    """
    axis = _class_dim(len(input_shape))
    share = F.where(F.eq(target, ignore_index), 0.0, -grad * scale)
    if F.xp is not None:
        zeros = F.xp.zeros(input_shape, grad.dtype)
        return F.xp.index_set(zeros, _at_class(F.xp, safe, len(input_shape)), share)
    spread = F.unsqueeze(share, axis)
    return F.scatter(F.new_zeros(spread, input_shape), axis, F.unsqueeze(safe, axis), spread)


@nll_loss.checks("target")
def _check_targets(xp: Any, input: Any, target: Any, _weight: Any, ignore_index: int) -> None:
    if not _is_plain(xp, target, input, ignore_index):
        _kept_targets(xp, input, target, ignore_index)


nll_loss.derivative(input=_nll_grad)


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def cross_entropy(
    F: Any,
    input: Array,
    target: Array,
    weight: Array = None,
    *,
    ignore_index: Int = -100,
    reduction: Reduction = "mean",
    label_smoothing: Number = 0.0,
) -> Any:
    """The cross entropy of logits (N, C, …) and class indices (N, …), or class probabilities (N, C, …)."""
    if not input.shape:
        wrap_dim(1, 0)  # raises, because the classes are in dimension 1
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise InvalidOperation(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    axis = _class_dim(len(input.shape))
    if tuple(input.shape) == tuple(target.shape):
        if not target.is_floating_point():
            raise InvalidOperation(
                f"Expected floating point type for target with class probabilities, got {kernel_name(target)}"
            )
        if ignore_index >= 0:
            raise InvalidOperation("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(F, input, target, weight, reduction, label_smoothing, axis)
    logs = F.log_softmax(input, axis)
    hard = F.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return hard
    smooth = _smooth_loss(F, logs, target, weight, ignore_index, reduction, axis)
    return hard * (1 - label_smoothing) + smooth * (label_smoothing / input.shape[axis])


def _soft_cross_entropy(
    F: Any, input: Any, target: Any, weight: Any, reduction: str, smoothing: float, axis: int
) -> Any:
    classes = input.shape[axis]
    _check_class_weight(weight, classes, "cross_entropy: ")
    if smoothing:
        target = target * (1 - smoothing) + smoothing / max(classes, 1)
    losses = F.log_softmax(input, axis) * target
    if weight is not None:
        losses = losses * _along(F, weight, axis, len(input.shape))
    if reduction != "mean":
        return -F.sum(losses, (axis,) if reduction == "none" else None)
    # Without rows or classes this is 0 / 0, as in torch.
    rows = math.prod(n for d, n in enumerate(input.shape) if d != axis) if classes else 0
    return -F.sum(losses) / rows


def _along(F: Any, weight: Any, axis: int, ndim: int) -> Any:
    return F.reshape(weight, tuple(-1 if d == axis else 1 for d in range(ndim)))


def _smooth_loss(F: Any, logs: Any, target: Any, weight: Any, ignore_index: int, reduction: str, axis: int) -> Any:
    """The label-smoothing loss: negative log-probabilities summed over classes, without ignored targets."""
    weighted = logs if weight is None else logs * _along(F, weight, axis, len(logs.shape))
    ignored = F.eq(target, ignore_index)
    losses = F.masked_fill(-F.sum(weighted, (axis,)), ignored, 0.0)
    if reduction != "mean":
        return reduce_loss(F, losses, reduction)
    if weight is None:
        return F.sum(losses) / F.sum(F.logical_not(ignored))
    safe = F.reshape(F.masked_fill(target, ignored, 0), (-1,))
    scale = F.reshape(F.index_select(weight, 0, safe), tuple(target.shape))
    return F.sum(losses) / F.sum(F.masked_fill(scale, ignored, 0.0))


# Targets that are probabilities --------------------------------------------------------------------------


def _reduce_array(xp: Any, losses: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    return xp.sum(losses) / losses.size if reduction == "mean" else xp.sum(losses)


def _binary_rule(input: Any, target: Any, weight: Any, reduction: str) -> Spec:
    check_reduction(reduction)
    if input.shape != target.shape:
        raise InvalidValue(
            f"Using a target size ({torch_size(target.shape)}) that is different to the input size "
            f"({torch_size(input.shape)}) is deprecated. Please ensure they have the same size."
        )
    if weight is not None:
        broadcast_shapes(input.shape, weight.shape)
    if input.dtype != target.dtype:
        raise DTypeMismatch(f"Found dtype {kernel_name(target)} but expected {kernel_name(input)}")
    check_floats("binary_cross_entropy", input)
    if weight is not None:
        check_keeps_shape(input.shape, weight.shape)
    return Spec(input.shape if reduction == "none" else (), input.dtype)


@op(
    _binary_rule,
    variants=NN_FUNCTION,
    memory=scratch(2.0),
    may_raise=True,
    autocast=Autocast(cpu=Policy.FLOAT32, cuda=Policy.REFUSED),
    batching=nn_rules.losses,
)
def binary_cross_entropy(
    xp: Any, input: Array, target: Array, weight: Array = None, *, reduction: Reduction = "mean"
) -> Any:
    """The cross entropy of probabilities with target probabilities; logarithms are kept above -100, as in torch."""
    for name, values in (("input", input), ("target", target)):
        if xp.is_invalid(xp.any(xp.logical_not(xp.logical_and(values >= 0, values <= 1)))):
            raise InvalidOperation(f"all elements of {name} should be between 0 and 1")
    losses = (target - 1) * xp.maximum(xp.log1p(-input), -100) - target * xp.maximum(xp.log(input), -100)
    return _reduce_array(xp, losses if weight is None else losses * weight, reduction)


def _weighted(grad: Any, shape: Any, weight: Any, reduction: str) -> Any:
    grad = share(grad, shape, reduction)
    return grad if weight is None else grad * weight


binary_cross_entropy.derivative(
    input=lambda F, grad, input, target, weight, reduction: (
        _weighted(grad, input.shape, weight, reduction) * ((input - target) / F.clamp((1 - input) * input, min=1e-12))
    ),
    target=lambda F, grad, input, weight, reduction: (
        _weighted(grad, input.shape, weight, reduction)
        * (F.clamp(F.log1p(-input), min=-100) - F.clamp(F.log(input), min=-100))
    ),
)


def _logits_rule(input: Any, target: Any, weight: Any, reduction: str, pos_weight: Any) -> Spec:
    check_reduction(reduction)
    if input.shape != target.shape:
        raise InvalidValue(
            f"Target size ({torch_size(target.shape)}) must be the same as input size ({torch_size(input.shape)})"
        )
    check_floats("log_sigmoid_cpu", input)
    check_cast(input, target)
    if pos_weight is not None:
        if pos_weight.dtype == bool_.numpy:
            raise DTypeMismatch(BOOL_SUBTRACTED)
        broadcast_shapes(pos_weight.shape, input.shape)
        check_keeps_shape(input.shape, pos_weight.shape)
    if weight is not None:
        check_keeps_shape(input.shape, weight.shape)
    return Spec(input.shape if reduction == "none" else (), target.dtype)


@op(_logits_rule, variants=NN_FUNCTION, memory=scratch(3.0), autocast=FLOAT32, batching=nn_rules.losses)
def binary_cross_entropy_with_logits(
    xp: Any,
    input: Array,
    target: Array,
    weight: Array = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Array = None,
) -> Any:
    """The cross entropy of the logits' sigmoids with target probabilities, without overflow."""
    logs = xp.minimum(input, 0) - xp.log1p(xp.exp(-xp.absolute(input)))
    scaled = logs if pos_weight is None else logs * (1 + (pos_weight - 1) * target)
    losses = (1 - target) * input - scaled
    return _reduce_array(xp, losses if weight is None else losses * weight, reduction)


def _logits_grad(F: Any, grad: Any, input: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    positive = target if pos_weight is None else pos_weight * target
    total = 1 if pos_weight is None else positive + 1 - target
    return _weighted(grad, input.shape, weight, reduction) * (total * F.sigmoid(input) - positive)


def _logits_target_grad(F: Any, grad: Any, input: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    slopes = -input if pos_weight is None else -input - F.logsigmoid(input) * (pos_weight - 1)
    return _weighted(grad, input.shape, weight, reduction) * slopes


binary_cross_entropy_with_logits.derivative(input=_logits_grad, target=_logits_target_grad)

# Poisson and Gaussian negative log-likelihoods -----------------------------------------------------------


@composite(variants=NN_FUNCTION, autocast=FLOAT32)
def poisson_nll_loss(
    F: Any,
    input: Array,
    target: Array,
    log_input: Bool = True,
    full: Bool = False,
    *,
    eps: Number = 1e-8,
    reduction: Reduction = "mean",
) -> Any:
    """That of counts whose rate is ``exp(input)``, or ``input``; ``full`` adds Stirling's term for the target alone."""
    check_reduction(reduction)
    losses = F.exp(input) - target * input if log_input else input - target * F.log(input + eps)
    if full:
        stirling = target * F.log(target) - target + 0.5 * F.log(2 * math.pi * target)
        losses = losses + F.where(target > 1, stirling, 0.0)
    return reduce_loss(F, losses, reduction)


@op(lambda var: Spec(var.shape, var.dtype), variants=INTERNAL, memory=scratch(2.0), may_raise=True, batching=LEADING)
def checked_variance(xp: Any, var: Array) -> Any:
    """``var`` itself, if nothing in it is negative."""
    if xp.is_invalid(xp.any(var < 0)):
        raise InvalidValue("var has negative entry/entries")
    return xp.array(var)


checked_variance.derivative(var=lambda F, grad: grad)


@composite(variants=NN_FUNCTION)
def gaussian_nll_loss(
    F: Any,
    input: Array,
    target: Array,
    var: Operand,
    full: Bool = False,
    eps: Number = 1e-6,
    reduction: Reduction = "mean",
) -> Any:
    """That of numbers with mean ``input`` and variance ``var``, which counts as ``eps`` at least."""
    check_reduction(reduction)
    if not hasattr(var, "shape"):
        if not isinstance(var, float):
            raise InvalidArgument("any(): argument 'input' must be Tensor, not bool")  # torch's, for ``var < 0``
        if var < 0:
            raise InvalidValue("var has negative entry/entries")
        var = F.ones_like(input) * var
    shape = tuple(input.shape)
    if tuple(var.shape) == shape[:-1] != shape:
        var = F.unsqueeze(var, -1)
    # At most one dimension of ``var`` may differ from the input's; it must have size 1.
    if len(var.shape) != len(shape) or [n for n, m in zip(var.shape, shape, strict=True) if n != m] not in ([], [1]):
        raise InvalidValue("var is of incorrect size")
    if not var.is_floating_point():
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {var.dtype.c_name}")
    # The lower bound changes the value but not the gradient, as in torch.
    var = F.checked_variance(var)
    bounded = var + (F.clamp(var.detach(), min=eps) - var.detach())
    losses = 0.5 * (F.log(bounded) + F.square(input - target) / bounded)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduce_loss(F, losses, reduction)
