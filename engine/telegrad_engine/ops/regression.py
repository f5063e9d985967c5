"""Losses between predictions and targets that are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import from_numpy, is_floating, widened
from ..errors import DTypeMismatch, InvalidOperation, InvalidValue, NotImplementedForDType
from ..schema.memory_admission import BLOCK
from ..schema.op import common_dtype, composite, op
from ..schema.parameters import Array, Number, Reduction
from ..shapes import Spec, broadcast_axes, broadcast_shapes
from .blocks import reduce_in_blocks
from .loss import check_reduction, check_weighted, reduce_loss, weighted


def reduce_losses(xp: Any, losses: Any, reduction: str) -> Any:
    """The array of losses as it is, its mean or its sum."""
    if reduction == "none":
        return losses
    return xp.sum(losses) / losses.size if reduction == "mean" else xp.sum(losses)


def _reduce_pairs(xp: Any, losses: Callable[[Any, Any], Any], input: Any, target: Any, reduction: str) -> Any:
    """The array ``losses(input, target)`` as it is, its mean or its sum, which are taken in blocks."""
    if reduction == "none":
        return losses(input, target)
    total = reduce_in_blocks(xp, xp.sum, losses, (input, target))
    return total / math.prod(broadcast_shapes(input.shape, target.shape)) if reduction == "mean" else total


def share(grad: Any, losses_shape: Any, reduction: str) -> Any:
    """The gradient that each loss gets of the reduced loss's."""
    return grad / max(math.prod(losses_shape), 1) if reduction == "mean" else grad


@composite(namespace="torch.nn.functional")
def l1_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean", weight: Array = None) -> Any:
    """The absolute differences: their mean, weighted if there is a ``weight``, or as ``reduction`` says."""
    losses = F.abs(input - target)
    return reduce_loss(F, losses, reduction) if weight is None else weighted(F, losses, input, weight, reduction)


@composite(
    namespace="torch.nn.functional",
)
def mse_loss(F: Any, input: Array, target: Array, *, reduction: Reduction = "mean", weight: Array = None) -> Any:
    """The squared differences: their mean, weighted if there is a ``weight``, or as ``reduction`` says."""
    if weight is None and not input.is_floating_point() and not target.is_floating_point():
        raise NotImplementedForDType(f"\"mse_cpu\" not implemented for '{input.dtype.kernel_name}'")
    if weight is None and reduction in ("mean", "sum") and input.dtype is target.dtype and _is_large(input, target):
        return F.squared_errors(input, target, reduction=reduction)
    losses = F.square(input - target)
    return reduce_loss(F, losses, reduction) if weight is None else weighted(F, losses, input, weight, reduction)


def _is_large(input: Any, target: Any) -> bool:
    """Whether there are too many differences for a block."""
    return math.prod(broadcast_shapes(input.shape, target.shape)) * int(input.dtype.itemsize) > BLOCK


def _squared_errors_rule(input: Any, target: Any, *, reduction: str = "mean") -> Spec:
    broadcast_shapes(input.shape, target.shape)
    if reduction not in ("mean", "sum"):
        raise InvalidValue(f"{reduction} is not a valid value for reduction")
    if not is_floating(input.dtype) or input.dtype != target.dtype:
        raise DTypeMismatch("squared_errors(): input and target must have one floating point dtype")
    return Spec((), input.dtype)


@op(
    _squared_errors_rule,
    internal=True,
    method=False,
    node="MseLossBackward0",
    scratch=2.0,
    blocked=True,
)
def squared_errors(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean") -> Any:
    """The mean or the sum of the squared differences of large tensors, in blocks."""

    def squares(input: Any, target: Any) -> Any:
        gaps = widened(input) - widened(target)
        return gaps * gaps

    return _reduce_pairs(xp, squares, input, target, reduction)


def _squared_errors_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str) -> Any:
    """Twice the differences; for an input that was broadcast they are summed in blocks."""
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


