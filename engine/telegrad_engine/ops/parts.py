"""Joining tensors, taking them apart, and writing through their parts."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import promote_types
from ..errors import (
    IndexOutOfRange,
    InvalidOperation,
    InvalidValue,
    ShapeMismatch,
)
from ..params import (
    Array,
    Arrays,
    Int,
    IntOrInts,
    Items,
)
from ..registry import composite, op
from ..specs import (
    Spec,
    wrap_dim,
)

# Joining and splitting -----------------------------------------------------------------------------------


def _joined_dtype(tensors: Any) -> Any:
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote_types(dtype, x.dtype)
    return dtype


def _cat_rule(tensors: Any, dim: int = 0) -> Spec:
    if not tensors:
        raise InvalidValue("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not x.shape:
            raise ShapeMismatch(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    first = tensors[0].shape
    axis = wrap_dim(dim, len(first))
    total = 0
    for i, x in enumerate(tensors):
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


@op(
    _cat_rule,
    method=False,
    cases=[
        case([T(2, 3), T(1, 3)]),
        case([T(2, 3), T(2, 1), T(2, 2)], dim=-1),
        case([T(0, 3), T(2, 3)]),
        case([T(3)]),
    ],
    aliases=("concat", "concatenate"),
)
def cat(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors joined along ``dim``."""
    return xp.concatenate(tensors, axis=dim)


def _cat_grad(F: Any, grad: Any, tensors_shape: Any, dim: int) -> list[Any]:
    parts, start = [], 0
    for shape in tensors_shape:
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


@op(
    _stack_rule,
    method=False,
    cases=[case([T(2, 3), T(2, 3)]), case([T(2), T(2), T(2)], dim=-1), case([T(), T()]), case([T(0)])],
)
def stack(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors, all of one shape, along a new dimension."""
    return xp.stack(tensors, axis=dim)


stack.derivative(
    tensors=lambda F, grad, tensors_shape, dim: [F.select(grad, dim, i) for i in range(len(tensors_shape))]
)


def _split_sizes(shape: Any, split_size: Any, axis: int) -> list[int]:
    size = shape[axis]
    if not isinstance(split_size, int):
        if sum(split_size) != size or any(n < 0 for n in split_size):
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


def _split_rule(input: Any, split_size: Any, dim: int = 0) -> list[Spec]:
    if not input.shape:
        raise ShapeMismatch("split expects at least a 1-dimensional tensor")
    _check_split(split_size)
    axis = wrap_dim(dim, len(input.shape))
    sizes = _split_sizes(input.shape, split_size, axis)
    return [Spec((*input.shape[:axis], n, *input.shape[axis + 1 :]), input.dtype) for n in sizes]


def _split_node(node: Any) -> str:
    return "SplitBackward0" if isinstance(node.attrs["split_size"], int) else "SplitWithSizesBackward0"


@op(
    _split_rule,
    view=True,
    node=_split_node,
    lists_outputs=True,
    cases=[case(T(5, 2), 2), case(T(5, 2), [1, 4]), case(T(2, 4), 2, dim=1), case(T(0, 2), 3)],
)
def split(xp: Any, input: Array, split_size: IntOrInts, dim: Int = 0) -> Any:
    """Parts of ``split_size`` along ``dim``, the last maybe smaller; or parts of the given sizes."""
    axis = wrap_dim(dim, input.ndim)
    before, start, parts = (slice(None),) * axis, 0, []
    for n in _split_sizes(input.shape, split_size, axis):
        parts.append(input[(*before, slice(start, start + n))])
        start += n
    return parts


def _split_grad(F: Any, grads: Any, input_shape: Any, input_dtype: Any, split_size: Any, dim: int) -> Any:
    sizes = _split_sizes(input_shape, split_size, wrap_dim(dim, len(input_shape)))
    present = next(g for g in grads if g is not None)
    parts = []
    for grad, n in zip(grads, sizes, strict=True):
        shape = list(input_shape)
        shape[dim] = n
        parts.append(F.new_zeros(present, tuple(shape)) if grad is None else grad)
    return F.cat(parts, dim)


split.derivative(input=_split_grad)


@composite(cases=[case(T(5, 2), 2), case(T(2, 4), 3, dim=1), case(T(4), 4)])
def chunk(F: Any, input: Array, chunks: Int, dim: Int = 0) -> Any:
    """At most ``chunks`` equal parts along ``dim``."""
    if chunks <= 0:
        raise InvalidOperation(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not input.shape:
        raise ShapeMismatch("chunk expects at least a 1-dimensional tensor")
    size = input.shape[wrap_dim(dim, len(input.shape))]
    return F.split(input, max(-(-size // chunks), 0), dim)


def _unbind_rule(input: Any, dim: int = 0) -> list[Spec]:
    if not input.shape:
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    axis = wrap_dim(dim, len(input.shape))
    shape = input.shape[:axis] + input.shape[axis + 1 :]
    return [Spec(shape, input.dtype) for _ in range(input.shape[axis])]


@op(_unbind_rule, view=True, lists_outputs=True, cases=[case(T(3, 2)), case(T(3, 2), -1), case(T(3, 0))])
def unbind(xp: Any, input: Array, dim: Int = 0) -> Any:
    """The slices along ``dim``."""
    return [xp.moveaxis(input, dim, 0)[i, ...] for i in range(input.shape[dim])]


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
    cases=[case(T(5, 2), 0, 1, 3), case(T(2, 4), -1, 2, 2), case(T(3), 0, -2, 1), case(T(3), 0, 3, 0)],
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


@op(_select_rule, view=True, cases=[case(T(3, 2), 0, 1), case(T(2, 3), -1, -2), case(T(3), 0, 0)])
def select(xp: Any, input: Array, dim: Int, index: Int) -> Any:
    """The slice at ``index`` along ``dim``."""
    return input[(slice(None),) * (dim % input.ndim) + (index, ...)]


def _select_grad(F: Any, grad: Any, input_shape: Any, dim: int, index: int) -> Any:
    axis = dim % len(input_shape)
    return _narrow_grad(F, F.unsqueeze(grad, axis), input_shape, axis, index % input_shape[axis], 1)


select.derivative(input=_select_grad)


# Writing through views -----------------------------------------------------------------------------------


def _view_scatter_rule(input: Any, src: Any, chain: Any) -> Spec:
    return Spec(input.shape, input.dtype)


def follow(F: Any, x: Any, chain: Any) -> Any:
    """The part of ``x`` that a chain of view ops leads to."""
    for step, attrs, index in chain:
        x = getattr(F, step.key.replace(".", "_"))(x, **attrs)
        if isinstance(x, (list, tuple)):
            x = x[index]
    return x


@op(_view_scatter_rule, method=False, internal=True)
def view_scatter(xp: Any, input: Array, src: Array, chain: Items) -> Any:
    """``input`` with the part that ``chain`` of views leads to replaced by ``src``."""
    places = xp.arange(math.prod(input.shape)).reshape(input.shape)
    for step, attrs, index in chain:
        places = step.kernel(xp, places, **attrs)
        if isinstance(places, (list, tuple)):
            places = places[index]
    flat = xp.index_set(xp.reshape(input, (-1,)), places, src)
    return xp.reshape(flat, input.shape)


view_scatter.derivative(
    input=lambda F, grad, src_shape, chain: F.view_scatter(grad, F.new_zeros(grad, src_shape), chain),
    src=lambda F, grad, chain: follow(F, grad, chain),
)
