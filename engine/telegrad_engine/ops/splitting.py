"""Taking apart at given places, by torch's names for it; and other names for reshaping and flipping."""

from __future__ import annotations

import itertools
from typing import Any

from ..dtypes import int64
from ..errors import DataDependentShape, DTypeMismatch, InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Int, IntOrInts
from ..shapes import check_size, wrap_dim


@composite(
    may_alias=True,
    lists_outputs=True,
)
def tensor_split(F: Any, input: Array, indices_or_sections: IntOrInts, dim: Int = 0) -> Any:
    """So many parts along ``dim``, the first ones maybe larger by one; or the parts between indices."""
    if not input.ndim:
        raise ShapeMismatch("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    size = input.shape[wrap_dim(dim, input.ndim)]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise InvalidOperation(f"number of sections must be larger than 0, got {sections}")
        check_size((sections, 64), int64.numpy)  # half a kilobyte for each part, however small
        part, longer = divmod(size, sections)
        bounds = [i * part + min(i, longer) for i in range(sections + 1)]
    else:
        bounds = [0, *[slice(i).indices(size)[1] for i in indices_or_sections], size]
    return tuple([F.narrow(input, dim, start, max(end - start, 0)) for start, end in itertools.pairwise(bounds)])


@composite(
    key="tensor_split.tensor",
    may_alias=True,
    lists_outputs=True,
)
def tensor_split_tensor(F: Any, input: Array, tensor_indices_or_sections: Array, dim: Int = 0) -> Any:
    """``tensor_split`` by a tensor of int64: a number of parts, or the indices between them."""
    given = tensor_indices_or_sections
    if given.dtype is not int64:
        raise DTypeMismatch(
            f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {given.dtype.kernel_name}"
        )
    if given.ndim > 1:
        raise ShapeMismatch(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but "
            f"got a tensor with {given.ndim} dims"
        )
    if not hasattr(given, "tolist"):
        raise DataDependentShape("the shape of tensor_split's results depends on the values of the indices")
    return F.tensor_split(input, given.tolist(), dim)


def _split(F: Any, name: str, input: Any, indices_or_sections: Any, dim: int, least: int) -> Any:
    if input.ndim < least:
        raise ShapeMismatch(
            f"torch.{name} requires a tensor with at least {least} dimension, "
            f"but got a tensor with {input.ndim} dimensions!"
        )
    if isinstance(indices_or_sections, int) and (not indices_or_sections or input.shape[dim] % indices_or_sections):
        raise InvalidOperation(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{input.shape[dim]} is not divisible by the split_size {indices_or_sections}!"
        )
    return F.tensor_split(input, indices_or_sections, dim)


@composite(
    may_alias=True,
    lists_outputs=True,
)
def hsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts side by side: along dimension 1, or 0 of a vector."""
    return _split(F, "hsplit", input, indices_or_sections, min(input.ndim - 1, 1) if input.ndim else 0, 1)


@composite(may_alias=True, lists_outputs=True)
def vsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts one above the other: along dimension 0."""
    return _split(F, "vsplit", input, indices_or_sections, 0, 2)


@composite(may_alias=True, lists_outputs=True)
def dsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts one behind the other: along dimension 2."""
    return _split(F, "dsplit", input, indices_or_sections, 2, 3)


@composite()
def fliplr(F: Any, input: Array) -> Any:
    """The columns in the opposite order."""
    if input.ndim < 2:
        raise ShapeMismatch("Input must be >= 2-d.")
    return F.flip(input, (1,))


@composite()
def flipud(F: Any, input: Array) -> Any:
    """The rows in the opposite order."""
    if not input.ndim:
        raise ShapeMismatch("Input must be >= 1-d.")
    return F.flip(input, (0,))


@composite(may_alias=True)
def ravel(F: Any, input: Array) -> Any:
    """All elements in one dimension."""
    return F.reshape(input, (-1,))
