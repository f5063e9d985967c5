"""Calling a module, and the hooks that a user may put around that.

Hooks are Python on the client and see the session's tensors. Those of the backward pass (backward_hooks.py) have
the session's pass wait for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from telegrad_engine.errors import InvalidOperation, NotSupported
from telegrad_engine.graph.hooks import Handle, Hooks

from .backward_hooks import BackwardHooks


class _Hook(NamedTuple):
    call: Callable[..., Any]
    with_kwargs: bool
    always: bool


class Called:
    """What can be called: ``forward`` with the hooks around it."""

    forward: Callable[..., Any]
    _pre_hooks: Hooks | None = None
    _hooks: Hooks | None = None
    _backward_pre_hooks: Hooks | None = None
    _backward_hooks: Hooks | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What ``forward`` gives, after the hooks."""
        if self._pre_hooks is None and self._hooks is None and not self._hooked_backward:
            return self.forward(*args, **kwargs)
        return self._call_hooked(args, kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before ``forward``; what it returns, if not None, are the arguments.

        With ``with_kwargs``, ``hook(module, args, kwargs)`` returns None or both. ``prepend`` puts it first.
        """
        self._pre_hooks = self._pre_hooks or Hooks()
        return self._pre_hooks.add(_Hook(hook, with_kwargs, False), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns, if not None, is the output.

        With ``with_kwargs`` it is called as ``hook(module, args, kwargs, output)``; with ``always_call`` also where
        ``forward`` raises. ``prepend`` puts it first.
        """
        self._hooks = self._hooks or Hooks()
        return self._hooks.add(_Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the module's inputs are known.

        Both are tuples; what it returns, if not None, takes the place of ``grad_input``.
        """
        self._backward_hooks = self._backward_hooks or Hooks()
        return self._backward_hooks.add(hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_output)`` before the module's backward; a tuple it returns takes its place."""
        self._backward_pre_hooks = self._backward_pre_hooks or Hooks()
        return self._backward_pre_hooks.add(hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> NoReturn:
        """Not available: torch gives it the gradients of the module's last operation, not of the module."""
        raise NotSupported("register_backward_hook is not supported; register_full_backward_hook is what it should do")

    @property
    def _hooked_backward(self) -> bool:
        return bool(len(self._backward_hooks or ()) or len(self._backward_pre_hooks or ()))

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = None
        waiting = dict(self._hooks or {})
        try:
            for hook in list((self._pre_hooks or {}).values()):
                args, kwargs = self._before(hook, args, kwargs)
            backward = self._around_backward()
            result = self.forward(*(args if backward is None else backward.around_inputs(args)), **kwargs)
            for key in list(waiting):
                replaced = self._after(waiting.pop(key), args, kwargs, result)
                result = result if replaced is None else replaced
            if backward is not None:
                result = backward.around_outputs(result)
        except Exception:
            for hook in waiting.values():
                self._after_failure(hook, args, kwargs, result)
            raise
        return result

    def _around_backward(self) -> BackwardHooks | None:
        if not self._hooked_backward:
            return None
        before, after = self._backward_pre_hooks or Hooks(), self._backward_hooks or Hooks()
        return BackwardHooks(self, list(before.values()), list(after.values()))

    def _before(self, hook: _Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if not hook.with_kwargs:
            replaced = hook.call(self, args)
            if replaced is None:
                return args, kwargs
            return replaced if isinstance(replaced, tuple) else (replaced,), kwargs
        both = hook.call(self, args, kwargs)
        if both is None:
            return args, kwargs
        if not (isinstance(both, tuple) and len(both) == 2):
            raise InvalidOperation(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {both}."
            )
        return both

    def _after(self, hook: _Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if hook.with_kwargs:
            return hook.call(self, args, kwargs, result)
        return hook.call(self, args, result)

    def _after_failure(self, hook: _Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Call a hook that is always called. What it raises must not hide what ``forward`` raised."""
        if not hook.always:
            return
        try:
            self._after(hook, args, kwargs, result)
        except Exception as error:
            warnings.warn(
                "module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                f"error was raised in forward: {error}",
                stacklevel=4,
            )
