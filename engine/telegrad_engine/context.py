"""This thread's modes: grad mode, inference mode, autocast, device, default dtype, generator and observer.

State is per thread, so sessions that run side by side do not see each other's.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from .instrumentation import Observer

_F = TypeVar("_F", bound=Callable[..., Any])
_O = TypeVar("_O", bound=Observer)


# What modes hold is declared by its use: the classes are in modules that build on this one.


class Grantor(Protocol):
    """What grants memory: a session's accounts."""

    def reserve(self, nbytes: int) -> None:
        """Set bytes aside. Raises TooLarge if there is no room for them."""

    def release(self, nbytes: int) -> None:
        """Give back what was reserved."""

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if so many more bytes would pass a limit."""

    def check_process(self, nbytes: int) -> None:
        """Raise TooLarge if the process, whatever the session has, has no room for so many bytes."""

    def count(self, array: Any, lent: bool = False) -> None:
        """Count an array for as long as it lives; ``lent`` if its memory came from outside and is nobody else's."""


class AutocastMode(Protocol):
    """What casts the inputs of ops: ``amp.autocast.Autocast``."""

    settings: Any
    casts: Any
    caching: bool

    def cast(self, op: Any, inputs: tuple[Any, ...], attrs: Any) -> tuple[Any, tuple[Any, ...], Any]:
        """The op and its arguments in the precision that it is to run in."""


class AnomalyMode(Protocol):
    """What anomaly mode checks: ``anomaly.Anomaly``."""

    @property
    def check_nan(self) -> bool:
        """Whether a derivative that gives a NaN raises."""

    @property
    def parent(self) -> Any:
        """The node that is being differentiated, if one is."""

    @property
    def explain(self) -> Callable[[Any, Any, Exception], None]:
        """What is done about an error at a node of a pass."""

    def watching(self, kind: type[Any]) -> type[Any]:
        """This kind of pass, the same but that it is watched."""

    def _replace(self, *, parent: Any) -> Self: ...


class ActiveDevice(Protocol):
    """Where ops run that are not NumPy's: ``devices.Device``."""

    backend: Any
    Tensor: type[Any]

    def apply(self, op: Any, inputs: tuple[Any, ...], attrs: Any = ...) -> Any:
        """Execute an op there."""

    def upload(self, array: Any) -> Any:
        """A tensor there with the values of a NumPy array."""


class _State(threading.local):
    grad_enabled: bool = True
    default_dtype: np.dtype[Any] = np.dtype(np.float32)
    generator: np.random.Generator | None = None
    anomaly: AnomalyMode | None = None
    """What anomaly mode checks, while it is on."""
    anomaly_check_nan: bool = True
    saved_hooks: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """How saved tensors are packed and unpacked, if they are."""
    saved_hooks_refused: str | None = None
    """Why they must not be."""
    inference: bool = False
    """Whether inference mode is on: nothing is recorded, and what is made is an inference tensor."""
    grad_inside: bool = False
    """In inference mode, what is_grad_enabled answers, though nothing is recorded there in any case."""
    autocast: AutocastMode | None = None
    """The precision that ops are to run in, while autocast is on."""
    device: ActiveDevice | None = None
    """Where tensors are made and ops run; None is NumPy, in this process."""
    memory: Grantor | None = None
    """What grants the memory that ops need; None outside of sessions."""
    room: int = 2**48
    """Bytes that one result may take: what a session has left of its limit."""
    largest: int = 2**48
    """Bytes that one view may stand for: a session's whole limit."""
    observer: Observer | None = None
    """What sees what this thread executes."""
    ops_observed: bool = False
    """Whether it, or one that was added before it, sees ops; then the fast paths step aside."""


state = _State()
observers: list[Observer] = []
"""Those of all threads. Hot paths ask for their own thread's only if there are any: a thread-local is slow to read."""


def observe(observer: Observer) -> None:
    """Have ``observer``, which no thread has yet, see what this thread executes, until ``stop_observing``."""
    observers.append(observer)
    _form_chain([observer, *_chain()])


