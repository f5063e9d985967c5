"""Ops that move elements without changing them."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import promote_types
from ..errors import IndexOutOfRange, InvalidOperation, InvalidValue, ShapeMismatch
from ..params import Array, Arrays, Int, IntOrInts, Ints, Items, OptionalInts
from ..registry import composite, op
from ..specs import Spec, expanded_shape, infer_reshape, wrap_dim, wrap_dims

# Reshaping ------------------------------------------------------------------------------------------


def _reshape_rule(input: Any, shape: Any) -> Spec:
    return Spec(infer_reshape(input.shape, shape), input.dtype)


RESHAPES = [
    case(T(2, 3), (3, 2)),
    case(T(2, 3), (-1,)),
    case(T(2, 3, 4), (2, -1)),
    case(T(), (1, 1)),
    case(T(0, 3), (3, 0)),
    case(T(1), ()),
]


@op(_reshape_rule, view=True, node="ViewBackward0", cases=RESHAPES)
def reshape(xp: Any, input: Array, shape: Ints) -> Any:
    """The same elements in another shape; one size may be -1. A view where the layout allows."""
    return xp.reshape(input, shape)


@op(_reshape_rule, view=True, cases=RESHAPES)
def view(xp: Any, input: Array, shape: Ints) -> Any:
    """The same memory in another shape; one size may be -1."""
    result = input.view()
    try:
        result.shape = infer_reshape(input.shape, shape)
    except AttributeError:
        raise InvalidOperation(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
            "two contiguous subspaces). Use .reshape(...) instead."
        ) from None
    return result


for _reshaping in (reshape, view):
    _reshaping.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


@composite(
    cases=[case(T(2, 3, 4)), case(T(2, 3, 4), 1), case(T(2, 3, 4), start_dim=0, end_dim=1), case(T()), case(T(0, 3))]
)
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


def _squeeze_rule(input: Any, dim: Any = None) -> Spec:
    dims = wrap_dims(dim, len(input.shape)) if dim is not None else tuple(range(len(input.shape)))
    return Spec(tuple(n for i, n in enumerate(input.shape) if i not in dims or n != 1), input.dtype)


@op(_squeeze_rule, view=True, node=_squeeze_node, cases=[case(T(2, 1, 3, 1)), case(T(2, 1, 3), 1), case(T(2, 1, 3), 0), case(T(), 0), case(T(1, 0))])
def squeeze(xp: Any, input: Array, dim: OptionalInts = None) -> Any:
    """Without the dimensions of size 1, or without those of ``dim`` that have size 1."""
    return xp.reshape(input, _squeeze_rule(input, dim).shape)


squeeze.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


def _unsqueeze_rule(input: Any, dim: int) -> Spec:
    axis = wrap_dim(dim, len(input.shape) + 1)
    return Spec((*input.shape[:axis], 1, *input.shape[axis:]), input.dtype)


@op(_unsqueeze_rule, view=True, cases=[case(T(2, 3), 1), case(T(2, 3), -1), case(T(), 0), case(T(0), 0)])
def unsqueeze(xp: Any, input: Array, dim: Int) -> Any:
    """With a dimension of size 1 at ``dim``."""
    return xp.expand_dims(input, dim)


unsqueeze.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))

# Permuting ------------------------------------------------------------------------------------------


def _permute_rule(input: Any, dims: Any) -> Spec:
    ndim = len(input.shape)
    if len(dims) != ndim:
        raise ShapeMismatch(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    order = tuple(wrap_dim(d, ndim) for d in dims)
    if len(set(order)) != len(order):
        raise ShapeMismatch("permute(): duplicate dims are not allowed.")
    return Spec(tuple(input.shape[d] for d in order), input.dtype)


@op(_permute_rule, view=True, cases=[case(T(2, 3, 4), (2, 0, 1)), case(T(2, 3), (-1, 0)), case(T(), ()), case(T(0, 3), (1, 0))])
def permute(xp: Any, input: Array, dims: Ints) -> Any:
    """The dimensions in another order."""
    return xp.transpose(input, dims)


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    order = [d % len(dims) for d in dims]
    return tuple(order.index(i) for i in range(len(dims)))


permute.derivative(input=lambda F, grad, dims: F.permute(grad, _inverse(dims)))


def _transpose_rule(input: Any, dim0: int, dim1: int) -> Spec:
    ndim = len(input.shape)
    a, b = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    shape = list(input.shape)
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return Spec(tuple(shape), input.dtype)


@op(
    _transpose_rule,
    view=True,
    cases=[case(T(2, 3, 4), 0, 2), case(T(2, 3), -1, 0), case(T(), 0, 0), case(T(0, 3), 0, 1)],
    aliases=("swapaxes", "swapdims"),
)
def transpose(xp: Any, input: Array, dim0: Int, dim1: Int) -> Any:
    """Two dimensions swapped."""
    return xp.swapaxes(input, dim0, dim1) if input.ndim else input.view()


transpose.derivative(input=lambda F, grad, dim0, dim1: F.transpose(grad, dim0, dim1))


def _t_rule(input: Any) -> Spec:
    if len(input.shape) > 2:
        raise ShapeMismatch(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return Spec(input.shape[::-1], input.dtype)


@op(_t_rule, view=True, cases=[case(T(2, 3)), case(T(3)), case(T())])
def t(xp: Any, input: Array) -> Any:
    """A matrix transposed."""
    return xp.transpose(input)


t.derivative(input=lambda F, grad: F.t(grad))

# Repeating ------------------------------------------------------------------------------------------


def _expand_rule(input: Any, size: Any) -> Spec:
    shape = expanded_shape(input.shape, input.dtype, size)
    return Spec(shape, input.dtype)


EXPANSIONS = [case(T(3, 1), (3, 4)), case(T(3), (2, 3)), case(T(), (2, 2)), case(T(1, 3), (0, 3))]


@op(_expand_rule, view=True, cases=[*EXPANSIONS, case(T(3, 1), (-1, 4))])
def expand(xp: Any, input: Array, size: Ints) -> Any:
    """Dimensions of size 1 repeated without copying; -1 keeps a size."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


