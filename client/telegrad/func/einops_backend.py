"""``rearrange``: dimensions named in a pattern, moved, merged and split, through the library einops."""

from __future__ import annotations

from typing import Any

import einops
from einops import EinopsError
from einops._backends import AbstractBackend

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor, functions


class TelegradBackend(AbstractBackend):
    """What einops needs to know of tensors; it finds subclasses by itself."""

    framework_name = "telegrad"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether it is a tensor."""
        return isinstance(tensor, Tensor)

    def transpose(self, x: Any, axes: Any) -> Any:
        """The tensor with its dimensions in this order."""
        return x.permute(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: Any) -> Any:
        """The tensors along a new first dimension."""
        return functions.stack(list(tensors))

    def add_axes(self, x: Any, n_axes: int, pos2len: Any) -> Any:
        """The tensor repeated along new dimensions."""
        repeats = [-1] * n_axes
        for position, length in pos2len.items():
            x = functions.unsqueeze(x, position)
            repeats[position] = length
        return x.expand(tuple(repeats))

    def tile(self, x: Any, repeats: Any) -> Any:
        """The tensor repeated."""
        return x.repeat(tuple(repeats))

    def concat(self, tensors: Any, axis: int) -> Any:
        """The tensors one after the other."""
        return functions.cat(list(tensors), axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether the dtype is a floating one."""
        return bool(x.is_floating_point())


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor, or the stacked list of tensors, with its dimensions as the right side of ``pattern`` names them.

    ``rearrange(x, "b (h w) c -> b c h w", h=4)``. Raises ValueError for a pattern that does not fit.
    """
    try:
        result: Tensor = einops.rearrange(tensor, pattern, **axes_lengths)
    except EinopsError as error:
        raise InvalidValue(str(error)) from None
    return result
