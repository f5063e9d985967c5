"""Forward mode, as ``torch.autograd.forward_ad``: tangents that travel with the values they belong to.

Between entering and exiting a level a tensor may have a tangent (:mod:`.level`), and the thread has an observer that
gives results theirs (:mod:`.observer`): by the op's own derivative, transposed, or by a Function's ``jvp``
(:mod:`.push`). docs/decisions/0012 says why.
"""

from __future__ import annotations

from typing import Any

from ...context import Mode, observe, observer_of, stop_observing
from ...errors import InvalidOperation
from .dual import UnpackedDualTensor, check_exit, make, unpack
from .level import Level, active, tangent_of
from .observer import ForwardMode


def enter_dual_level() -> int:
    """Begin forward mode on this thread; returns the level, which is 0: they do not nest."""
    if active.level is not None:
        raise InvalidOperation("Nested forward mode AD is not supported at the moment")
    active.level = Level()
    observe(ForwardMode(active.level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode: all tangents are gone. Raises InvalidOperation where no level was entered."""
    entered = active.level
    check_exit(level, entered)
    assert entered is not None, "it was checked"
    entered.end()
    active.level = None
    observer = observer_of(ForwardMode)
    assert observer is not None, "it came with the level"
    stop_observing(observer)


class dual_level(Mode):
    """Forward mode inside a ``with`` block, or in a function that this decorates; as a context it is the level."""

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """A view of ``tensor`` with a tangent of the same shape.

    Raises InvalidOperation outside of a level or where there is a tangent already, InvalidValue for dtypes that
    have no derivative, ShapeMismatch for another shape.
    """
    return make(tensor, tangent, level, active.level)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of ``tensor`` without its tangent, and its tangent or None.

    Raises InvalidArgument within a level for what is not a tensor.
    """
    return unpack(tensor, level, active.level)


class _set_fwd_grad_enabled(Mode):
    """Switch forward mode off or on within a level, at once or, used with ``with``, until the block's end."""

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
    """Whether forward mode is on: it is off in a Function's forward and jvp. Levels aside."""
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
