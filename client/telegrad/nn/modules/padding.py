"""Padding of the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .function_module import FunctionModule
from .module import expanded


class _Pad(FunctionModule):
    """``padding`` is one number, or (before, after) for each of ``dims`` dimensions from the last on."""

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
    """What is beyond the border of (…, L) mirrored, the border itself not repeated."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """What is beyond the border of (…, H, W) mirrored, the border itself not repeated."""

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """What is beyond the border of (…, D, H, W) mirrored, the border itself not repeated."""

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The border of (…, L) repeated."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The border of (…, H, W) repeated."""

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The border of (…, D, H, W) repeated."""

    dims, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """What is beyond the border of (…, L) continued from the other side."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pads (…, H, W) circularly, with values from the opposite side."""

    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    """What is beyond the border of (…, D, H, W) continued from the other side."""

    dims, mode = 3, "circular"


class _ConstantPad(_Pad):
    _arguments, mode = ("padding", "mode", "value"), "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """``value`` around (…, L)."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """``value`` around (…, H, W)."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """``value`` around (…, D, H, W)."""

    dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Zeros around (…, L)."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Zeros around (…, H, W)."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Zeros around (…, D, H, W)."""