@op(_expand_rule, view=True, node="ExpandBackward0", cases=EXPANSIONS)
def broadcast_to(xp: Any, input: Array, size: Ints) -> Any:
    """Broadcast to a shape, without copying."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


def sum_to(F: Any, grad: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the dimensions that broadcasting added or stretched."""
    lead = len(grad.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and grad.shape[i + lead] != 1
    )
    return F.reshape(F.sum(grad, dims, True), shape) if dims else grad


for _expansion in (expand, broadcast_to):
    _expansion.derivative(input=lambda F, grad, input_shape: sum_to(F, grad, input_shape))

# Joining and splitting ------------------------------------------------------------------------------


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
            raise ShapeMismatch(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(x.shape)}"
            )
        for d, (a, b) in enumerate(zip(first, x.shape, strict=True)):
            if d != axis and a != b:
                raise ShapeMismatch(
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {a} but got size {b} "
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
    for i, x in enumerate(tensors):
        if x.shape != first:
            raise ShapeMismatch(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )
    axis = wrap_dim(dim, len(first) + 1)
    return Spec((*first[:axis], len(tensors), *first[axis:]), _joined_dtype(tensors))


@op(_stack_rule, method=False, cases=[case([T(2, 3), T(2, 3)]), case([T(2), T(2), T(2)], dim=-1), case([T(), T()]), case([T(0)])])
def stack(xp: Any, tensors: Arrays, dim: Int = 0) -> Any:
    """The tensors, all of one shape, along a new dimension."""
    return xp.stack(tensors, axis=dim)


stack.derivative(tensors=lambda F, grad, tensors_shape, dim: [F.select(grad, dim, i) for i in range(len(tensors_shape))])


def _split_sizes(shape: Any, split_size: Any, axis: int) -> list[int]:
    size = shape[axis]
    if not isinstance(split_size, int):
        if sum(split_size) != size or any(n < 0 for n in split_size):
            raise ShapeMismatch(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension "
                f"{axis}), but got split_sizes={list(split_size)}"
            )
        return list(split_size)
    if split_size < 0:
        raise ShapeMismatch(f"split expects split_size be non-negative, but got split_size={split_size}")
    if split_size == 0:
        if size:
            raise ShapeMismatch(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return [0]
    full, rest = divmod(size, split_size)
    return [split_size] * full + ([rest] if rest or not full else [])


def _split_rule(input: Any, split_size: Any, dim: int = 0) -> list[Spec]:
    if not input.shape:
        raise ShapeMismatch("split expects at least a 1-dimensional tensor")
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
    starts, start = [], 0
    for n in _split_sizes(input.shape, split_size, wrap_dim(dim, input.ndim))[:-1]:
        start += n
        starts.append(start)
    return xp.split(input, starts, axis=dim)


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

# Parts ----------------------------------------------------------------------------------------------


def _narrow_rule(input: Any, dim: int, start: int, length: int) -> Spec:
    if not input.shape:
        raise ShapeMismatch("narrow() cannot be applied to a 0-dim tensor.")
    axis = wrap_dim(dim, len(input.shape))
    size = input.shape[axis]
    if not -size <= start <= size:
        raise IndexOutOfRange(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    begin = start + size if start < 0 else start
    if length < 0:
        raise InvalidOperation("narrow(): length must be non-negative.")
    if begin + length > size:
        raise InvalidOperation(f"start ({begin}) + length ({length}) exceeds dimension size ({size}).")
    return Spec((*input.shape[:axis], length, *input.shape[axis + 1 :]), input.dtype)


@op(_narrow_rule, view=True, node="SliceBackward0", cases=[case(T(5, 2), 0, 1, 3), case(T(2, 4), -1, 2, 2), case(T(3), 0, -2, 1), case(T(3), 0, 3, 0)])
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

# Reordering -----------------------------------------------------------------------------------------


def _flip_rule(input: Any, dims: Any) -> Spec:
    if dims:
        wrap_dims(dims, len(input.shape))
    return Spec(input.shape, input.dtype)


@op(_flip_rule, cases=[case(T(2, 3), (0,)), case(T(2, 3), (0, -1)), case(T(0, 3), (0,))])
def flip(xp: Any, input: Array, dims: Ints) -> Any:
    """The order along ``dims`` reversed."""
    return xp.flip(input, dims if input.ndim else ()).copy()


flip.derivative(input=lambda F, grad, dims: F.flip(grad, dims))


def _tri_rule(input: Any, diagonal: int = 0) -> Spec:
    if len(input.shape) < 2:
        raise ShapeMismatch("tril: input tensor must have at least 2 dimensions")
    return Spec(input.shape, input.dtype)


TRIANGLES = [case(T(3, 3)), case(T(2, 3), 1), case(T(2, 3, 4), diagonal=-1), case(T(0, 3))]


@op(_tri_rule, cases=TRIANGLES)
def tril(xp: Any, input: Array, diagonal: Int = 0) -> Any:
    """The lower triangle of each matrix, the rest zeros."""
    return xp.tril(input, diagonal)


@op(_tri_rule, cases=TRIANGLES)
def triu(xp: Any, input: Array, diagonal: Int = 0) -> Any:
    """The upper triangle of each matrix, the rest zeros."""
    return xp.triu(input, diagonal)


tril.derivative(input=lambda F, grad, diagonal: F.tril(grad, diagonal))
triu.derivative(input=lambda F, grad, diagonal: F.triu(grad, diagonal))

# Writing through views ------------------------------------------------------------------------------


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
