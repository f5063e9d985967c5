"""Joining and splitting tensors, and block-diagonal matrices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ...dtypes import from_numpy, int64, promote_types
from ...errors import (
    DataDependentShape,
    DTypeMismatch,
    IndexOutOfRange,
    InvalidArgument,
    InvalidOperation,
    InvalidValue,
    ShapeMismatch,
)
from ...schema.declaration import FUNCTION, LIST, MAY_ALIAS, NO_BATCHING_RULE, NO_SCRATCH, VIEW, Batching
from ...schema.op import Op, composite, op
from ...schema.parameters import Array, Arrays, Int, IntOrInts, Ints, ManyArrays
from ...schema.promotion import PROMOTE, common_dtype
from ...shapes import Spec, check_size, wrap_dim
from ..batching import shape_rules
from ..guards import kernel_name


def _joined_dtype(tensors: Any) -> Any:
    return functools.reduce(promote_types, [x.dtype for x in tensors])


def _join(join: Any, tensors: Any, dim: int) -> Any:
    try:
        return join(tensors, axis=dim)
    except TypeError:  # NumPy cannot promote bfloat16 with float16 or int64
        dtype = _joined_dtype(tensors)
        return join([x.astype(dtype) for x in tensors], axis=dim)


def _is_skipped(shape: Any) -> bool:
    """Whether ``cat`` skips a tensor of this shape: an empty vector may be joined with tensors of any dimensions."""
    return tuple(shape) == (0,)


def _cat_rule(tensors: Any, dim: int) -> Spec:
    if not tensors:
        raise InvalidValue("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not x.shape:
            raise ShapeMismatch(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    given = [i for i, x in enumerate(tensors) if not _is_skipped(x.shape)]
    if not given:
        return Spec((0,), _joined_dtype(tensors))
    first = tensors[given[0]].shape
    axis = wrap_dim(dim, len(first))
    total = 0
    for i in given:
        x = tensors[i]
        if len(x.shape) != len(first):
            raise ShapeMismatch(f"Tensors must have same number of dimensions: got {len(first)} and {len(x.shape)}")
        for d, (a, b) in enumerate(zip(first, x.shape, strict=True)):
            if d != axis and a != b:
                raise ShapeMismatch(
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {a} but got size {b} for "
                    f"tensor number {i} in the list."
                )
        total += x.shape[axis]
    return Spec((*first[:axis], total, *first[axis + 1 :]), _joined_dtype(tensors))


@op(
    _cat_rule,
    aliases=("concat", "concatenate"),
    variants=FUNCTION,
    memory=NO_SCRATCH,
    autocast=PROMOTE,
    batching=shape_rules.cat,
)
def cat(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors joined along ``dim``."""
    given = [x for x in tensors if not _is_skipped(x.shape)]
    if len(given) == len(tensors):
        return _join(xp.concatenate, tensors, dim)
    dtype = _joined_dtype(tensors)
    return _join(xp.concatenate, given, dim).astype(dtype, copy=False) if given else xp.zeros((0,), dtype)


def _cat_grad(F: Any, grad: Any, tensors_shape: Any, dim: int) -> list[Any]:
    parts, start = [], 0
    for shape in tensors_shape:
        if _is_skipped(shape):
            parts.append(F.new_zeros(grad, (0,)))
        else:
            parts.append(F.narrow(grad, dim, start, shape[dim]))
            start += shape[dim]
    return parts


cat.derivative(tensors=_cat_grad)


def _stack_rule(tensors: Any, dim: int) -> Spec:
    if not tensors:
        raise InvalidOperation("stack expects a non-empty TensorList")
    first = tensors[0].shape
    axis = wrap_dim(dim, len(first) + 1)
    for i, x in enumerate(tensors):
        if x.shape != first:
            raise ShapeMismatch(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )
    return Spec((*first[:axis], len(tensors), *first[axis:]), _joined_dtype(tensors))


