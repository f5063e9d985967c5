"""This thread's modes: grad mode, inference mode, autocast, device, default dtype, generator and observer.

A generator's state is also available as bytes, so that a tensor can store it.

The state is per thread, so concurrent sessions do not affect each other.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from .errors import InvalidArgument, InvalidOperation
from .instrumentation import Observer

_F = TypeVar("_F", bound=Callable[..., Any])
_O = TypeVar("_O", bound=Observer)


class MemoryBudget(Protocol):
    """Grants memory: ``session.memory_accounting.Accounts``, whose module imports this one."""

    @property
    def room(self) -> int:
        """The number of bytes that the session's own limit leaves."""

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes. Raises TooLarge if there is no room for them."""

    def release(self, nbytes: int) -> None:
        """Release reserved bytes."""

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if this many more bytes would exceed the session's limit, or the error of a shared quota."""

    def check_quota(self, nbytes: int) -> None:
        """Raise an error if this many more bytes would exceed a quota that the session shares with others."""

    def count(self, array: Any, lent: bool = False) -> None:
        """Count an array while it is alive; ``lent`` if it is the only user of memory that came from outside."""

    def unshare(self, tensors: Iterable[Any]) -> bool:
        """Copy memory of read-only tensors that is shared with a fork of the session. Return whether there was any."""


class _State(threading.local):
    # Hot paths read these five from ``__dict__``, which takes a third of the time of an attribute.
    grad_enabled: bool
    inference: bool
    """Whether inference mode is on: nothing is recorded, and new tensors are inference tensors."""
    autocast: Any
    """The settings of autocast (``amp.autocast.Autocast``), or None if it is off."""
    device: Any
    """The device where tensors are created and ops run (``devices.Device``); None is the CPU with NumPy."""
    ops_observed: bool
    """Whether any observer of this thread sees ops, so that no call is a prepared one."""

    default_dtype: np.dtype[Any] = np.dtype(np.float32)
    generator: np.random.Generator | None = None
    anomaly: Any = None
    """The settings of anomaly mode (``autograd.anomaly.Anomaly``), or None if it is off."""
    anomaly_check_nan: bool = True
    saved_hooks: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """The pack and unpack hooks for saved tensors, or None."""
    saved_hooks_refused: str | None = None
    """The error text if saved tensor hooks are disabled, or None."""
    grad_inside: bool = False
    """The result of is_grad_enabled in inference mode, where nothing is recorded in either case."""
    memory: MemoryBudget | None = None
    """The grantor of memory for ops; None outside of sessions."""
    room: int = 2**48
    """The maximum bytes of one result: the unused part of the session's limit."""
    largest: int = 2**48
    """The maximum bytes of one view, counted at its full shape: the session's whole limit."""
    observer: Observer | None = None
    """The observer of this thread that was added last, or None."""

    def __init__(self) -> None:
        self.grad_enabled, self.inference, self.ops_observed = True, False, False
        self.autocast = self.device = None


state = _State()
observers: list[Observer] = []
"""The observers of all threads, with the SDK's transforms.

Hot paths read the slow thread-local ``state.observer`` only if there are any.
"""


def observe(observer: Observer) -> None:
    """Add ``observer``, which no thread has yet, to this thread, until ``stop_observing``.

    Observers of ops are before the others in the chain, so that :func:`below` leaves out only observers of ops.
    """
    observers.append(observer)
    before = [*chain(state.observer)]
    first = 0 if observer.sees_ops else sum([other.sees_ops for other in before])
    _form_chain([*before[:first], observer, *before[first:]])


def stop_observing(observer: Observer) -> None:
    """Remove ``observer`` from this thread; observers that were added later stay."""
    left = [*chain(state.observer)]
    left.remove(observer)
    observers.remove(observer)
    _form_chain(left)


@contextmanager
def observed_by(observer: _O) -> Iterator[_O]:
    """Add ``observer`` to this thread within the block."""
    outer = observer.outer  # not None if a block around this one has the same observer
    observe(observer)
    try:
        yield observer
    finally:
        stop_observing(observer)
        observer.outer = outer


class below:
    """Within the block, leave out ``observer``, an observer of ops, and those of ops that were added after it."""

    __slots__ = ("_before", "_observer")

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __enter__(self) -> None:
        self._before = state.observer, state.ops_observed
        if self._observer in chain(state.observer):
            outer = state.observer = self._observer.outer
            state.ops_observed = outer is not None and outer.sees_ops

    def __exit__(self, *exc: object) -> None:
        state.observer, state.ops_observed = self._before


def observer_of(kind: type[_O]) -> _O | None:
    """This thread's most recently added observer of a class, or None."""
    return next((observer for observer in chain(state.observer) if isinstance(observer, kind)), None)


