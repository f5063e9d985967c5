"""The functions of ``torch.autograd.forward_ad``, for the engine's tensors and for the SDK's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, NamedTuple

from ...context import Mode, state
from ...errors import InvalidArgument, InvalidOperation, InvalidValue
from .level import Level


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual tensor; ``tangent`` is None if it has none."""

    primal: Any
    tangent: Any


def check_floating(what: str, tensor: Any) -> None:
    """Raise InvalidValue unless the dtype is a floating-point one."""
    if not tensor.is_floating_point():
        raise InvalidValue(f"Expected {what} to be floating point or complex, but got: torch.{tensor.dtype.name}")


class ForwardAD(threading.local):
    """The functions for one kind of tensors, and the level that each thread has entered."""

    enabled = True
    """Whether forward mode is on, even outside a level."""

    def __init__(self, new_level: Callable[[ForwardAD], Level]) -> None:
        self._new_level = new_level
        self._exits = ExitStack()
        self.level: Level | None = None

    def enter_dual_level(self) -> int:
        """Begin forward mode on this thread, and return the level, which is 0.

        Raises InvalidOperation inside a level.
        """
        if self.level is not None:
            raise InvalidOperation("Nested forward mode AD is not supported at the moment")
        self.level = self._new_level(self)
        self._exits.enter_context(self.level.activated())
        return 0

    def exit_dual_level(self, *, level: int | None = None) -> None:
        """End forward mode and discard all tangents. Raises InvalidOperation if no level was entered."""
        if level is not None and level != (-1 if self.level is None else 0):
            raise InvalidOperation(
                "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
            )
        if self.level is None:
            raise InvalidOperation("Dual level must be a positive number.")
        self._exits.close()
        self.level.end()
        self.level = None

    def make_dual(self, tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
        """Return a view of ``tensor`` with a tangent of the same shape.

        Raises InvalidOperation outside a level or if a tensor already has a tangent, InvalidValue for dtypes without a
        derivative, and ShapeMismatch for a tangent of another shape.
        """
        entered = self.level
        if (entered is None and level is None) or (level is not None and level < 0):
            raise InvalidOperation(
                "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() "
                "first."
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

    def unpack_dual(self, tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
        """Return the value of ``tensor`` without its tangent, and its tangent or None.

        Inside a level, raises InvalidArgument unless ``tensor`` is a tensor.
        """
        entered = self.level
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

    def is_enabled(self) -> bool:
        """Whether forward mode is on, even outside a level.

        It is off in a Function's forward and ``jvp``, and in inference mode.
        """
        return self.enabled and not state.inference and (self.level is None or not self.level.is_suspended)


class EnterLevel(Mode):
    """Context manager or decorator that enters a level."""

    functions: ClassVar[ForwardAD]

    def __enter__(self) -> int:  # type: ignore[override]
        return self.functions.enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        self.functions.exit_dual_level()


class SwitchForwardMode(Mode):
    """Switch forward mode on or off at once; as a context manager, until the end of the block."""

    functions: ClassVar[ForwardAD]

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before = self.functions.enabled
        self.__enter__()

    def __enter__(self) -> None:
        self.functions.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        self.functions.enabled = self._before

    def _copy(self) -> Mode:
        return type(self)(self.enabled)


def _view(tensor: Any) -> Any:
    return tensor.view(tuple(tensor.shape))
