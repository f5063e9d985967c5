"""Ops that move elements without changing them."""

from __future__ import annotations

import math
from typing import Any

from ..errors import InvalidOperation, ShapeMismatch
from ..schema.derivative_plan import Rule
from ..schema.op import composite, op
from ..schema.parameters import Array, Int, Ints, OptionalInts
from ..shapes import Spec, expanded_shape, infer_reshape, wrap_dim, wrap_dims

# Reshaping -----------------------------------------------------------------------------------------------


def _reshape_rule(input: Any, shape: Any) -> Spec:
    return Spec(infer_reshape(input.shape, shape), input.dtype)


def _copied(input: Any, shape: Any) -> int:
    """The bytes of a copy, where the layout may not allow a view."""
    flags = getattr(input, "flags", None)
    return 0 if flags is None or flags.c_contiguous else int(input.nbytes)


@op(_reshape_rule, view=True, may_copy=True, node="ViewBackward0", scratch=_copied)
def reshape(xp: Any, input: Array, shape: Ints) -> Any:
    """The same elements in another shape; one size may be -1. A view where the layout allows."""
    return xp.reshape(input, shape)


@op(_reshape_rule, view=True)
def view(xp: Any, input: Array, shape: Ints) -> Any:
    """The same memory in another shape; one size may be -1."""
    try:
        return xp.reshape_view(input, infer_reshape(input.shape, shape))
    except AttributeError:
        raise InvalidOperation(
            "view size is not compatible with input tensor's size and stride (at least one dimension "
            "spans across "
            "two contiguous subspaces). Use .reshape(...) instead."
        ) from None


for _reshaping in (reshape, view):
    _reshaping.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


@composite(
    may_alias=True,
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
    if dim == ():
        return Spec(input.shape, input.dtype)
    dims = wrap_dims(dim, len(input.shape)) if dim is not None else tuple(range(len(input.shape)))
    return Spec(tuple(n for i, n in enumerate(input.shape) if i not in dims or n != 1), input.dtype)


@op(
    _squeeze_rule,
    view=True,
    inplace=True,
    node=_squeeze_node,
)
def squeeze(xp: Any, input: Array, dim: OptionalInts = None) -> Any:
    """Without the dimensions of size 1, or without those of ``dim`` that have size 1."""
    return xp.reshape(input, _squeeze_rule(input, dim).shape)


squeeze.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


def _unsqueeze_rule(input: Any, dim: int) -> Spec:
    axis = wrap_dim(dim, len(input.shape) + 1)
    return Spec((*input.shape[:axis], 1, *input.shape[axis:]), input.dtype)


@op(
    _unsqueeze_rule,
    view=True,
    inplace=True,
)
def unsqueeze(xp: Any, input: Array, dim: Int) -> Any:
    """With a dimension of size 1 at ``dim``."""
    return xp.expand_dims(input, dim)


unsqueeze.derivative(input=lambda F, grad, input_shape: F.reshape(grad, input_shape))


# Permuting -----------------------------------------------------------------------------------------------


def _permute_rule(input: Any, dims: Any) -> Spec:
    ndim = len(input.shape)
    if len(dims) != ndim:
        raise ShapeMismatch(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of "
            "the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    order: list[int] = []
    for dim in dims:
        axis = wrap_dim(dim, ndim)
        if axis in order:
            raise ShapeMismatch("permute(): duplicate dims are not allowed.")
        order.append(axis)
    return Spec(tuple(input.shape[d] for d in order), input.dtype)


@op(
    _permute_rule,
    view=True,
)
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


@op(_transpose_rule, view=True, inplace=True, aliases=("swapaxes", "swapdims"))
def transpose(xp: Any, input: Array, dim0: Int, dim1: Int) -> Any:
    """Two dimensions swapped."""
    return xp.swapaxes(input, dim0, dim1) if input.ndim else input.view()


transpose.derivative(input=lambda F, grad, dim0, dim1: F.transpose(grad, dim0, dim1))


def _t_rule(input: Any) -> Spec:
    if len(input.shape) > 2:
        raise ShapeMismatch(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return Spec(input.shape[::-1], input.dtype)


@op(_t_rule, view=True, inplace=True)
def t(xp: Any, input: Array) -> Any:
    """A matrix transposed."""
    return xp.transpose(input)


t.derivative(input=lambda F, grad: F.t(grad))


# Repeating -----------------------------------------------------------------------------------------------


def _expand_rule(input: Any, size: Any) -> Spec:
    shape = expanded_shape(input.shape, input.dtype, size)
    return Spec(shape, input.dtype)


@op(_expand_rule, view=True)
def expand(xp: Any, input: Array, size: Ints) -> Any:
    """Dimensions of size 1 repeated without copying; -1 keeps a size."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


@op(_expand_rule, view=True, node="ExpandBackward0")
def broadcast_to(xp: Any, input: Array, size: Ints) -> Any:
    """Broadcast to a shape, without copying."""
    return xp.broadcast_to(input, expanded_shape(input.shape, input.dtype, size))


def sum_to(F: Any, grad: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the dimensions that broadcasting added or stretched."""
    lead = len(grad.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and grad.shape[i + lead] != 1)
    return F.reshape(F.sum(grad, dims, True), shape) if dims else grad


for _expansion in (expand, broadcast_to):
    _expansion.derivative(input=lambda F, grad, input_shape: sum_to(F, grad, input_shape))


# Reordering ----------------------------------------------------------------------------------------------


def _flip_rule(input: Any, dims: Any) -> Spec:
    if dims:
        wrap_dims(dims, len(input.shape), in_turn=True)
    return Spec(input.shape, input.dtype)


@op(_flip_rule, scratch=0.0)
def flip(xp: Any, input: Array, dims: Ints) -> Any:
    """The order along ``dims`` reversed."""
    return xp.flip(input, dims if input.ndim else ()).copy()


flip.derivative(input=lambda F, grad, dims: F.flip(grad, dims))


def _tri_rule(name: str) -> Rule:
    def rule(input: Any, diagonal: int = 0) -> Spec:
        if len(input.shape) < 2:
            raise ShapeMismatch(f"{name}: input tensor must have at least 2 dimensions")
        return Spec(input.shape, input.dtype)

    return rule


@op(_tri_rule("tril"), inplace=True)
def tril(xp: Any, input: Array, diagonal: Int = 0) -> Any:
    """The lower triangle of each matrix, the rest zeros."""
    return xp.tril(input, _reach(input, diagonal))


@op(_tri_rule("triu"), inplace=True)
def triu(xp: Any, input: Array, diagonal: Int = 0) -> Any:
    """The upper triangle of each matrix, the rest zeros."""
    return xp.triu(input, _reach(input, diagonal))


def _reach(input: Any, diagonal: int) -> int:
    """The diagonal, or the first one outside of the matrix: a number beyond might not fit an int64."""
    rows, columns = input.shape[-2:]
    return int(min(max(diagonal, -rows), columns))


tril.derivative(input=lambda F, grad, diagonal: F.tril(grad, diagonal))
triu.derivative(input=lambda F, grad, diagonal: F.triu(grad, diagonal))
