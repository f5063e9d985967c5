"""Views as new tensors: the ``_copy`` forms of view ops, and the ``unsafe`` ones, which autograd takes for copies."""

from __future__ import annotations

from typing import Any

from ..errors import IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, IntOrInts, Ints, OptionalInt
from ..shapes import wrap_dim


def _copies(F: Any, parts: Any) -> tuple[Any, ...]:
    return tuple([F.clone(part) for part in parts])


def _split(F: Any, input: Any, sizes: tuple[int, ...], dim: int) -> Any:
    """``F.split``; the text about sizes that do not fit names the dimension as it was given."""
    if input.shape and min(sizes, default=0) >= 0:
        size = input.shape[wrap_dim(dim, len(input.shape))]
        if sum(sizes) != size:
            raise ShapeMismatch(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={list(sizes)}"
            )
    return F.split(input, sizes, dim)


@composite(method=False)
def alias_copy(F: Any, input: Array) -> Any:
    """A copy."""
    return F.clone(input)


@composite(method=False)
def as_strided_copy(F: Any, input: Array, size: Ints, stride: Ints, storage_offset: OptionalInt = None) -> Any:
    """A copy of what ``as_strided`` shows."""
    return F.clone(F.as_strided(input, size, stride, storage_offset))


@composite(method=False)
def diagonal_copy(F: Any, input: Array, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Any:
    """A copy of a diagonal."""
    return F.clone(F.diagonal(input, offset, dim1, dim2))


@composite(method=False)
def expand_copy(F: Any, input: Array, size: Ints, *, implicit: Bool = False) -> Any:
    """A copy in which dimensions of size 1 are repeated."""
    return F.clone(F.expand(input, size))


@composite(method=False)
def permute_copy(F: Any, input: Array, dims: Ints) -> Any:
    """A copy with its dimensions in another order."""
    return F.clone(F.permute(input, dims))


@composite(method=False)
def select_copy(F: Any, input: Array, dim: Int, index: Int) -> Any:
    """A copy of the slice at ``index``."""
    return F.clone(F.select(input, dim, index))


@composite(method=False)
def slice_copy(
    F: Any, input: Array, dim: Int = 0, start: OptionalInt = None, end: OptionalInt = None, step: Int = 1
) -> Any:
    """A copy of the slice ``start:end:step`` of dimension ``dim``."""
    if not input.shape:
        raise IndexOutOfRange("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise InvalidOperation("slice step must be positive")
    before = [("slice", None, None, None)] * wrap_dim(dim, len(input.shape))
    return F.clone(F.getitem(input, (*before, ("slice", start, end, step))))


@composite(method=False, lists_outputs=True)
def split_copy(F: Any, input: Array, split_size: Int, dim: Int = 0) -> Any:
    """Copies of parts of one size."""
    return _copies(F, F.split(input, split_size, dim))


@composite(
    may_alias=True,
    lists_outputs=True,
)
def split_with_sizes(F: Any, input: Array, split_sizes: Ints, dim: Int = 0) -> Any:
    """Views of parts of these sizes."""
    return _split(F, input, split_sizes, dim)


@composite(method=False, lists_outputs=True)
def split_with_sizes_copy(F: Any, input: Array, split_sizes: Ints, dim: Int = 0) -> Any:
    """Copies of parts of these sizes."""
    return _copies(F, _split(F, input, split_sizes, dim))


@composite(method=False)
def squeeze_copy(F: Any, input: Array, dim: IntOrInts = None) -> Any:
    """A copy without dimensions of size 1."""
    return F.clone(F.squeeze(input) if dim is None else F.squeeze(input, dim))


@composite(method=False)
def t_copy(F: Any, input: Array) -> Any:
    """A copy of the transpose."""
    return F.clone(F.t(input))


@composite(method=False)
def transpose_copy(F: Any, input: Array, dim0: Int, dim1: Int) -> Any:
    """A copy with two dimensions swapped."""
    return F.clone(F.transpose(input, dim0, dim1))


@composite(method=False, lists_outputs=True)
def unbind_copy(F: Any, input: Array, dim: Int = 0) -> Any:
    """Copies of the slices along ``dim``."""
    return _copies(F, F.unbind(input, dim))


@composite(method=False)
def unfold_copy(F: Any, input: Array, dimension: Int, size: Int, step: Int) -> Any:
    """A copy of the windows along a dimension."""
    return F.clone(F.unfold(input, dimension, size, step))


@composite(method=False)
def unsqueeze_copy(F: Any, input: Array, dim: Int) -> Any:
    """A copy with one more dimension, of size 1."""
    return F.clone(F.unsqueeze(input, dim))


@composite(method=False)
def view_copy(F: Any, input: Array, size: Ints) -> Any:
    """A copy in another shape."""
    return F.clone(F.view(input, size))


@composite()
def narrow_copy(F: Any, input: Array, dim: Int, start: Int, length: Int) -> Any:
    """A copy of ``length`` slices from ``start`` on."""
    if input.shape and dim >= len(input.shape):
        raise InvalidOperation(
            "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.  (Could this error "
            "message be improved?  If so, please report an enhancement request to PyTorch.)"
        )
    if input.shape and length < 0:
        size = input.shape[wrap_dim(dim, len(input.shape))]
        if -size <= start <= size:
            start += size * (start < 0)
            raise InvalidOperation(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return F.clone(F.narrow(input, dim, start, length))


@composite(may_alias=True, lists_outputs=True)
def unsafe_split(F: Any, input: Array, split_size: Int, dim: Int = 0) -> Any:
    """Parts of one size that may be changed in place, since autograd takes them for copies."""
    return _copies(F, F.split(input, split_size, dim))


@composite(may_alias=True, lists_outputs=True)
def unsafe_split_with_sizes(F: Any, input: Array, split_sizes: Ints, dim: Int = 0) -> Any:
    """Parts of these sizes that may be changed in place, since autograd takes them for copies."""
    return _copies(F, _split(F, input, split_sizes, dim))


@composite(may_alias=True, lists_outputs=True)
def unsafe_chunk(F: Any, input: Array, chunks: Int, dim: Int = 0) -> Any:
    """At most ``chunks`` parts that may be changed in place, since autograd takes them for copies."""
    return _copies(F, F.chunk(input, chunks, dim))


# In the shape of another ---------------------------------------------------------------------------------


@composite(may_alias=True)
def view_as(F: Any, input: Array, other: Array) -> Any:
    """The tensor as a view in the shape of ``other``."""
    return F.view(input, tuple(other.shape))


@composite(may_alias=True)
def reshape_as(F: Any, input: Array, other: Array) -> Any:
    """The tensor in the shape of ``other``."""
    return F.reshape(input, tuple(other.shape))