def _pair_rule(kernel: str, check: Callable[[float], None], promotes: bool) -> Callable[..., Spec]:
    def rule(input: Any, target: Any, *, reduction: str = "mean", **limit: float) -> Spec:
        shape = broadcast_shapes(input.shape, target.shape)
        check_reduction(reduction)
        check(*limit.values())
        common = common_dtype((input, target))
        if not is_floating(common):
            raise NotImplementedForDType(f"\"{kernel}\" not implemented for '{from_numpy(common).kernel_name}'")
        if not promotes and not is_floating(input.dtype):
            raise DTypeMismatch(
                f"result type {from_numpy(common).kernel_name} can't be cast to the desired output type "
                f"{from_numpy(input.dtype).kernel_name}"
            )
        return Spec(shape if reduction == "none" else (), common if promotes else input.dtype)

    return rule


def _check_beta(beta: float = 1.0) -> None:
    if not beta >= 0:
        raise InvalidOperation("smooth_l1_loss does not support negative values for beta.")


@op(
    _pair_rule("smooth_l1_cpu", _check_beta, promotes=True),
    namespace="torch.nn.functional",
    node="SmoothL1LossBackward0",
    common=common_dtype,
    scratch=3.0,
    blocked=True,
)
def smooth_l1_loss(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean", beta: Number = 1.0) -> Any:
    """Half the squared differences over ``beta`` where they are below ``beta``, else the absolute ones less a half."""

    def losses(input: Any, target: Any) -> Any:
        sizes = xp.absolute(input - target)
        return xp.where(sizes < beta, 0.5 * sizes * sizes / beta, sizes - 0.5 * beta) if beta else sizes

    return _reduce_pairs(xp, losses, input, target, reduction)


def _smooth_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str, beta: float) -> Any:
    gaps = input - target
    slopes = F.where(F.abs(gaps) < beta, gaps / beta, F.sign(gaps)) if beta else F.sign(gaps)
    return share(grad, gaps.shape, reduction) * slopes


smooth_l1_loss.derivative(
    input=_smooth_grad,
    target=lambda F, grad, input, target, reduction, beta: -_smooth_grad(F, grad, input, target, reduction, beta),
)


def _check_delta(delta: float = 1.0) -> None:
    if not delta > 0:
        raise InvalidOperation("huber_loss does not support non-positive values for delta.")


@op(
    _pair_rule("huber_cpu", _check_delta, promotes=False),
    internal=True,
    method=False,
    node="HuberLossBackward0",
    common=common_dtype,
    scratch=2.0,
    blocked=True,
)
def huber_losses(xp: Any, input: Array, target: Array, *, reduction: Reduction = "mean", delta: Number = 1.0) -> Any:
    """Half the squared differences up to ``delta``, from there on linear (Huber 1964)."""

    def losses(input: Any, target: Any) -> Any:
        sizes = xp.absolute(input - target)
        return xp.where(sizes <= delta, 0.5 * sizes * sizes, delta * (sizes - 0.5 * delta))

    return _reduce_pairs(xp, losses, input, target, reduction)


def _huber_grad(F: Any, grad: Any, input: Any, target: Any, reduction: str, delta: float) -> Any:
    gaps = input - target
    slopes = F.where(F.abs(gaps) < delta, gaps, F.sign(gaps) * delta)
    return share(grad, gaps.shape, reduction) * slopes


huber_losses.derivative(
    input=_huber_grad,
    target=lambda F, grad, input, target, reduction, delta: -_huber_grad(F, grad, input, target, reduction, delta),
)


@composite(
    namespace="torch.nn.functional",
)
def huber_loss(
    F: Any, input: Array, target: Array, reduction: Reduction = "mean", delta: Number = 1.0, weight: Array = None
) -> Any:
    """Half the squared differences up to ``delta``, from there on linear (Huber 1964)."""
    if weight is None:
        return F.huber_losses(input, target, reduction=reduction, delta=delta)
    check_weighted(input, weight, reduction)
    losses = F.huber_losses(input, target, reduction="none", delta=delta)
    return reduce_loss(F, losses * weight, reduction)