def chain(observer: Observer | None) -> Iterator[Observer]:
    """An observer and those that were added before it, most recently added first."""
    while observer is not None:
        yield observer
        observer = observer.outer


def _form_chain(observers: list[Observer]) -> None:
    outer = None
    for observer in reversed(observers):
        observer.outer, outer = outer, observer
    state.observer, state.ops_observed = outer, any(observer.sees_ops for observer in observers)


class Mode:
    """A setting that applies within a ``with`` block, a decorated function or a decorated generator."""

    def __init__(self) -> None:
        self._previous: list[bool] = []

    enabled: bool

    def __enter__(self) -> None:
        self._previous.append(is_grad_enabled())
        _set_grad(self.enabled)

    def __exit__(self, *exc: object) -> None:
        _set_grad(self._previous.pop())

    def __call__(self, function: _F) -> _F:
        """Decorate ``function`` so that it runs in this mode."""
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._copy():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a generator function: the mode applies while the generator runs, but not while its consumer runs."""

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
    """A mode that can be used as a decorator with or without parentheses."""

    def __new__(cls, mode: Any = None) -> Self:
        instance = super().__new__(cls)
        if mode is None or isinstance(mode, bool):
            return instance
        instance.__init__()  # type: ignore[misc]
        decorated: Self = instance(mode)
        return decorated


class no_grad(_Switch):
    """Disable recording within the block, so that results do not require grad. Also a decorator.

    ``mode`` is the decorated function, if it is used without parentheses.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.no_grad():
        ...     print((x * 2).requires_grad)
        False
    """

    enabled = False


class enable_grad(_Switch):
    """Enable recording within the block, even inside no_grad. Also a decorator.

    ``mode`` is the decorated function, if it is used without parentheses.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.no_grad(), tg.enable_grad():
        ...     print((x * 2).requires_grad)
        True
    """

    enabled = True


class set_grad_enabled(Mode):
    """Switch recording on or off immediately; in a ``with`` statement, until the end of the block.

    ``mode`` says which.

    Examples:
        >>> with tg.set_grad_enabled(False):
        ...     print(tg.is_grad_enabled())
        False
    """

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
        """Decorate ``function`` so that the mode applies only in it, and restore the mode from before."""
        _set_grad(self._before)
        return super().__call__(function)


class inference_mode(_Switch):
    """Like no_grad, but tensors created inside can never enter a graph and have no versions. Also a decorator.

    ``inference_mode(False)`` switches back to normal mode, with recording on.

    Examples:
        >>> with tg.inference_mode():
        ...     print(tg.ones(2).is_inference())
        True
    """

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
    """Whether operations on tensors that require grad are recorded, ignoring inference mode.

    Examples:
        >>> with tg.no_grad():
        ...     print(tg.is_grad_enabled())
        False
    """
    return state.grad_inside if state.inference else state.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on.

    Examples:
        >>> tg.is_inference_mode_enabled()
        False
    """
    return state.inference


def manual_seed(seed: int) -> None:
    """Seed this thread's generator with ``seed``."""
    state.generator = np.random.default_rng(seed)


def generator() -> np.random.Generator:
    """This thread's random number generator."""
    if state.generator is None:
        state.generator = np.random.default_rng()
    return state.generator


GENERATOR_STATE_SIZE = 37
"""The size in bytes: PCG64's two 128-bit numbers, whether it has an unused 32-bit draw, and that draw."""


def generator_to_bytes(generator: np.random.Generator) -> Any:
    """Return the generator's state as a uint8 array of ``GENERATOR_STATE_SIZE`` elements."""
    state: Any = generator.bit_generator.state
    numbers = (state["state"]["state"], 16), (state["state"]["inc"], 16), (state["has_uint32"], 1)
    parts = [number.to_bytes(size, "little") for number, size in (*numbers, (state["uinteger"], 4))]
    return np.frombuffer(b"".join(parts), np.uint8).copy()


def generator_from_bytes(array: Any) -> np.random.Generator:
    """Return a generator in this state. Raises TypeError or RuntimeError if the state is invalid."""
    if array.dtype != np.uint8:
        raise InvalidArgument("RNG state must be a torch.ByteTensor")
    if array.shape != (GENERATOR_STATE_SIZE,):
        raise InvalidOperation(
            f"Expected a CPUGeneratorImplState of size {GENERATOR_STATE_SIZE} but found the input RNG state size to be "
            f"{array.size}"
        )
    data = array.tobytes()
    state, increment, left, half = (
        int.from_bytes(data[start:end], "little") for start, end in ((0, 16), (16, 32), (32, 33), (33, 37))
    )
    if left > 1 or not increment % 2:
        raise InvalidOperation("RNG state is not one that a generator was in")
    generator = np.random.default_rng()
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": increment},
        "has_uint32": left,
        "uinteger": half,
    }
    return generator
