"""Joining tensors and taking them apart."""

from __future__ import annotations

from typing import Any

from ..dtypes import promote_types
from ..errors import IndexOutOfRange, InvalidOperation, InvalidValue, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Arrays, Int, IntOrInts
from ..shapes import Spec, wrap_dim

# Joining and splitting -----------------------------------------------------------------------------------


def _joined_dtype(tensors: Any) -> Any:
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote_types(dtype, x.dtype)
    return dtype


def _join(join: Any, tensors: Any, dim: int) -> Any:
    try:
        return join(tensors, axis=dim)
    except TypeError:  # NumPy has no common dtype for bfloat16 and float16 or int64
        dtype = _joined_dtype(tensors)
        return join([x.astype(dtype) for x in tensors], axis=dim)


def _is_skipped(shape: Any) -> bool:
    """Whether ``cat`` leaves out a tensor: a vector without elements goes with tensors of any dimensions."""
    return tuple(shape) == (0,)


def _cat_rule(tensors: Any, dim: int = 0) -> Spec:
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
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {a} but got "
                    f"size {b} "
                    f"for tensor number {i} in the list."
                )
        total += x.shape[axis]
    return Spec((*first[:axis], total, *first[axis + 1 :]), _joined_dtype(tensors))


@op(_cat_rule, method=False, aliases=("concat", "concatenate"), scratch=0.0)
def cat(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors joined along ``dim``."""
    given = [x for x in tensors if x.shape != (0,)]
    if len(given) == len(tensors):
        return _join(xp.concatenate, tensors, dim)
    dtype = _joined_dtype(tensors)
    return _join(xp.concatenate, given, dim).astype(dtype, copy=False) if given else xp.zeros((0,), dtype)


def _cat_grad(F: Any, grad: Any, tensors_shape: Any, dim: int) -> list[Any]:
    parts, start = [], 0
    for shape in tensors_shape:
        if _is_skipped(shape):
            parts.append(F.new_zeros(grad, (0,)))
            continue
        size = shape[dim]
        parts.append(F.narrow(grad, dim, start, size))
        start += size
    return parts


cat.derivative(tensors=_cat_grad)


def _stack_rule(tensors: Any, dim: int = 0) -> Spec:
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


@op(_stack_rule, method=False, scratch=0.0)
def stack(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors, all of one shape, along a new dimension."""
    return _join(xp.stack, tensors, dim)


stack.derivative(
    tensors=lambda F, grad, tensors_shape, dim: [F.select(grad, dim, i) for i in range(len(tensors_shape))]
)


def _split_sizes(shape: Any, split_size: Any, axis: int) -> list[int]:
    size = shape[axis]
    if not isinstance(split_size, int):
        if any(n < 0 for n in split_size):
            raise ShapeMismatch(
                "split_with_sizes expects split_sizes have only non-negative entries, but got "
                f"split_sizes={list(split_size)}"
            )
        if sum(split_size) != size:
            raise ShapeMismatch(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at "
                "dimension "
                f"{axis}), but got split_sizes={list(split_size)}"
            )
        return list(split_size)
    if split_size == 0:
        if size:
            raise ShapeMismatch(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return [0]
    full, rest = divmod(size, split_size)
    return [split_size] * full + ([rest] if rest or not full else [])


def _check_split(split_size: Any) -> None:
    if isinstance(split_size, int) and split_size < 0:
        raise ShapeMismatch(f"split expects split_size be non-negative, but got split_size={split_size}")


def _part_specs(input: Any, sizes: list[int], axis: int) -> list[Any]:
    """What parts of these sizes along ``axis`` are; parts of one size share a Spec."""
    shape, last = input.shape, -1
    specs: list[Any] = []
    spec: Any = None
    for n in sizes:
        if n != last:
            spec, last = Spec((*shape[:axis], n, *shape[axis + 1 :]), input.dtype), n
        specs.append(spec)
    return specs


def _parts(input: Any, sizes: list[int], axis: int) -> list[Any]:
    """Views of parts of these sizes along ``axis``."""
    before, start, parts = (slice(None),) * axis, 0, []
    for n in sizes:
        parts.append(input[(*before, slice(start, start + n))])
        start += n
    return parts


def _joined(F: Any, grads: Any, input_shape: Any, sizes: list[int], axis: int) -> Any:
    """The gradients of the parts side by side, zeros where none arrived."""
    missing = [i for i, grad in enumerate(grads) if grad is None]
    if missing:
        present = next(grad for grad in grads if grad is not None)
        grads = list(grads)
        for i in missing:
            grads[i] = F.new_zeros(present, (*input_shape[:axis], sizes[i], *input_shape[axis + 1 :]))
    return F.cat(grads, axis)


def _split_rule(input: Any, split_size: Any, dim: int = 0) -> list[Any]:
    if not input.shape:
        raise ShapeMismatch("split expects at least a 1-dimensional tensor")
    _check_split(split_size)
    axis = wrap_dim(dim, len(input.shape))
    return _part_specs(input, _split_sizes(input.shape, split_size, axis), axis)


def _split_node(node: Any) -> str:
    return "SplitBackward0" if isinstance(node.attrs["split_size"], int) else "SplitWithSizesBackward0"


@op(
    _split_rule,
    view=True,
    node=_split_node,
    lists_outputs=True,
)
def split(xp: Any, input: Array, split_size: IntOrInts, dim: Int = 0) -> Any:
    """Parts of ``split_size`` along ``dim``, the last maybe smaller; or parts of the given sizes."""
    axis = dim % input.ndim
    return _parts(input, _split_sizes(input.shape, split_size, axis), axis)


def _split_grad(F: Any, grads: Any, input_shape: Any, split_size: Any, dim: int) -> Any:
    axis = dim % len(input_shape)
    return _joined(F, grads, input_shape, _split_sizes(input_shape, split_size, axis), axis)


split.derivative(input=_split_grad)


def _chunk_sizes(shape: Any, chunks: int, axis: int) -> list[int]:
    """As even as they can be but for the last; of nothing there are as many as asked for."""
    size = shape[axis]
    return _split_sizes(shape, -(-size // chunks), axis) if size else [0] * chunks


def _chunk_rule(input: Any, chunks: int, dim: int = 0) -> list[Any]:
    if not input.shape:
        raise ShapeMismatch("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise InvalidOperation(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    axis = wrap_dim(dim, len(input.shape))
    return _part_specs(input, _chunk_sizes(input.shape, chunks, axis), axis)


def _chunk_node(node: Any) -> str:
    part, _ = node.specs[0]
    return "SplitBackward0" if part[node.attrs.get("dim", 0)] else "SplitWithSizesBackward0"


@op(
    _chunk_rule,
    view=True,
    node=_chunk_node,
    lists_outputs=True,
)
def chunk(xp: Any, input: Array, chunks: Int, dim: Int = 0) -> Any:
    """At most ``chunks`` equal parts along ``dim``."""
    axis = dim % input.ndim
    return _parts(input, _chunk_sizes(input.shape, chunks, axis), axis)


def _chunk_grad(F: Any, grads: Any, input_shape: Any, chunks: int, dim: int) -> Any:
    axis = dim % len(input_shape)
    return _joined(F, grads, input_shape, _chunk_sizes(input_shape, chunks, axis), axis)


chunk.derivative(input=_chunk_grad)


def _unbind_rule(input: Any, dim: int = 0) -> list[Spec]:
    if not input.shape:
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    axis = wrap_dim(dim, len(input.shape))
    shape = input.shape[:axis] + input.shape[axis + 1 :]
    return [Spec(shape, input.dtype) for _ in range(input.shape[axis])]


@op(_unbind_rule, view=True, lists_outputs=True)
def unbind(xp: Any, input: Array, dim: Int = 0) -> Any:
    """The slices along ``dim``."""
    before = (slice(None),) * (dim % input.ndim)
    return [input[(*before, i, ...)] for i in range(input.shape[dim])]


def _unbind_grad(F: Any, grads: Any, input_shape: Any, dim: int) -> Any:
    present = next(g for g in grads if g is not None)
    shape = tuple(n for i, n in enumerate(input_shape) if i != dim % len(input_shape))
    return F.stack([F.new_zeros(present, shape) if g is None else g for g in grads], dim)


unbind.derivative(input=_unbind_grad)


# Parts ---------------------------------------------------------------------------------------------------


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


@op(
    _narrow_rule,
    view=True,
    node="SliceBackward0",
)
def narrow(xp: Any, input: Array, dim: Int, start: Int, length: Int) -> Any:
    """``length`` elements along ``dim`` from ``start``."""
    axis = dim % input.ndim
    begin = start % input.shape[axis] if start < 0 else start
    return input[(slice(None),) * axis + (slice(begin, begin + length),)]


def _narrow_grad(F: Any, grad: Any, input_shape: Any, dim: int, start: int, length: int) -> Any:
    axis = dim % len(input_shape)
    begin = start % input_shape[axis] if start < 0 else start

    def zeros(n: int) -> Any:
        return F.new_zeros(grad, (*input_shape[:axis], n, *input_shape[axis + 1 :]))

    return F.cat([zeros(begin), grad, zeros(input_shape[axis] - begin - length)], axis)


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


@op(_select_rule, view=True)
def select(xp: Any, input: Array, dim: Int, index: Int) -> Any:
    """The slice at ``index`` along ``dim``."""
    return input[(slice(None),) * (dim % input.ndim) + (index, ...)]


def _select_grad(F: Any, grad: Any, input_shape: Any, dim: int, index: int) -> Any:
    axis = dim % len(input_shape)
    return _narrow_grad(F, F.unsqueeze(grad, axis), input_shape, axis, index % input_shape[axis], 1)


select.derivative(input=_select_grad)
