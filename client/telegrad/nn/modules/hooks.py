"""Calling a module with the hooks that a user registers on it.

Hooks run in the client and see the session's tensors. For full backward hooks, identity Functions wrap the module's
inputs and outputs. When the gradient reaches the output Function, the pre-hooks run and ``grad_output`` is recorded;
when it reaches the input Function, the hooks are called with both. The session's backward pass waits for each call.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from telegrad_engine.context import state
from telegrad_engine.errors import InvalidOperation, NotSupported
from telegrad_engine.graph.hooks import Handle, check_replacement

from ...autograd.function import Function
from ...tape.origins import current_module, enter_module, leave_module, on_tracking
from ...tensor.handle import Tensor

Grads = tuple[Any, ...]
NO_INPUT = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
    "gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
    "register_full_backward_hook for more details."
)


ModuleHooks = OrderedDict[int, Callable[..., Any]]
"""The hooks of one kind, by the ids of their handles. Programs read and change these dictionaries, as in torch."""
Flags = OrderedDict[int, bool]
"""The ids of the hooks with an option."""
_ids = count()


_trees: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The outermost modules that were called while calls were tracked, each with what the paths in its tree begin with."""


def track_modules(tracks: bool) -> None:
    """Begin or end to note which modules are called; calls take longer meanwhile."""
    Called.__call__ = _call_tracked if tracks else _call  # type: ignore[method-assign]


def _call_tracked(self: Any, *args: Any, **kwargs: Any) -> Any:
    enter_module(_path_of(self))
    try:
        return _call(self, *args, **kwargs)
    finally:
        leave_module()


def _path_of(module: Any) -> str:
    """The path of a module that is called: in the tree of the outermost one, which has the name of its class."""
    kind, outer = type(module).__name__, current_module()
    if outer is None:
        prefix = _trees.setdefault(module, f"{kind}." if len(_trees) else "")
        _paths.by_id = {id(each): prefix + path for path, each in module.named_modules() if path}
        return kind
    return str(_paths.by_id.get(id(module), outer))


class _Paths(threading.local):
    by_id: dict[int, str] = {}
    """The paths in the tree of the module that this thread calls."""


_paths = _Paths()


def add(hooks: ModuleHooks, hook: Callable[..., Any], *flags: Flags, prepend: bool = False) -> Handle:
    """Append a hook with these flags, or with ``prepend`` put it before the others."""
    key = next(_ids)
    hooks[key] = hook
    for ids in flags:
        ids[key] = True
    if prepend:
        hooks.move_to_end(key, last=False)
    return Handle(hooks, key, *flags)