@op(_stack_rule, variants=FUNCTION, memory=NO_SCRATCH, autocast=PROMOTE, batching=shape_rules.unsqueeze)
def stack(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors, all of one shape, along a new dimension."""
    return _join(xp.stack, tensors, dim)


stack.derivative(
    tensors=lambda F, grad, tensors_shape, dim: [F.select(grad, dim, i) for i in range(len(tensors_shape))]
)


def _checked_count(parts: int) -> int:
    """The number of parts. Raises TooLarge if there is no room for half a kilobyte per part, even for empty ones."""
    check_size((parts, 64), int64.numpy)
    return parts


def _split_sizes(shape: Any, split_size: Any, dim: int) -> list[int]:
    size = shape[dim]
    if not isinstance(split_size, int):
        if any(n < 0 for n in split_size):
            raise ShapeMismatch(
                "split_with_sizes expects split_sizes have only non-negative entries, but got "
                f"split_sizes={list(split_size)}"
            )
        if sum(split_size) != size:
            raise ShapeMismatch(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={list(split_size)}"
            )
        return list(split_size)
    if split_size == 0:
        if size:
            raise ShapeMismatch(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return [0]
    full, rest = divmod(size, split_size)
    return [split_size] * _checked_count(full) + ([rest] if rest or not full else [])


def _part_specs(input: Any, sizes: list[int], axis: int) -> list[Any]:
    """The specs of parts of these sizes along ``axis``; consecutive parts of one size share a Spec."""
    shape, last = input.shape, -1
    specs: list[Any] = []
    spec: Any = None
    for n in sizes:  # sizes are compared but not hashed, because they may be symbolic in a planned program
        if n != last:
            spec, last = Spec((*shape[:axis], n, *shape[axis + 1 :]), input.dtype), n
        specs.append(spec)
    return specs


def _parts(input: Any, sizes: list[int], dim: int) -> list[Any]:
    """Views of parts of these sizes along ``dim``."""
    before, start, parts = (slice(None),) * (dim % input.ndim), 0, []
    for n in sizes:
        parts.append(input[(*before, slice(start, start + n))])
        start += n
    return parts


def _joined(F: Any, grads: Any, input_shape: Any, sizes: Sequence[int], dim: int) -> Any:
    """Join the gradients of the parts, with zeros where there is none."""
    axis = dim % len(input_shape)
    present = next(grad for grad in grads if grad is not None)

    def zeros(n: int) -> Any:
        return F.new_zeros(present, (*input_shape[:axis], n, *input_shape[axis + 1 :]))

    return F.cat([zeros(n) if grad is None else grad for n, grad in zip(sizes, grads, strict=True)], axis)


def _split_rule(input: Any, split_size: Any, dim: int) -> list[Any]:
    if not input.shape:
        raise ShapeMismatch("split expects at least a 1-dimensional tensor")
    if isinstance(split_size, int) and split_size < 0:
        raise ShapeMismatch(f"split expects split_size be non-negative, but got split_size={split_size}")
    axis = wrap_dim(dim, len(input.shape))
    return _part_specs(input, _split_sizes(input.shape, split_size, dim), axis)


def _split_node(node: Any) -> str:
    return "SplitBackward0" if isinstance(node.attrs["split_size"], int) else "SplitWithSizesBackward0"


@op(_split_rule, node=_split_node, results=LIST, memory=VIEW)
def split(xp: Any, input: Array, split_size: IntOrInts, dim: Int = 0) -> Any:
    """Parts of ``split_size`` along ``dim``, the last maybe smaller; or parts of the given sizes."""
    return _parts(input, _split_sizes(input.shape, split_size, dim), dim)


split.derivative(
    input=lambda F, grads, input_shape, split_size, dim: _joined(
        F, grads, input_shape, _split_sizes(input_shape, split_size, dim), dim
    )
)


def _chunk_sizes(shape: Any, chunks: int, dim: int) -> list[int]:
    """Equal sizes except for the last; an empty dimension gives ``chunks`` empty parts."""
    size = shape[dim]
    return _split_sizes(shape, -(-size // chunks), dim) if size else [0] * _checked_count(chunks)


def _chunk_rule(input: Any, chunks: int, dim: int) -> list[Any]:
    if not input.shape:
        raise ShapeMismatch("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise InvalidOperation(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    axis = wrap_dim(dim, len(input.shape))
    return _part_specs(input, _chunk_sizes(input.shape, chunks, axis), axis)


def _chunk_node(node: Any) -> str:
    part, _ = node.specs[0]
    return "SplitBackward0" if part[node.attrs.get("dim", 0)] else "SplitWithSizesBackward0"


@op(_chunk_rule, node=_chunk_node, results=LIST, memory=VIEW)
def chunk(xp: Any, input: Array, chunks: Int, dim: Int = 0) -> Any:
    """At most ``chunks`` equal parts along ``dim``."""
    return _parts(input, _chunk_sizes(input.shape, chunks, dim), dim)


chunk.derivative(
    input=lambda F, grads, input_shape, chunks, dim: _joined(
        F, grads, input_shape, _chunk_sizes(input_shape, chunks, dim), dim
    )
)


def _unbind_rule(input: Any, dim: int) -> list[Spec]:
    if not input.shape:
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    axis = wrap_dim(dim, len(input.shape))
    return [Spec(input.shape[:axis] + input.shape[axis + 1 :], input.dtype)] * _checked_count(input.shape[axis])


@op(_unbind_rule, results=LIST, memory=VIEW)
def unbind(xp: Any, input: Array, dim: Int = 0) -> Any:
    """The slices along ``dim``."""
    before = (slice(None),) * (dim % input.ndim)
    return [input[(*before, i, ...)] for i in range(input.shape[dim])]


def _unbind_grad(F: Any, grads: Any, input_shape: Any, dim: int) -> Any:
    present = next(g for g in grads if g is not None)
    shape = tuple(n for i, n in enumerate(input_shape) if i != dim % len(input_shape))
    return F.stack([F.new_zeros(present, shape) if g is None else g for g in grads], dim)


unbind.derivative(input=_unbind_grad)


# Single parts -------------------------------------------------------------------------------------------


def _narrow_rule(input: Any, dim: int, start: int, length: int) -> Spec:
    if not input.shape:
        raise ShapeMismatch("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise InvalidOperation("narrow(): length must be non-negative.")
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis]
    if not -size <= start <= size:
        raise IndexOutOfRange(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    begin = start + size if start < 0 else start
    if begin + length > size:
        raise InvalidOperation(f"start ({begin}) + length ({length}) exceeds dimension size ({size}).")
    return Spec((*input.shape[:axis], length, *input.shape[axis + 1 :]), input.dtype)


@op(_narrow_rule, node="SliceBackward0", memory=VIEW)
def narrow(xp: Any, input: Array, dim: Int, start: Int, length: Int) -> Any:
    """``length`` elements along ``dim`` from ``start``."""
    axis = dim % input.ndim
    begin = start % input.shape[axis] if start < 0 else start
    return input[(slice(None),) * axis + (slice(begin, begin + length),)]


def _narrow_grad(F: Any, grad: Any, input_shape: Any, dim: int, start: int, length: int) -> Any:
    size = input_shape[dim]
    begin = start % size if start < 0 else start
    return _joined(F, (None, grad, None), input_shape, (begin, length, size - begin - length), dim)


narrow.derivative(input=_narrow_grad)


def _select_rule(input: Any, dim: int, index: int) -> Spec:
    if not input.shape:
        raise IndexOutOfRange("select() cannot be applied to a 0-dim tensor.")
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis]
    if not -size <= index < size:
        raise IndexOutOfRange(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {axis}"
        )
    return Spec(input.shape[:axis] + input.shape[axis + 1 :], input.dtype)


@op(_select_rule, memory=VIEW)
def select(xp: Any, input: Array, dim: Int, index: Int) -> Any:
    """The slice at ``index`` along ``dim``."""
    return input[(slice(None),) * (dim % input.ndim) + (index, ...)]


def _select_grad(F: Any, grad: Any, input_shape: Any, dim: int, index: int) -> Any:
    axis = dim % len(input_shape)
    return _narrow_grad(F, F.unsqueeze(grad, axis), input_shape, axis, index % input_shape[axis], 1)


select.derivative(input=_select_grad)


# Splitting by sections or indices, and flipping ---------------------------------------------------------


@composite(results=LIST, memory=MAY_ALIAS)
def tensor_split(F: Any, input: Array, indices_or_sections: IntOrInts, dim: Int = 0) -> Any:
    """So many parts along ``dim``, the first ones maybe larger by one; or the parts between indices."""
    if not input.ndim:
        raise ShapeMismatch("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    size = input.shape[wrap_dim(dim, input.ndim)]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise InvalidOperation(f"number of sections must be larger than 0, got {sections}")
        part, longer = divmod(size, sections)
        bounds = [i * part + min(i, longer) for i in range(_checked_count(sections) + 1)]
    else:
        bounds = [0, *[slice(i).indices(size)[1] for i in indices_or_sections], size]
    return tuple([F.narrow(input, dim, start, max(end - start, 0)) for start, end in itertools.pairwise(bounds)])


@composite(
    key="tensor_split.tensor",
    results=LIST,
    memory=MAY_ALIAS,
    batching=Batching(refusal=NO_BATCHING_RULE.format("tensor_split.tensor_indices_or_sections")),
)
def tensor_split_tensor(F: Any, input: Array, tensor_indices_or_sections: Array, dim: Int = 0) -> Any:
    """``tensor_split`` by a tensor of int64: a number of parts, or the indices between them."""
    given = tensor_indices_or_sections
    if given.dtype is not int64:
        raise DTypeMismatch(
            f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {kernel_name(given)}"
        )
    if given.ndim > 1:
        raise ShapeMismatch(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but "
            f"got a tensor with {given.ndim} dims"
        )
    if not hasattr(given, "tolist"):
        raise DataDependentShape("the shape of tensor_split's results depends on the values of the indices")
    return F.tensor_split(input, given.tolist(), dim)


def _divide(F: Any, name: str, input: Any, indices_or_sections: Any, dim: int, least: int) -> Any:
    """``tensor_split`` for at least ``least`` dimensions; a number of parts must divide the dimension."""
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


@composite(results=LIST, memory=MAY_ALIAS)
def hsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts side by side: along dimension 1, or 0 of a vector."""
    return _divide(F, "hsplit", input, indices_or_sections, min(input.ndim - 1, 1) if input.ndim else 0, 1)


@composite(results=LIST, memory=MAY_ALIAS)
def vsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts one above the other: along dimension 0."""
    return _divide(F, "vsplit", input, indices_or_sections, 0, 2)


@composite(results=LIST, memory=MAY_ALIAS)
def dsplit(F: Any, input: Array, indices_or_sections: IntOrInts) -> Any:
    """``tensor_split`` into equal parts one behind the other: along dimension 2."""
    return _divide(F, "dsplit", input, indices_or_sections, 2, 3)


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


@composite(memory=MAY_ALIAS)
def ravel(F: Any, input: Array) -> Any:
    """All elements in one dimension."""
    return F.reshape(input, (-1,))


# Minimum number of dimensions ---------------------------------------------------------------------------


def _at_least(kernel: Callable[..., Any]) -> Op:
    """Declare a function of one tensor, and its overload for several, which returns a tuple."""

    def each(F: Any, tensors: ManyArrays) -> Any:
        return tuple(kernel(F, x) for x in tensors)

    each.__doc__ = f"Each of the tensors as ``{kernel.__name__}`` gives it."
    alone = composite(variants=FUNCTION, memory=MAY_ALIAS)(kernel)
    composite(key=f"{kernel.__name__}.tensors", variants=FUNCTION, results=LIST, memory=MAY_ALIAS)(each)
    return alone


@_at_least
def atleast_1d(F: Any, input: Array) -> Any:
    """The tensor; a 0-dim one as (1,)."""
    return input if input.ndim else F.reshape(input, (1,))


@_at_least
def atleast_2d(F: Any, input: Array) -> Any:
    """The tensor with at least two dimensions: (n) becomes (1, n)."""
    return input if input.ndim > 1 else F.unsqueeze(atleast_1d.raw(F, input), 0)


@_at_least
def atleast_3d(F: Any, input: Array) -> Any:
    """The tensor with at least three dimensions: (n) becomes (1, n, 1), (m, n) (m, n, 1)."""
    return input if input.ndim > 2 else F.unsqueeze(atleast_2d.raw(F, input), -1)


# Block-diagonal matrices ---------------------------------------------------------------------------------


@composite(variants=FUNCTION)
def block_diag(F: Any, tensors: ManyArrays = ()) -> Any:
    """A matrix with the tensors, as matrices, one after the other down its diagonal and zeros beside them."""
    for i, x in enumerate(tensors):
        if x.dim() > 2:
            raise InvalidOperation(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.dim()} dimensions"
            )
    if not tensors:
        return F.zeros((1, 0))
    dtype = from_numpy(common_dtype(tuple([x._data for x in tensors])))  # before all become matrices
    blocks = [F.to(atleast_2d.raw(F, x), dtype=dtype) for x in tensors]
    rows, before, after = [], 0, sum(x.shape[1] for x in blocks)
    for x in blocks:
        after -= x.shape[1]
        rows.append(F.constant_pad_nd(x, (before, after)))
        before += x.shape[1]
    return F.cat(rows, 0)


# Flat indices --------------------------------------------------------------------------------------------


@composite(variants=FUNCTION, results=LIST)
def unravel_index(F: Any, indices: Array, shape: Ints) -> Any:
    """Numbers of elements, counted row by row, as an index for each dimension of ``shape``."""
    if indices.is_floating_point() or indices.dtype.name == "bool":
        raise InvalidArgument(f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    if any(n < 0 for n in shape):
        raise InvalidValue(f"'shape' cannot have negative values, but got {tuple(shape)}")
    indices, found, below = F.to(indices, dtype=int64), [], 1
    for n in reversed(shape):
        found.append(F.remainder(F.div(indices, below, rounding_mode="floor"), n))
        below *= n
    return tuple(found[::-1])
