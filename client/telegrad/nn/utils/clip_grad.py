"""Gradient clipping. Values are fetched only with ``error_if_nonfinite``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidOperation

from ... import linalg
from ...tensor.handle import Tensor, functions
from ..init import deprecated

Tensors = Tensor | Iterable[Tensor]


@no_grad()
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the norm of all elements together as a 0-dim tensor; 0 for no tensors.

    With ``error_if_nonfinite``, fetches the norm and raises RuntimeError unless it is finite.

    ``norm_type`` is the order of the norm. ``foreach`` changes nothing.

    Examples:
        >>> tg.nn.utils.get_total_norm([tg.tensor([3.0]), tg.tensor([4.0])])
        tensor(5.)
    """
    norm_type = float(norm_type)
    each = [linalg.vector_norm(tensor, norm_type) for tensor in _listed(tensors)]
    if not each:
        return functions.full((), 0.0)
    dtype = each[0].dtype
    total: Tensor = linalg.vector_norm(functions.stack([norm.to(dtype=dtype) for norm in each]), norm_type)
    if error_if_nonfinite and not functions.isfinite(total):
        raise InvalidOperation(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients in place by ``min(max_norm / total_norm, 1)``.

    ``parameters`` are tensors, or one. ``foreach`` changes nothing.

    Examples:
        >>> w = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (w * w).sum().backward()
        >>> tg.nn.utils.clip_grads_with_norm_([w], 1.0, tg.nn.utils.get_total_norm([w.grad]))
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    grads = _grads(_listed(parameters))
    if grads:
        factor = functions.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for grad in grads:
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that their total norm is at most ``max_norm``; return the norm before scaling.

    With ``error_if_nonfinite``, raises RuntimeError unless the norm is finite.

    ``parameters`` are tensors, or one; those without a gradient are left out. ``norm_type`` is the order of the norm.
    ``foreach`` changes nothing.

    Examples:
        >>> w = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (w * w).sum().backward()
        >>> tg.nn.utils.clip_grad_norm_([w], max_norm=1.0)
        tensor(10.)
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    listed = _listed(parameters)
    if not listed and not isinstance(parameters, (Tensor, list, tuple)):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    total = get_total_norm(_grads(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, total)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients to ±``clip_value`` in place.

    ``parameters`` are tensors, or one. ``foreach`` changes nothing.

    Examples:
        >>> w = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> (w * w).sum().backward()
        >>> tg.nn.utils.clip_grad_value_([w], 7.0)
        >>> w.grad
        tensor([6., 7.])
    """
    bound = float(clip_value)
    for grad in _grads(_listed(parameters)):
        grad.clamp_(-bound, bound)


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


clip_grad_norm = deprecated(clip_grad_norm_, "torch.nn.utils")
