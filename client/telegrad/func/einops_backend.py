"""``rearrange``: permute, merge and split dimensions named in a pattern, with the einops library."""

from __future__ import annotations

from typing import Any

import einops
from einops import EinopsError
from einops._backends import AbstractBackend

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor, functions


class TelegradBackend(AbstractBackend):
    """The tensor operations that einops needs; einops finds the subclass by itself."""

    framework_name = "telegrad"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether it is a tensor."""
        return isinstance(tensor, Tensor)

    def transpose(self, x: Any, axes: Any) -> Any:
        """Permute the dimensions into this order."""
        return x.permute(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: Any) -> Any:
        """Stack the tensors along a new first dimension."""
        return functions.stack(list(tensors))

    def add_axes(self, x: Any, n_axes: int, pos2len: Any) -> Any:
        """Add new dimensions and repeat the tensor along them."""
        repeats = [-1] * n_axes
        for position, length in pos2len.items():
            x = functions.unsqueeze(x, position)
            repeats[position] = length
        return x.expand(tuple(repeats))

    def tile(self, x: Any, repeats: Any) -> Any:
        """Repeat the tensor along its dimensions."""
        return x.repeat(tuple(repeats))

    def concat(self, tensors: Any, axis: int) -> Any:
        """Concatenate the tensors along ``axis``."""
        return functions.cat(list(tensors), axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether the dtype is floating."""
        return bool(x.is_floating_point())


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """Rearrange a tensor, or a list of tensors to be stacked, as the right side of ``pattern`` describes.

    ``rearrange(x, "b (h w) c -> b c h w", h=4)``. Raises ValueError for a pattern that does not fit.

    ``axes_lengths`` are the sizes of named dimensions.

    Examples:
        >>> tg.func.rearrange(tg.arange(4), "(a b) -> b a", a=2)
        tensor([[0, 2],
                [1, 3]])
    """
    try:
        result: Tensor = einops.rearrange(tensor, pattern, **axes_lengths)
    except EinopsError as error:
        raise InvalidValue(str(error)) from None
    return result
