"""Negative log-likelihoods of counts and of numbers with a variance. Formulas: torch.nn.functional's."""

from __future__ import annotations

import math
from typing import Any

from ..errors import DTypeMismatch, InvalidArgument, InvalidValue
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Number, Operand, Reduction
from ..shapes import Spec
from .loss import check_reduction, reduce_loss


@composite(
    namespace="torch.nn.functional",
)
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


@op(lambda var: Spec(var.shape, var.dtype), internal=True, method=False, scratch=2.0)
def checked_variance(xp: Any, var: Array) -> Any:
    """``var`` itself, if nothing in it is negative."""
    if xp.holds(xp.any(var < 0), False):
        raise InvalidValue("var has negative entry/entries")
    return xp.array(var)


checked_variance.derivative(var=lambda F, grad: grad)


def _is_shared(sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a variance is one along a single dimension and there is one for each place in the others."""
    differing = [n for n, m in zip(sizes, shape, strict=False) if n != m]
    return len(sizes) == len(shape) and differing == [1]


@composite(
    namespace="torch.nn.functional",
)
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
            raise InvalidArgument("any(): argument 'input' must be Tensor, not bool")  # torch's, of ``var < 0``
        if var < 0:
            raise InvalidValue("var has negative entry/entries")
        var = F.ones_like(input) * var
    shape = tuple(input.shape)
    if tuple(var.shape) != shape:
        if tuple(var.shape) == shape[:-1]:
            var = F.unsqueeze(var, -1)
        elif not _is_shared(tuple(var.shape), shape):
            raise InvalidValue("var is of incorrect size")
    if not var.is_floating_point():
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {var.dtype.c_name}")
    # The bound changes the value and not the gradient, as in torch.
    var = F.checked_variance(var)
    bounded = var + (F.clamp(var.detach(), min=eps) - var.detach())
    losses = 0.5 * (F.log(bounded) + F.square(input - target) / bounded)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduce_loss(F, losses, reduction)