def stop_observing(observer: Observer) -> None:
    """Take back ``observe``, on the same thread; observers that were added later stay."""
    left = [*_chain()]
    left.remove(observer)
    observers.remove(observer)
    _form_chain(left)


@contextmanager
def observed_by(observer: _O) -> Iterator[_O]:
    """Within, ``observer`` sees what this thread executes."""
    observe(observer)
    try:
        yield observer
    finally:
        stop_observing(observer)


def observer_of(kind: type[_O]) -> _O | None:
    """This thread's observer of a class, the one that was added last; None if it has none."""
    return next((observer for observer in _chain() if isinstance(observer, kind)), None)


def _chain() -> Iterator[Observer]:
    """This thread's observers, the one that was added last first."""
    observer = state.observer
    while observer is not None:
        yield observer
        observer = observer.outer


def _form_chain(chain: list[Observer]) -> None:
    outer = None
    for observer in reversed(chain):
        observer.outer, outer = outer, observer
    state.observer, state.ops_observed = outer, any(observer.sees_ops for observer in chain)


class Mode:
    """A setting that holds inside a ``with`` block, a decorated function or a decorated generator."""

    def __init__(self) -> None:
        self._previous: list[bool] = []

    enabled: bool

    def __enter__(self) -> None:
        self._previous.append(is_grad_enabled())
        _set_grad(self.enabled)

    def __exit__(self, *exc: object) -> None:
        _set_grad(self._previous.pop())

    def __call__(self, function: _F) -> _F:
        """Decorate: the mode holds while ``function`` runs."""
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

    def _copy(self) -> Mode:
        return type(self)()


class _Switch(Mode):
    """A mode without arguments: it decorates a function with or without parentheses."""

    def __new__(cls, function: Any = None) -> Self:
        mode = super().__new__(cls)
        if function is None:
            return mode
        Mode.__init__(mode)
        decorated: Self = mode(function)
        return decorated


class no_grad(_Switch):
    """Nothing is recorded inside: results do not require grad. Also a decorator."""

    enabled = False


class enable_grad(_Switch):
    """Recording is on inside, even within no_grad. Also a decorator."""

    enabled = True


class set_grad_enabled(Mode):
    """Switch recording on or off, at once or, used with ``with``, until the block's end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = is_grad_enabled()
        _set_grad(self.enabled)

    def __enter__(self) -> None:
        self._previous.append(self._before)
        _set_grad(self.enabled)

    def _copy(self) -> Mode:
        return set_grad_enabled(self.enabled)

    def __call__(self, function: _F) -> _F:
        """Decorate: the mode holds in the function, not from now on."""
        _set_grad(self._before)
        return super().__call__(function)


class inference_mode(Mode):
    """As no_grad, and what is made inside can never enter a graph: no versions are counted. Also a decorator.

    ``inference_mode(False)`` is ordinary mode, with recording on, within another.
    """

    def __new__(cls, mode: Any = True) -> Self:  # noqa: D102
        instance = super().__new__(cls)
        if isinstance(mode, bool):
            return instance
        instance.__init__()  # type: ignore[misc]
        decorated: Self = instance(mode)
        return decorated

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self._outer: list[tuple[bool, bool, bool]] = []

    def __enter__(self) -> None:
        self._outer.append((state.inference, state.grad_enabled, state.grad_inside))
        state.inference, state.grad_enabled, state.grad_inside = self.mode, not self.mode, False

    def __exit__(self, *exc: object) -> None:
        state.inference, state.grad_enabled, state.grad_inside = self._outer.pop()

    def _copy(self) -> Mode:
        return inference_mode(self.mode)


def _set_grad(enabled: bool) -> None:
    if state.inference:
        state.grad_inside = enabled
    else:
        state.grad_enabled = enabled


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require grad are recorded now; inference mode aside."""
    return state.grad_inside if state.inference else state.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on."""
    return state.inference


def manual_seed(seed: int) -> None:
    """Seed this thread's generator with ``seed``."""
    state.generator = np.random.default_rng(seed)


def generator() -> np.random.Generator:
    """This thread's random number generator."""
    if state.generator is None:
        state.generator = np.random.default_rng()
    return state.generator
