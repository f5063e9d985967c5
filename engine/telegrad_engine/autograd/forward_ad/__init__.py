"""Forward mode, as in ``torch.autograd.forward_ad``: operations compute tangents together with values.

Inside a level a tensor may have a tangent (:mod:`.level`), and an observer on the thread computes the tangents of
results (:mod:`.observer`), by the transposed derivative of the op or by the ``jvp`` of a Function (:mod:`.push`).
docs/decisions/0012 gives the reasons.
"""

from __future__ import annotations

from typing import Any

from ...context import Mode, observe, observer_of, stop_observing
from ...errors import InvalidOperation
from .dual import UnpackedDualTensor, check_exit, make, unpack
from .level import Level, active, tangent_of
from .observer import ForwardMode


def enter_dual_level() -> int:
    """Begin forward mode on this thread, and return the level, which is 0. Raises InvalidOperation inside a level."""
    if active.level is not None:
        raise InvalidOperation("Nested forward mode AD is not supported at the moment")
    active.level = Level()
    observe(ForwardMode(active.level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode and discard all tangents. Raises InvalidOperation if no level was entered."""
    entered = active.level
    check_exit(level, entered)
    assert entered is not None, "it was checked"
    entered.end()
    active.level = None
    observer = observer_of(ForwardMode)
    assert observer is not None, "it came with the level"
    stop_observing(observer)


class dual_level(Mode):
    """Context manager or decorator that enables forward mode; a ``with`` statement binds the level."""

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """Return a view of ``tensor`` with a tangent of the same shape.

    Raises InvalidOperation outside a level or if a tensor already has a tangent, InvalidValue for dtypes without a
    derivative, and ShapeMismatch for a tangent of another shape.
    """
    return make(tensor, tangent, level, active.level)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the value of ``tensor`` without its tangent, and its tangent or None.

    Inside a level, raises InvalidArgument unless ``tensor`` is a tensor.
    """
    return unpack(tensor, level, active.level)


class _set_fwd_grad_enabled(Mode):
    """Switch forward mode on or off inside a level at once; as a context manager, until the end of the block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = active.enabled
        _switch(self.enabled)

    def __enter__(self) -> None:
        _switch(self.enabled)

    def __exit__(self, *exc: object) -> None:
        _switch(self._before)

    def _copy(self) -> Mode:
        return _set_fwd_grad_enabled(self.enabled)


def _is_fwd_grad_enabled() -> bool:
    """Whether forward mode is on, even outside a level. It is off in a Function's forward and ``jvp``."""
    return active.enabled and (active.level is None or not active.level.is_suspended)


def _switch(enabled: bool) -> None:
    active.enabled = enabled


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "tangent_of",
    "unpack_dual",
]
