"""``torch.autograd.forward_ad``, for the engine's tensors and for the SDK's.

Inside a level a tensor may have a tangent, and operations compute the tangents of their results (:mod:`.tangents`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..context import Mode, observe, state, stop_observing
from ..errors import InvalidArgument, InvalidOperation, InvalidValue
from .tangents import Level, thread
from .tangents import push_tangents as push_tangents


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual tensor; ``tangent`` is None if it has none.

    ``primal`` is the value.

    Examples:
        >>> tg.autograd.forward_ad.unpack_dual(tg.ones(2)).tangent is None
        True
    """

    primal: Any
    tangent: Any


def check_floating(what: str, tensor: Any) -> None:
    """Raise InvalidValue unless the dtype is a floating-point one."""
    if not tensor.is_floating_point():
        raise InvalidValue(f"Expected {what} to be floating point or complex, but got: torch.{tensor.dtype.name}")


def enter_dual_level() -> int:
    """Begin forward mode on this thread, and return the level, which is 0.

    Raises InvalidOperation inside a level.

    Examples:
        >>> tg.autograd.forward_ad.enter_dual_level()
        0
        >>> tg.autograd.forward_ad.exit_dual_level()
    """
    if thread.level is not None:
        raise InvalidOperation("Nested forward mode AD is not supported at the moment")
    thread.level = Level()
    observe(thread.level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode and discard all tangents. Raises InvalidOperation if no level was entered.

    ``level`` can only be the current one.

    Examples:
        >>> level = tg.autograd.forward_ad.enter_dual_level()
        >>> tg.autograd.forward_ad.exit_dual_level(level=level)
    """
    if level is not None and level != (-1 if thread.level is None else 0):
        raise InvalidOperation(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if thread.level is None:
        raise InvalidOperation("Dual level must be a positive number.")
    stop_observing(thread.level)
    thread.level.end()
    thread.level = None


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """Return a view of ``tensor`` with a tangent of the same shape.

    Raises InvalidOperation outside a level or if a tensor already has a tangent, InvalidValue for dtypes without a
    derivative, and ShapeMismatch for a tangent of another shape.

    ``level`` can only be the current one.

    Examples:
        >>> with tg.autograd.forward_ad.dual_level():
        ...     x = tg.autograd.forward_ad.make_dual(tg.tensor([3.0]), tg.tensor([1.0]))
        ...     print(tg.autograd.forward_ad.unpack_dual(x.exp().log()).tangent)
        tensor([1.])
    """
    entered = thread.level
    if (entered is None and level is None) or (level is not None and level < 0):
        raise InvalidOperation(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    check_floating("primal", tensor)
    check_floating("tangent", tangent)
    if level not in (None, 0) or entered is None:
        raise InvalidOperation("Invalid level given to _make_dual")
    if not entered.enabled:
        return _view(tensor)
    if entered.of(tensor) is not None:
        raise InvalidOperation(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    if entered.of(tangent) is not None:
        raise InvalidOperation(
            "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
        )
    with entered.suspended():
        dual = _view(tensor)
    entered.give(dual, tangent)
    return dual


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the value of ``tensor`` without its tangent, and its tangent or None.

    Inside a level, raises InvalidArgument unless ``tensor`` is a tensor.

    ``level`` can only be the current one.

    Examples:
        >>> tg.autograd.forward_ad.unpack_dual(tg.ones(2)).primal
        tensor([1., 1.])
    """
    entered = thread.level
    if entered is None:
        return UnpackedDualTensor(tensor, None)
    if not hasattr(tensor, "_data"):
        raise InvalidArgument(
            f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}"
        )
    tangent = entered.of(tensor) if level in (None, 0) and entered.enabled else None
    with entered.suspended():
        primal = _view(tensor)
    entered.strip(primal)
    return UnpackedDualTensor(primal, tangent)


def _is_fwd_grad_enabled() -> bool:
    """Whether forward mode is on, even outside a level.

    It is off in a Function's forward and ``jvp``, and in inference mode.
    """
    return thread.enabled and not state.inference if thread.level is None else thread.level.enabled


class dual_level(Mode):
    """Context manager or decorator that enters a level; a ``with`` statement binds the level.

    Examples:
        >>> with tg.autograd.forward_ad.dual_level():
        ...     x = tg.autograd.forward_ad.make_dual(tg.tensor([3.0]), tg.tensor([1.0]))
        ...     print(tg.autograd.forward_ad.unpack_dual(x * x).tangent)
        tensor([6.])
    """

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


class _set_fwd_grad_enabled(Mode):
    """Switch forward mode on or off at once; as a context manager, until the end of the block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = thread.enabled
        thread.enabled = self.enabled

    def __enter__(self) -> None:
        thread.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        thread.enabled = self._before

    def _copy(self) -> Mode:
        return _set_fwd_grad_enabled(self.enabled)


def _view(tensor: Any) -> Any:
    return tensor.view(tuple(tensor.shape))


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
