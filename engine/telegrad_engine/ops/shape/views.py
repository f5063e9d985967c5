"""Views of a tensor: reshaped, permuted, expanded, strided and diagonal ones, and writing through views."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...errors import InvalidArgument, InvalidOperation, ShapeMismatch
from ...schema.declaration import (
    FUNCTION,
    INPLACE,
    LINALG_FUNCTION,
    MAY_ALIAS,
    METHOD,
    METHOD_OF_TORCH,
    NEW,
    NO_SCRATCH,
    PRIVATE,
    REPEATING_VIEW,
    STRICT_VIEW,
    UNCHECKED,
    VIEW,
    scratch,
    view_or_copy,
)
from ...schema.op import Op, composite, follow_views, op
from ...schema.parameters import Array, Int, Ints, Items, OptionalDType, OptionalInt, OptionalInts
from ...shapes import (
    Spec,
    broadcast_axes,
    check_keeps_shape,
    check_strided,
    expanded_shape,
    infer_reshape,
    strided_extent,
    wrap_dim,
    wrap_dims,
)
from ..batching import shape_rules
from ..batching.rules import LEADING


def _reshape_rule(input: Any, shape: Any) -> Spec:
    return Spec(infer_reshape(input.shape, shape), input.dtype)


def _copied(input: Any) -> int:
    """The bytes of the copy that may be needed if ``input`` is not contiguous."""
    flags = getattr(input, "flags", None)
    return 0 if flags is None or flags.c_contiguous else int(input.nbytes)


@op(_reshape_rule, node="ViewBackward0", memory=view_or_copy(_copied), batching=shape_rules.reshape)
def reshape(xp: Any, input: Array, shape: Ints) -> Any:
    """The same elements in another shape; one size may be -1. A view where the layout allows."""
    return xp.reshape(input, shape)


@op(_reshape_rule, variants=METHOD_OF_TORCH, memory=STRICT_VIEW, batching=shape_rules.reshape)
def view(xp: Any, input: Array, shape: Ints) -> Any:
    """The same memory in another shape; one size may be -1."""
    try:
        return xp.reshape_view(input, infer_reshape(input.shape, shape))
    except AttributeError:
        raise InvalidOperation(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        ) from None


@composite(memory=MAY_ALIAS)
def flatten(F: Any, input: Array, start_dim: Int = 0, end_dim: Int = -1) -> Any:
    """The dimensions from ``start_dim`` to ``end_dim`` as one."""
    shape = tuple(input.shape)
    first, last = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if first > last:
        raise InvalidOperation("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return F.reshape(input, (1,))
    return F.reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def _squeeze_node(node: Any) -> str:
    dim = node.attrs.get("dim")
    return f"SqueezeBackward{0 if dim is None else 1 if len(dim) == 1 else 2}"


def _squeeze_rule(input: Any, dim: Any) -> Spec:
    dims = () if dim == () else wrap_dims(dim, len(input.shape))
    return Spec(tuple(n for i, n in enumerate(input.shape) if i not in dims or n != 1), input.dtype)


@op(_squeeze_rule, variants=FUNCTION | METHOD | INPLACE, node=_squeeze_node, memory=VIEW, batching=shape_rules.squeeze)
def squeeze(xp: Any, input: Array, dim: OptionalInts = None) -> Any:
    """Without the dimensions of size 1, or without those of ``dim`` that have size 1."""
    return xp.reshape(input, _squeeze_rule(input, dim).shape)


def _unsqueeze_rule(input: Any, dim: int) -> Spec:
    axis = wrap_dim(dim, len(input.shape) + 1)
    return Spec((*input.shape[:axis], 1, *input.shape[axis:]), input.dtype)


@op(_unsqueeze_rule, variants=FUNCTION | METHOD | INPLACE, memory=VIEW, batching=shape_rules.unsqueeze)
def unsqueeze(xp: Any, input: Array, dim: Int) -> Any:
    """With a dimension of size 1 at ``dim``."""
    return xp.expand_dims(input, dim)


for _reshaping in (reshape, view, squeeze, unsqueeze):
    _reshaping.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


# Permuting -----------------------------------------------------------------------------------------------


def _permute_rule(input: Any, dims: Any) -> Spec:
    ndim = len(input.shape)
    if len(dims) != ndim:
        raise ShapeMismatch(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    order: list[int] = []
    for dim in dims:
        axis = wrap_dim(dim, ndim)
        if axis in order:
            raise ShapeMismatch("permute(): duplicate dims are not allowed.")
        order.append(axis)
    return Spec(tuple(input.shape[d] for d in order), input.dtype)


@op(_permute_rule, memory=VIEW, batching=shape_rules.permute)
def permute(xp: Any, input: Array, dims: Ints) -> Any:
    """The dimensions in another order."""
    return xp.transpose(input, dims)


def _permute_grad(F: Any, grad: Any, dims: tuple[int, ...]) -> Any:
    order = [d % len(dims) for d in dims]
    return F.permute(grad, tuple(order.index(i) for i in range(len(dims))))


permute.derivative(input=_permute_grad)


def _transpose_rule(input: Any, dim0: int, dim1: int) -> Spec:
    shape = list(input.shape)
    a, b = wrap_dim(dim0, len(shape)), wrap_dim(dim1, len(shape))
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return Spec(tuple(shape), input.dtype)


@op(_transpose_rule, aliases=("swapaxes", "swapdims"), variants=FUNCTION | METHOD | INPLACE, memory=VIEW)
def transpose(xp: Any, input: Array, dim0: Int, dim1: Int) -> Any:
    """Two dimensions swapped."""
    return xp.swapaxes(input, dim0, dim1) if input.ndim else input.view()


transpose.derivative(input=lambda F, grad, dim0, dim1: F.transpose(grad, dim0, dim1))


def _t_rule(input: Any) -> Spec:
    if len(input.shape) > 2:
        raise ShapeMismatch(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return Spec(input.shape[::-1], input.dtype)


@op(_t_rule, variants=FUNCTION | METHOD | INPLACE, memory=VIEW, batching=shape_rules.t)
def t(xp: Any, input: Array) -> Any:
    """A matrix transposed."""
    return input.T


t.derivative(input=lambda F, grad: F.t(grad))


# Expanding -----------------------------------------------------------------------------------------------


def _expand_rule(input: Any, size: Any) -> Spec:
    return Spec(expanded_shape(input.shape, input.dtype, size), input.dtype)


@op(_expand_rule, variants=METHOD_OF_TORCH, memory=REPEATING_VIEW, batching=shape_rules.expand)
def expand(xp: Any, input: Array, size: Ints) -> Any:
    """Dimensions of size 1 repeated without copying; -1 keeps a size."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


