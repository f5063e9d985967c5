"""Full backward hooks of modules: Functions that change nothing, around a module's inputs and its outputs.

When the gradient passes the one around the outputs it is noted, after the prehooks; when it passes the one around
the inputs the hooks are called with both. Each is a stop of the session's pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_engine.context import state
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.hooks import check_replacement

from ...autograd.function import Function
from ...tensor.handle import Tensor

Grads = tuple[Any, ...]
NO_INPUT = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
    "gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
    "register_full_backward_hook for more details."
)


class BackwardHookFunction(Function):
    """Gives its tensors as they are, and their gradients as ``passing`` gives them.

    Around inputs, absent gradients are ``filled`` with zeros; hooks are told which outputs had none.
    """

    @staticmethod
    def forward(ctx: Any, passing: Callable[[Grads], Grads], filled: bool, *tensors: Any) -> Any:
        """The tensors."""
        ctx.passing = passing
        ctx.set_materialize_grads(filled)
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Their gradients."""
        return (None, None, *ctx.passing(grads))


class BackwardHooks:
    """The hooks around one call of a module."""

    def __init__(self, module: Any, before: Sequence[Any], after: Sequence[Any]) -> None:
        self.module, self.before, self.after = module, before, after
        self.inputs: list[int] | None = None
        """Positions of the arguments whose gradients pass; None if no argument requires grad."""
        self.width = 0
        self.grad_outputs: Grads | None = None

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of forward, with their gradients passing by here."""
        self.width = len(args)
        args, self.inputs = _around(args, self._pass_inputs, True)
        return args

    def around_outputs(self, result: Any) -> Any:
        """What forward returned, with its gradients passing by here."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=5,
            )
            return result
        results = result if isinstance(result, tuple) else (result,)
        places = [at for at, r in enumerate(results) if isinstance(r, Tensor)]
        results, _ = _around(results, lambda grads: self._pass_outputs(grads, places, len(results)), False)
        return results if isinstance(result, tuple) else results[0]

    def _pass_outputs(self, grads: Grads, places: list[int], width: int) -> Grads:
        given = _spread(grads, places, width)
        for hook in self.before:
            replaced = hook(self.module, given)
            if replaced is not None:
                given = _counted(replaced, width, "pre hook", "output")
        self.grad_outputs = given
        if self.inputs is None:
            self._call_without_inputs()
        return _replaced([given[at] for at in places], grads)

    def _call_without_inputs(self) -> None:
        warnings.warn(NO_INPUT, stacklevel=2)
        none = (None,) * self.width
        for hook in self.after:
            replaced = hook(self.module, none, self.grad_outputs)
            if replaced is not None and any(grad is not None for grad in replaced):
                raise InvalidOperation(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
        self.grad_outputs = None

    def _pass_inputs(self, grads: Grads) -> Grads:
        if self.grad_outputs is None or self.inputs is None:
            return grads  # the gradient came from inside the module
        given = _spread(grads, self.inputs, self.width)
        for hook in self.after:
            replaced = hook(self.module, given, self.grad_outputs)
            if replaced is not None:
                given = _counted(replaced, self.width, "hook", "input")
        self.grad_outputs = None
        return _replaced([given[at] for at in self.inputs], grads)


def _around(
    values: tuple[Any, ...], passing: Callable[[Grads], Grads], filled: bool
) -> tuple[tuple[Any, ...], list[int] | None]:
    """Values whose tensors' gradients go through ``passing``, and which they are; None if there are no gradients."""
    places = [at for at, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[at] for at in places]
    if not (state.grad_enabled and any(t.requires_grad for t in tensors)):
        return values, None
    passed = list(values)
    for at, tensor in zip(places, BackwardHookFunction.apply(passing, filled, *tensors), strict=True):
        passed[at] = tensor
    return tuple(passed), places


def _spread(grads: Grads, places: list[int], width: int) -> Grads:
    found = dict(zip(places, grads, strict=True))
    return tuple([found.get(at) for at in range(width)])


def _counted(replaced: Any, width: int, kind: str, what: str) -> Grads:
    if len(replaced) != width:
        raise InvalidOperation(
            f"Backward {kind} returned an invalid number of grad_{what}, got {len(replaced)}, but expected {width}"
        )
    return tuple(replaced)


def _replaced(grads: Sequence[Any], before: Grads) -> Grads:
    """Gradients that hooks returned, if they may stand in for those that arrived."""

    def hook() -> None:
        """Has the name that torch tells of."""

    return tuple(
        [
            new if new is None or old is None else check_replacement(hook, new, old)
            for new, old in zip(grads, before, strict=True)
        ]
    )
