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
    """Pads (…, L) by reflection, without repeating the border values.

    ``padding`` is one int, or two: before and after, each below the size of the input.

    Examples:
        >>> tg.nn.ReflectionPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
        tensor([[2., 1., 2., 3., 2.]])
    """


class ReflectionPad2d(_Pad, dims=2, mode="reflect"):
    """Pads (…, H, W) by reflection, without repeating the border values.

    ``padding`` is one int, or four: left, right, top and bottom, each below the size of the input.

    Examples:
        >>> tg.nn.ReflectionPad2d(1)(tg.ones(1, 3, 3)).shape
        telegrad.Size([1, 5, 5])
    """


class ReflectionPad3d(_Pad, dims=3, mode="reflect"):
    """Pads (…, D, H, W) by reflection, without repeating the border values.

    ``padding`` is one int, or six: left, right, top, bottom, front and back, each below the size of the input.

    Examples:
        >>> tg.nn.ReflectionPad3d(1)(tg.ones(1, 3, 3, 3)).shape
        telegrad.Size([1, 5, 5, 5])
    """


class ReplicationPad1d(_Pad, dims=1, mode="replicate"):
    """Pads (…, L) with its border values.

    ``padding`` is one int, or two: before and after.

    Examples:
        >>> tg.nn.ReplicationPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 1., 2., 3., 3.]])
    """


class ReplicationPad2d(_Pad, dims=2, mode="replicate"):
    """Pads (…, H, W) with its border values.

    ``padding`` is one int, or four: left, right, top and bottom.

    Examples:
        >>> tg.nn.ReplicationPad2d(1)(tg.ones(1, 3, 3)).shape
        telegrad.Size([1, 5, 5])
    """


class ReplicationPad3d(_Pad, dims=3, mode="replicate"):
    """Pads (…, D, H, W) with its border values.

    ``padding`` is one int, or six: left, right, top, bottom, front and back.

    Examples:
        >>> tg.nn.ReplicationPad3d(1)(tg.ones(1, 3, 3, 3)).shape
        telegrad.Size([1, 5, 5, 5])
    """


class CircularPad1d(_Pad, dims=1, mode="circular"):
    """Pads (…, L) circularly, with values from the opposite side.

    ``padding`` is one int, or two: before and after.

    Examples:
        >>> tg.nn.CircularPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 1., 2., 3., 1.]])
    """


class CircularPad2d(_Pad, dims=2, mode="circular"):
    """Pads (…, H, W) circularly, with values from the opposite side.

    ``padding`` is one int, or four: left, right, top and bottom.

    Examples:
        >>> tg.nn.CircularPad2d(1)(tg.ones(1, 1, 3, 3)).shape
        telegrad.Size([1, 1, 5, 5])
    """


class CircularPad3d(_Pad, dims=3, mode="circular"):
    """Pads (…, D, H, W) circularly, with values from the opposite side.

    ``padding`` is one int, or six: left, right, top, bottom, front and back.

    Examples:
        >>> tg.nn.CircularPad3d(1)(tg.ones(1, 1, 3, 3, 3)).shape
        telegrad.Size([1, 1, 5, 5, 5])
    """


class _ConstantPad(_Pad, mode="constant"):
    _arguments = ("padding", "mode", "value")

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, dims=1):
    """Pads (…, L) with ``value``.

    ``padding`` is one int, or two: before and after; a negative number takes elements away.

    Examples:
        >>> tg.nn.ConstantPad1d((1, 0), 9.0)(tg.tensor([[1.0, 2.0]]))
        tensor([[9., 1., 2.]])
    """


class ConstantPad2d(_ConstantPad, dims=2):
    """Pads (…, H, W) with ``value``.

    ``padding`` is one int, or four: left, right, top and bottom; a negative number takes elements away.

    Examples:
        >>> tg.nn.ConstantPad2d(1, 9.0)(tg.ones(1, 1))
        tensor([[9., 9., 9.],
                [9., 1., 9.],
                [9., 9., 9.]])
    """


class ConstantPad3d(_ConstantPad, dims=3):
    """Pads (…, D, H, W) with ``value``.

    ``padding`` is one int, or six: left, right, top, bottom, front and back; a negative number takes elements away.

    Examples:
        >>> tg.nn.ConstantPad3d(1, 9.0)(tg.ones(1, 3, 3, 3)).shape
        telegrad.Size([1, 5, 5, 5])
    """


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads (…, L) with zeros.

    ``padding`` is one int, or two: before and after; a negative number takes elements away.

    Examples:
        >>> tg.nn.ZeroPad1d((1, 0))(tg.tensor([[1.0, 2.0]]))
        tensor([[0., 1., 2.]])
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads (…, H, W) with zeros.

    ``padding`` is one int, or four: left, right, top and bottom; a negative number takes elements away.

    Examples:
        >>> tg.nn.ZeroPad2d(1)(tg.ones(1, 1))
        tensor([[0., 0., 0.],
                [0., 1., 0.],
                [0., 0., 0.]])
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads (…, D, H, W) with zeros.

    ``padding`` is one int, or six: left, right, top, bottom, front and back; a negative number takes elements away.

    Examples:
        >>> tg.nn.ZeroPad3d(1)(tg.ones(1, 3, 3, 3)).shape
        telegrad.Size([1, 5, 5, 5])
    """
