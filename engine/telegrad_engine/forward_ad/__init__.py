"""Forward mode, as ``torch.autograd.forward_ad``: tangents that travel with the values they belong to.

Between entering and exiting a level a tensor may have a tangent (:mod:`.level`), and what executes forward is
replaced by functions that give results theirs (:mod:`.install`): the op's own derivative, transposed, or a
Function's ``jvp`` (:mod:`.push`). Outside of a level none of this is there. docs/decisions/0012 says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidArgument, InvalidOperation, InvalidValue
from ..modes import Mode
from .level import Level, active, tangent_of


class UnpackedDualTensor(NamedTuple):
    """What a dual tensor is made of; ``tangent`` is None where there is none."""

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Begin forward mode on this thread; returns the level, which is 0: they do not nest."""
    if active.level is not None:
        raise InvalidOperation("Nested forward mode AD is not supported at the moment")
    from .install import install  # it replaces what is written over this

    install()
    active.level = Level()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode: all tangents are gone. Raises InvalidOperation where no level was entered."""
    if level is not None and level != _entered():
        raise InvalidOperation(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if active.level is None:
        raise InvalidOperation("Dual level must be a positive number.")
    from .install import uninstall

    active.level.end()
    active.level = None
    uninstall()


def _entered() -> int:
    return -1 if active.level is None else 0


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
    entered = active.level
    if level is None and entered is None:
        raise InvalidOperation(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, value in (("primal", tensor), ("tangent", tangent)):
        if not value.is_floating_point():
            raise InvalidValue(f"Expected {what} to be floating point or complex, but got: {value.dtype}")
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
    """The value of ``tensor`` without its tangent, and its tangent or None."""
    if not hasattr(tensor, "_data"):
        raise InvalidArgument(
            f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}"
        )
    entered = active.level
    if entered is None:
        return UnpackedDualTensor(tensor, None)
    tangent = None if level not in (None, 0) else tangent_of(tensor)
    with entered.suspended():
        primal = _view(tensor)
    entered.strip(primal)
    return UnpackedDualTensor(primal, tangent)


def _view(tensor: Any) -> Any:
    return tensor.view(tuple(tensor.shape))


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
