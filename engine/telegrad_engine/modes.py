"""What holds for a stretch of code: whether operations are recorded, and the defaults.

State is per thread, so sessions that run side by side do not see each other's.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

_F = TypeVar("_F", bound=Callable[..., Any])


class _State(threading.local):
    grad_enabled: bool = True
    default_dtype: np.dtype[Any] = np.dtype(np.float32)
    generator: np.random.Generator | None = None
    room: int = 2**48
    """Bytes that one result may take: what a session has left of its limit."""
    largest: int = 2**48
    """Bytes that one view may stand for: a session's whole limit."""


state = _State()


class _Mode:
    """A setting that holds inside a ``with`` block, a decorated function or a decorated generator."""

    def __init__(self) -> None:
        self._previous: list[bool] = []

    enabled: bool

    def __enter__(self) -> None:
        self._previous.append(state.grad_enabled)
        state.grad_enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled = self._previous.pop()

    def __call__(self, function: _F) -> _F:
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._copy():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The mode holds while the generator runs, and not while its consumer does."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            resume: Callable[[], Any] = functools.partial(next, generator)
            while True:
                try:
                    with self._copy():
                        item = resume()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield item
                except GeneratorExit:
                    with self._copy():
                        generator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
                else:
                    resume = functools.partial(generator.send, sent)

        return wrapped

    def _copy(self) -> _Mode:
        return type(self)()


class _Switch(_Mode):
    """A mode without arguments: it decorates a function with or without parentheses."""

    def __new__(cls, function: Any = None) -> Self:
        mode = super().__new__(cls)
        if function is None:
            return mode
        _Mode.__init__(mode)
        decorated: Self = mode(function)
        return decorated


class no_grad(_Switch):
    """Nothing is recorded inside: results do not require grad. Also a decorator."""

    enabled = False


class enable_grad(_Switch):
    """Recording is on inside, even within no_grad. Also a decorator."""

    enabled = True


class set_grad_enabled(_Mode):
    """Switch recording on or off, at once or, used with ``with``, until the block's end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = state.grad_enabled
        state.grad_enabled = self.enabled

    def __enter__(self) -> None:
        self._previous.append(self._before)
        state.grad_enabled = self.enabled

    def _copy(self) -> _Mode:
        return set_grad_enabled(self.enabled)

    def __call__(self, function: _F) -> _F:
        """Decorate: the mode holds in the function, not from now on."""
        state.grad_enabled = self._before
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require grad are recorded now."""
    return state.grad_enabled


def manual_seed(seed: int) -> None:
    """Start this thread's random numbers anew from ``seed``."""
    state.generator = np.random.default_rng(seed)


def generator() -> np.random.Generator:
    """This thread's random number generator."""
    if state.generator is None:
        state.generator = np.random.default_rng()
    return state.generator
