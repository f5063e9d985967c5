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


class ReflectionPad1d(_Pad, dims=1, mode="reflect"):
    """Pads (…, L) by reflection, without repeating the border values."""


class ReflectionPad2d(_Pad, dims=2, mode="reflect"):
    """Pads (…, H, W) by reflection, without repeating the border values."""


class ReflectionPad3d(_Pad, dims=3, mode="reflect"):
    """Pads (…, D, H, W) by reflection, without repeating the border values."""


class ReplicationPad1d(_Pad, dims=1, mode="replicate"):
    """Pads (…, L) with its border values."""


class ReplicationPad2d(_Pad, dims=2, mode="replicate"):
    """Pads (…, H, W) with its border values."""


class ReplicationPad3d(_Pad, dims=3, mode="replicate"):
    """Pads (…, D, H, W) with its border values."""


class CircularPad1d(_Pad, dims=1, mode="circular"):
    """Pads (…, L) circularly, with values from the opposite side."""


class CircularPad2d(_Pad, dims=2, mode="circular"):
    """Pads (…, H, W) circularly, with values from the opposite side."""


class CircularPad3d(_Pad, dims=3, mode="circular"):
    """Pads (…, D, H, W) circularly, with values from the opposite side."""


class _ConstantPad(_Pad, mode="constant"):
    _arguments = ("padding", "mode", "value")

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, dims=1):
    """Pads (…, L) with ``value``."""


class ConstantPad2d(_ConstantPad, dims=2):
    """Pads (…, H, W) with ``value``."""


class ConstantPad3d(_ConstantPad, dims=3):
    """Pads (…, D, H, W) with ``value``."""


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