class Called:
    """Calls ``forward`` with the hooks around it."""

    forward: Callable[..., Any]
    _forward_pre_hooks: ModuleHooks
    _forward_pre_hooks_with_kwargs: Flags
    _forward_hooks: ModuleHooks
    _forward_hooks_with_kwargs: Flags
    _forward_hooks_always_called: Flags
    _backward_pre_hooks: ModuleHooks
    _backward_hooks: ModuleHooks
    _is_full_backward_hook: bool | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of ``forward``, with the hooks applied."""
        if self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks:
            return self._call_hooked(args, kwargs)
        return self.forward(*args, **kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before ``forward``; a result other than None replaces the arguments.

        With ``with_kwargs``, ``hook(module, args, kwargs)`` returns None or both. ``prepend`` puts it first.
        """
        flags = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return add(self._forward_pre_hooks, hook, *flags, prepend=prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Handle:
        """Call ``hook(module, args, output)`` after ``forward``; a result other than None replaces the output.

        With ``with_kwargs``, it is called as ``hook(module, args, kwargs, output)``; with ``always_call``, also if
        ``forward`` raises. ``prepend`` puts it first.

        Examples:
            >>> layer = tg.nn.Linear(2, 1)
            >>> handle = layer.register_forward_hook(lambda module, args, output: print(output.shape))
            >>> _ = layer(tg.ones(3, 2))
            telegrad.Size([3, 1])
            >>> handle.remove()
        """
        options = (with_kwargs, self._forward_hooks_with_kwargs), (always_call, self._forward_hooks_always_called)
        return add(self._forward_hooks, hook, *[flags for wanted, flags in options if wanted], prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the module's inputs are known.

        Both are tuples; a result other than None replaces ``grad_input``.
        """
        self._is_full_backward_hook = True
        return add(self._backward_hooks, hook, prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_output)`` before the module's backward; a tuple it returns replaces the gradient."""
        return add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> NoReturn:
        """Raise NotSupported: torch passes such a hook gradients of the module's last operation, not of the module."""
        raise NotSupported("register_backward_hook is not supported; register_full_backward_hook is what it should do")

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = None
        waiting = dict(self._forward_hooks)
        try:
            for key, hook in list(self._forward_pre_hooks.items()):
                args, kwargs = self._before(key, hook, args, kwargs)
            backward = None
            if self._backward_hooks or self._backward_pre_hooks:
                hooks = list(self._backward_pre_hooks.values()), list(self._backward_hooks.values())
                backward = BackwardHooks(self, *hooks)
            result = self.forward(*(args if backward is None else backward.around_inputs(args)), **kwargs)
            for key in list(waiting):
                replaced = self._after(key, waiting.pop(key), args, kwargs, result)
                result = result if replaced is None else replaced
            if backward is not None:
                result = backward.around_outputs(result)
        except Exception:
            for key, hook in waiting.items():
                if key in self._forward_hooks_always_called:
                    self._after_failure(key, hook, args, kwargs, result)
            raise
        return result

    def _before(self, key: int, hook: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if key not in self._forward_pre_hooks_with_kwargs:
            replaced = hook(self, args)
            if replaced is None:
                return args, kwargs
            return replaced if isinstance(replaced, tuple) else (replaced,), kwargs
        both = hook(self, args, kwargs)
        if both is None:
            return args, kwargs
        if not (isinstance(both, tuple) and len(both) == 2):
            raise InvalidOperation(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {both}."
            )
        return both

    def _after(self, key: int, hook: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if key in self._forward_hooks_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def _after_failure(self, key: int, hook: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Call an ``always_call`` hook after ``forward`` raised; its own exception becomes a warning."""
        try:
            self._after(key, hook, args, kwargs, result)
        except Exception as error:
            warnings.warn(
                "module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                f"error was raised in forward: {error}",
                stacklevel=4,
            )


class BackwardHookFunction(Function):
    """An identity function whose gradients go through ``passing``.

    With ``filled``, used for inputs, absent gradients are zeros; for outputs they are None.
    """

    @staticmethod
    def forward(ctx: Any, passing: Callable[[Grads], Grads], filled: bool, *tensors: Any) -> Any:
        """Return the tensors."""
        ctx.passing = passing
        ctx.set_materialize_grads(filled)
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients that ``passing`` makes of ``grads``."""
        return (None, None, *ctx.passing(grads))


class BackwardHooks:
    """The hooks around one call of a module."""

    def __init__(self, module: Any, before: Sequence[Any], after: Sequence[Any]) -> None:
        self.module, self.before, self.after = module, before, after
        self.inputs: list[int] | None = None
        """Positions of the tensors among the arguments; None if no argument requires grad."""
        self.width = 0
        self.grad_outputs: Grads | None = None

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of ``forward``, wrapped so that their gradients reach the hooks."""
        self.width = len(args)
        args, self.inputs = _around(args, self._pass_inputs, True)
        return args

    def around_outputs(self, result: Any) -> Any:
        """Return the result of ``forward``, wrapped so that its gradients reach the hooks."""
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
    """Route the gradients of the tensors in ``values`` through ``passing``; also return their positions or None."""
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
    """Return the hooks' gradients, each checked as a replacement for the one that arrived."""

    def hook() -> None:
        """Named ``hook`` because torch's error text contains the name."""

    return tuple(
        [
            new if new is None or old is None else check_replacement(hook, new, old)
            for new, old in zip(grads, before, strict=True)
        ]
    )


_call = Called.__call__
on_tracking(track_modules)
