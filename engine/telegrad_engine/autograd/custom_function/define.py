"""``Function``, the base class of user-defined operations, and ``apply``, which runs their forward."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ...context import no_grad, state
from ...errors import InvalidArgument, InvalidOperation, MethodMissing
from .ctx import FunctionCtx, is_tensor
from .node import Outputs


class Function:
    """Base class of operations with a custom derivative: subclass it, and call ``apply`` on the subclass.

    The subclass defines static methods: ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``; ``backward(ctx, *grads)``, which returns a gradient or None for each
    of forward's arguments; and, for forward mode, ``jvp(ctx, *tangents)``.
    """

    _backward_cls: ClassVar[type[FunctionCtx]]
    _outputs_cls: ClassVar[type[Outputs]] = Outputs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = FunctionCtx._of(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise InvalidOperation: a Function is called by ``apply``."""
        raise InvalidOperation(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    # Methods that subclasses define ------------------------------------------------------

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the operation, without recording. Returns a tensor, or a tuple of tensors and other values."""
        raise MethodMissing("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save values for backward on ``ctx``, if forward does not take a ctx."""
        raise MethodMissing("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return the gradients of forward's arguments from those of its outputs; recorded under ``create_graph``."""
        raise MethodMissing(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangents of forward's outputs from those of its arguments."""
        raise MethodMissing(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def _choose_backward(cls) -> Callable[..., Any]:
        """Return ``vjp`` if the subclass defines it, else ``backward``. Raises InvalidOperation if it defines both."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise InvalidOperation(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp

    # Methods that users call -------------------------------------------------------------

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it as one node if gradients are enabled and an argument requires grad.

        Only tensors that are arguments themselves are differentiated, not those in lists. Raises InplaceOnLeaf or
        InvalidOperation for a wrong use of ``ctx.mark_dirty``, and any error of forward.
        """
        separate = cls.setup_context is not Function.setup_context
        if separate:
            args = _with_defaults(cls.forward, args, kwargs)
        elif kwargs:
            args = _in_order(cls.forward, args, kwargs)
        ctx, observer = cls._backward_cls(args), state.observer
        if observer is None:
            entry = cls._enter(ctx, args, separate)
        else:
            entry = observer.function(cls._enter, ctx, args, separate)
        entry.save()
        return entry.outputs if entry.several else entry.outputs[0]

    @classmethod
    def _enter(cls, ctx: FunctionCtx, args: tuple[Any, ...], separate: bool) -> Outputs:
        """Run forward, and add its outputs to the graph."""
        recording = state.grad_enabled and any(ctx.needs_input_grad)
        enabled = state.grad_enabled
        try:
            state.grad_enabled = False
            if separate:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
            entry = cls._outputs_cls(ctx, args, result, recording, separate)
            entry.enter()
        finally:
            state.grad_enabled = enabled
        return entry


Function._backward_cls = FunctionCtx._of(Function)


def _with_defaults(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return forward's arguments with defaults filled in, because ``setup_context`` gets all of them."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    for name in bound.kwargs:
        raise InvalidArgument(f"forward() got an unexpected keyword argument '{name}'")
    return bound.args


def _in_order(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return keyword arguments as positional ones, because gradients are returned by position."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    params = inspect.signature(forward).parameters.values()
    names = [p.name for p in params if p.kind in positional][1:]
    for name in kwargs:
        if name not in names:
            raise InvalidArgument(f"forward() got an unexpected keyword argument '{name}'")
        if names.index(name) < len(args):
            raise InvalidArgument(f"forward() got multiple values for argument '{name}'")
    last = max(names.index(name) for name in kwargs)
    for position in range(len(args), last + 1):
        if names[position] not in kwargs:
            raise InvalidArgument(f"forward() missing required argument: '{names[position]}' (position {position})")
    return (*args, *[kwargs[name] for name in names[len(args) : last + 1]])


class Error(Function):
    """The Function of gradients that cannot be differentiated again: its backward raises InvalidOperation."""

    @staticmethod
    def forward(*grads: Any) -> Any:
        """Return the gradients unchanged."""
        return grads

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Raise InvalidOperation."""
        raise InvalidOperation("trying to differentiate twice a function that was marked with @once_differentiable")


Error._backward_cls.__name__ = "Error"  # torch's name for this node


def once_differentiable(backward: Callable[..., Any], error: type[Function] = Error) -> Callable[..., Any]:
    """Decorate a backward that is not recorded; differentiating its results raises InvalidOperation.

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

    once.is_once_differentiable = True  # type: ignore[attr-defined]  # read by code that traces the backward
    return once
