"""``once_differentiable``: for a backward that cannot be differentiated itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...context import no_grad, state
from ...errors import InvalidOperation
from .ctx import is_tensor
from .define import Function


class Error(Function):
    """Stands behind gradients that cannot be differentiated again, and says so when one tries to."""

    @staticmethod
    def forward(ctx: Any, *grads: Any) -> Any:
        """The gradients themselves."""
        return grads

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Refuses."""
        raise InvalidOperation("trying to differentiate twice a function that was marked with @once_differentiable")


Error._backward_cls.__name__ = "Error"  # torch's name for this node


def once_differentiable(backward: Callable[..., Any], error: type[Function] = Error) -> Callable[..., Any]:
    """Decorate a backward that is not recorded; differentiating what it returned raises InvalidOperation.

    ``error`` is the Function that raises it.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            results = backward(ctx, *grads)
        if not (state.grad_enabled and any(is_tensor(g) and g.requires_grad for g in grads)):
            return results
        if not isinstance(results, tuple):
            results = (results,)
        return error.apply(*[r.detach().requires_grad_() if is_tensor(r) else r for r in results])

    once.is_once_differentiable = True  # type: ignore[attr-defined]  # for those who trace it
    return once