@op(_expand_rule, node="ExpandBackward0", memory=REPEATING_VIEW, batching=shape_rules.expand)
def broadcast_to(xp: Any, input: Array, size: Ints) -> Any:
    """Broadcast to a shape, without copying."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


def _expand_grad(F: Any, grad: Any, input_shape: tuple[int, ...]) -> Any:
    dims = broadcast_axes(input_shape, grad.shape)
    return F.reshape(F.sum(grad, dims, True), input_shape) if dims else grad


expand.derivative(input=_expand_grad)
broadcast_to.derivative(input=_expand_grad)


# Flips and triangles -------------------------------------------------------------------------------------


def _flip_rule(input: Any, dims: Any) -> Spec:
    if dims:
        wrap_dims(dims, len(input.shape), in_turn=True)
    return Spec(input.shape, input.dtype)


@op(_flip_rule, memory=NO_SCRATCH)
def flip(xp: Any, input: Array, dims: Ints) -> Any:
    """The order along ``dims`` reversed."""
    return xp.flip(input, dims if input.ndim else ()).copy()


flip.derivative(input=lambda F, grad, dims: F.flip(grad, dims))


def _declare_triangle(name: str, which: str) -> None:
    def rule(input: Any) -> Spec:
        if len(input.shape) < 2:
            raise ShapeMismatch(f"{name}: input tensor must have at least 2 dimensions")
        return Spec(input.shape, input.dtype)

    def triangle(xp: Any, input: Array, diagonal: Int = 0) -> Any:
        rows, columns = input.shape[-2:]
        # A diagonal beyond the first one outside the matrix changes nothing, and might not fit an int64.
        return getattr(xp, name)(input, int(min(max(diagonal, -rows), columns)))

    triangle.__doc__ = f"The {which} triangle of each matrix, the rest zeros."
    variants = FUNCTION | METHOD | INPLACE
    declared = op(rule, key=name, variants=variants, overlap=UNCHECKED, batching=LEADING)(triangle)
    declared.derivative(input=lambda F, grad, diagonal: getattr(F, name)(grad, diagonal))


_declare_triangle("tril", "lower")
_declare_triangle("triu", "upper")


# Strided views -------------------------------------------------------------------------------------------


def _as_strided_rule(input: Any, size: Any, stride: Any, storage_offset: int | None) -> Spec:
    check_strided(input.shape, input.dtype.itemsize, size, stride, storage_offset or 0)
    return Spec(tuple(size), input.dtype)


@op(_as_strided_rule, variants=FUNCTION | METHOD | INPLACE, memory=REPEATING_VIEW, batching=shape_rules.strided)
def as_strided(xp: Any, input: Array, size: Ints, stride: Ints, storage_offset: OptionalInt = None) -> Any:
    """A view with these sizes and strides, in elements, from ``storage_offset``; elements may be seen repeatedly.

    The memory is that of ``input``'s own elements in row-major order: a tensor that is not contiguous raises, and
    the rest of a view's base is out of bounds.
    """
    if not xp.is_contiguous(input):
        raise InvalidOperation("as_strided needs a contiguous tensor here; call .contiguous() first")
    return xp.as_strided(input, size, stride, storage_offset or 0)


def _as_strided_grad(F: Any, grad: Any, input_shape: Any, size: Any, stride: Any, storage_offset: int | None) -> Any:
    """The gradient, summed for elements that the view contains several times."""
    places = F.as_strided(F.arange(math.prod(input_shape)), size, stride, storage_offset)
    flat = F.new_zeros(grad, (math.prod(input_shape),))
    return F.reshape(F.index_add(flat, 0, F.reshape(places, (-1,)), F.reshape(grad, (-1,))), input_shape)


as_strided.derivative(input=_as_strided_grad)


def _unstrided_rule(input: Any, shape: Any, stride: Any, storage_offset: int | None) -> Spec:
    if any(n < 0 for n in shape):
        raise ShapeMismatch(f"a shape has no negative sizes, but this one is {list(shape)}")
    check_strided(shape, input.dtype.itemsize, input.shape, stride, storage_offset or 0)
    return Spec(tuple(shape), input.dtype)


@op(_unstrided_rule, variants=PRIVATE)
def unstrided(xp: Any, input: Array, shape: Ints, stride: Ints, storage_offset: OptionalInt = None) -> Any:
    """A tensor of ``shape`` of which ``input`` is what ``as_strided`` shows; zero where it shows nothing."""
    room = math.prod(shape)
    places = xp.as_strided(xp.arange(room), input.shape, stride, storage_offset or 0)
    return xp.reshape(xp.index_set(xp.zeros((room,), input.dtype), places, input), shape)


unstrided.derivative(
    input=lambda F, grad, input_shape, stride, storage_offset: F.as_strided(
        F.contiguous(grad), input_shape, stride, storage_offset
    )
)


@composite(results=NEW)
def empty_strided(F: Any, size: Ints, stride: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor of these sizes and strides whose values mean nothing; here, zeros."""
    if len(size) != len(stride):
        raise ShapeMismatch(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    if any(n < 0 for n in (*size, *stride)):
        raise ShapeMismatch(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    return F.as_strided(F.empty((strided_extent(size, stride, 0),), dtype=dtype), size, stride)


@composite(results=NEW)
def empty_permuted(F: Any, size: Ints, physical_layout: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor whose dimensions lie in memory in the order ``physical_layout``; its values mean nothing."""
    if len(size) != len(physical_layout):
        raise ShapeMismatch(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for d in physical_layout:
        if not 0 <= d < len(size):
            raise ShapeMismatch(
                "Dimension out of range (expected to be between 0 and "
                f"{len(size) - 1}, but got {d} at index {physical_layout.index(d)}).  NB: negative dims not currently "
                "supported; file an issue if you want it."
            )
    if len(set(physical_layout)) != len(physical_layout):
        raise ShapeMismatch("Duplicate dim not allowed")
    made = F.empty(tuple([size[d] for d in physical_layout]), dtype=dtype)
    return F.permute(made, tuple([physical_layout.index(d) for d in range(len(size))]))


# Diagonals: reading, writing and embedding ---------------------------------------------------------------


def _matrix_dims(ndim: int, dim1: int, dim2: int) -> tuple[int, int]:
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise InvalidOperation(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return first, second


def _diagonal_rule(input: Any, offset: int, dim1: int, dim2: int) -> Spec:
    first, second = _matrix_dims(len(input.shape), dim1, dim2)
    rows, columns = input.shape[first], input.shape[second]
    n = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    return Spec((*(m for i, m in enumerate(input.shape) if i not in (first, second)), n), input.dtype)


@op(_diagonal_rule, memory=VIEW)
def diagonal(xp: Any, input: Array, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Any:
    """The diagonal of the matrices in ``dim1`` and ``dim2``, ``offset`` above the main one, as last dimension."""
    n = _diagonal_rule(input, offset, dim1, dim2).shape[-1]
    down, right = (max(-offset, 0), max(offset, 0)) if n else (0, 0)
    matrices = xp.moveaxis(input, (dim1, dim2), (-2, -1))
    # The result of NumPy's diagonal is read-only; that of einsum is writable.
    return xp.einsum("...ii->...i", matrices[..., down : down + n, right : right + n])


diagonal.derivative(
    input=lambda F, grad, input_shape, offset, dim1, dim2: F.diagonal_scatter(
        F.new_zeros(grad, input_shape), grad, offset, dim1, dim2
    )
)


@composite(key="diagonal", variants=LINALG_FUNCTION, memory=MAY_ALIAS)
def linalg_diagonal(F: Any, A: Array, *, offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Any:
    """The diagonal of each matrix, as last dimension."""
    return F.diagonal(A, offset, dim1, dim2)


def write_flat(xp: Any, input: Any, places: Any, values: Any) -> Any:
    """``input`` with ``values`` written at the flat, row-major indices ``places``."""
    return xp.reshape(xp.index_set(xp.reshape(input, (-1,)), places, values), input.shape)


def check_part(src: Any, part: tuple[int, ...]) -> None:
    """Raise unless ``src`` has the shape of the part that it replaces."""
    if tuple(src.shape) != part:
        raise ShapeMismatch(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(part)}"
        )


def _diagonal_scatter_rule(input: Any, src: Any, offset: int, dim1: int, dim2: int) -> Spec:
    check_part(src, _diagonal_rule(input, offset, dim1, dim2).shape)
    return Spec(input.shape, input.dtype)


@op(_diagonal_scatter_rule, memory=scratch(1.25))
def diagonal_scatter(xp: Any, input: Array, src: Array, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Any:
    """``input`` with ``src`` in place of the diagonal of its matrices."""
    places = diagonal.raw(xp, xp.reshape(xp.arange(input.size), input.shape), offset, dim1, dim2)
    return write_flat(xp, input, places, src)


diagonal_scatter.derivative(
    input=lambda F, grad, src_shape, offset, dim1, dim2: F.diagonal_scatter(
        grad, F.new_zeros(grad, src_shape), offset, dim1, dim2
    ),
    src=lambda F, grad, offset, dim1, dim2: F.diagonal(grad, offset, dim1, dim2),
)


@composite()
def diag_embed(F: Any, input: Array, offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Any:
    """Matrices in ``dim1`` and ``dim2`` with the last dimension on a diagonal, the rest zeros."""
    first, second = _matrix_dims(len(input.shape) + 1, dim1, dim2)
    *shape, n = input.shape
    for axis in sorted((first, second)):
        shape.insert(axis, n + abs(offset))
    return F.diagonal_scatter(F.new_zeros(input, tuple(shape)), input, offset, first, second)


@composite()
def diag(F: Any, input: Array, diagonal: Int = 0) -> Any:
    """A matrix with this vector on a diagonal, or a copy of a diagonal of this matrix."""
    ndim = len(input.shape)
    if ndim not in (1, 2):
        raise ShapeMismatch(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    return F.diag_embed(input, diagonal) if ndim == 1 else F.clone(F.diagonal(input, diagonal))


# Writing through views: the derivative of a base after one of its views was modified in place ------------


def _follow(x: Any, chain: Any, apply: Callable[[Op, Any, Any], Any]) -> Any:
    """Apply a chain of views to ``x``; ``apply(op, x, attrs)`` runs one of them.

    ``view`` is replaced by ``reshape``, because the layout of ``x`` may not allow the view that the base's allowed.
    """
    return follow_views(x, chain, lambda op, x, attrs: apply(reshape if op.key == "view" else op, x, attrs))


def _view_scatter_rule(input: Any, src: Any, chain: Any) -> Spec:
    if not all(isinstance(link, tuple) and len(link) == 3 and isinstance(link[0], Op) for link in chain):
        raise InvalidArgument("view_scatter(): argument 'chain' must be a chain of views")
    whole = Spec(input.shape, input.dtype)
    check_keeps_shape(_follow(whole, chain, lambda op, x, attrs: op.rule(x, **attrs)).shape, src.shape)
    return whole


@op(_view_scatter_rule, variants=PRIVATE, memory=scratch(2.0))
def view_scatter(xp: Any, input: Array, src: Array, chain: Items) -> Any:
    """``input`` with the part that ``chain`` of views leads to replaced by ``src``."""
    # After as_strided_, a base may show only part of its elements; writes to the others go to a spare element 0.
    spare = int(any(step.key == "unstrided" for step, _, _ in chain))
    whole = xp.arange(spare, math.prod(input.shape) + spare).reshape(input.shape)
    places = _follow(whole, chain, lambda op, x, attrs: op.kernel(xp, x, **attrs))
    flat = xp.reshape(input, (-1,))
    if spare:
        flat = xp.concatenate([xp.zeros((1,), input.dtype), flat])
    return xp.reshape(xp.index_set(flat, places, src)[spare:], input.shape)


view_scatter.derivative(
    input=lambda F, grad, src_shape, chain: F.view_scatter(grad, F.new_zeros(grad, src_shape), chain),
    src=lambda F, grad, chain: _follow(
        grad, chain, lambda op, x, attrs: getattr(F, op.key.replace(".", "_"))(x, **attrs)
    ),
)
