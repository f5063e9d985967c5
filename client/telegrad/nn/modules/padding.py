"""Padding of the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .function_module import FunctionModule
from .module import expanded


class _Pad(FunctionModule):
    """Base class of padding; ``padding`` is one size, or (before, after) for each dimension, starting with the last."""

    _function = "pad"
    _arguments: ClassVar[tuple[str, ...]] = ("padding", "mode")
    dims: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = expanded(padding, 2 * self.dims)

    def extra_repr(self) -> str:
        return str(self.padding)


class ReflectionPad1d(_Pad):
    """Pads (…, L) by reflection, without repeating the border values."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads (…, H, W) by reflection, without repeating the border values."""

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads (…, D, H, W) by reflection, without repeating the border values."""

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads (…, L) with its border values."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads (…, H, W) with its border values."""

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads (…, D, H, W) with its border values."""

    dims, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pads (…, L) circularly, with values from the opposite side."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pads (…, H, W) circularly, with values from the opposite side."""

    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pads (…, D, H, W) circularly, with values from the opposite side."""

    dims, mode = 3, "circular"


class _ConstantPad(_Pad):
    _arguments, mode = ("padding", "mode", "value"), "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads (…, L) with ``value``."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads (…, H, W) with ``value``."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads (…, D, H, W) with ``value``."""

    dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads (…, L) with zeros."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads (…, H, W) with zeros."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads (…, D, H, W) with zeros."""
