"""Makes and unpacks dual tensors of every kind."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ...errors import InvalidArgument, InvalidOperation, InvalidValue, ShapeMismatch


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual tensor; ``tangent`` is None if it has none."""

    primal: Any
    tangent: Any


class EnteredLevel(Protocol):
    """The interface of an entered level, which holds the tangents of tensors."""

    @property
    def enabled(self) -> bool:
        """Whether results currently get tangents."""

    def suspended(self) -> AbstractContextManager[None]:
        """Return a context in which tensors have no tangents."""

    def of(self, tensor: Any) -> Any:
        """Return the tangent of a tensor, or None."""

    def give(self, tensor: Any, tangent: Any) -> None:
        """Set the tangent of a tensor."""

    def strip(self, tensor: Any) -> None:
        """Make a tensor have no tangent, even if its base has one."""


def check_floating(what: str, tensor: Any) -> None:
    """Raise InvalidValue unless the dtype is a floating-point one."""
    if not tensor.is_floating_point():
        raise InvalidValue(f"Expected {what} to be floating point or complex, but got: torch.{tensor.dtype.name}")


def check_size(tensor: Any, tangent: Any) -> None:
    """Raise ShapeMismatch unless the tangent has the tensor's shape."""
    if tangent.shape != tensor.shape:
        raise ShapeMismatch(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
            f"not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


def check_exit(level: int | None, entered: EnteredLevel | None) -> None:
    """Raise InvalidOperation unless a level was entered and ``level`` is it, or None."""
    if level is not None and level != (-1 if entered is None else 0):
        raise InvalidOperation(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if entered is None:
        raise InvalidOperation("Dual level must be a positive number.")


def make(tensor: Any, tangent: Any, level: int | None, entered: EnteredLevel | None) -> Any:
    """Return a view of ``tensor`` with a tangent of the same shape. Raises like ``forward_ad.make_dual``."""
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


def unpack(tensor: Any, level: int | None, entered: EnteredLevel | None) -> UnpackedDualTensor:
    """Return the value of ``tensor`` and its tangent or None; outside a level, ``tensor`` itself and None."""
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


def _view(tensor: Any) -> Any:
    return tensor.view(tuple(tensor.shape))
