"""Checkpoints with reentrance: a Function whose backward runs the function again and a backward pass inside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...context import enable_grad
from ...errors import InvalidOperation
from ...graph import differentiation
from ..custom_function import Function
from ..custom_function.node import FunctionNode
from .frame import RandomState

WHOLE_ONLY = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
    "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
    ".backward() without passing the `inputs` argument."
)


def checkpoint_reentrant(function: Callable[..., Any], preserve: bool, args: tuple[Any, ...]) -> Any:
    """Return ``function(*args)``, recorded as one node. Warns if no argument requires grad."""
    if not any(_is_tensor(a) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)
    result = CheckpointFunction.apply(function, preserve, *args)
    for output in result if isinstance(result, tuple) else (result,):
        if _is_tensor(output) and isinstance(output.grad_fn, FunctionNode):
            output.grad_fn.__class__ = _WholePassNode
    return result


class CheckpointFunction(Function):
    """The Function that runs a checkpointed call as one operation."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Run the function without recording, and save its arguments."""
        ctx.function = function
        ctx.random = RandomState(preserve)
        ctx.constants = [None if _is_tensor(a) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if _is_tensor(a)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the function again with recording, and differentiate the result."""
        args = list(ctx.constants)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with enable_grad(), ctx.random.restored():
            result = ctx.function(*args)
        outputs = result if isinstance(result, tuple) else (result,)
        tracked = [
            (out, grad) for out, grad in zip(outputs, grads, strict=True) if _is_tensor(out) and out.requires_grad
        ]
        if not tracked:
            raise InvalidOperation("none of output has requires_grad=True, this checkpoint() is not necessary")
        roots, seeds = zip(*tracked, strict=True)
        differentiation.backward(roots, seeds)
        return None, None, *[a.grad if _is_tensor(a) else None for a in args]


class _WholePassNode(FunctionNode):
    """The node of a reentrant checkpoint, which rejects passes with ``inputs``: the inner pass fills all leaves."""

    def evaluate(self, run: Any, grads: Sequence[Any]) -> None:
        """Run the backward. Raises InvalidOperation if the pass computes only the gradients of chosen inputs."""
        if run.wanted is not None:
            raise InvalidOperation(WHOLE_ONLY)
        super().evaluate(run, grads)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "_data")
