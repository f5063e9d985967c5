"""Ops that rearrange and repeat elements: moved, tiled, rolled and stacked ones, diagonals and windows."""

from __future__ import annotations

from typing import Any

from ..errors import IndexOutOfRange, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Arrays, Int, IntOrInts, Ints, ManyArrays, OptionalStr, Shifts
from ..shapes import Spec, broadcast_shapes, infer_reshape, wrap_dim

# Dimensions ----------------------------------------------------------------------------------------------


@composite(
    may_alias=True,
)
def unflatten(F: Any, input: Array, dim: Int, sizes: Ints) -> Any:
    """Dimension ``dim`` as several of ``sizes``, one of which may be -1."""
    if not sizes:
        raise InvalidOperation("unflatten: sizes must be non-empty")
    axis = wrap_dim(dim, len(input.shape))
    shape = tuple(input.shape)
    if not shape:
        raise ShapeMismatch("unflatten got an unexpected error:\nDimension specified as 0 but tensor has no dimensions")
    try:
        parts = infer_reshape((shape[axis],), sizes)
    except ShapeMismatch as error:
        if "is invalid for input" not in str(error):
            raise ShapeMismatch(f"unflatten got an unexpected error:\n{error}") from None
        raise ShapeMismatch(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {axis} "
            f"({shape[axis]}) in the input tensor"
        ) from None
    return F.reshape(input, (*shape[:axis], *parts, *shape[axis + 1 :]))


def _several(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else value


@composite(
    may_alias=True,
    aliases=("moveaxis",),
)
def movedim(F: Any, input: Array, source: IntOrInts, destination: IntOrInts) -> Any:
    """The dimensions in ``source`` moved to ``destination``, the others kept in order."""
    ndim = len(input.shape)
    given = {"source": _several(source), "destination": _several(destination)}
    if len(given["source"]) != len(given["destination"]):
        raise InvalidOperation(
            f"movedim: Invalid source or destination dims: source ({list(given['source'])} dims) should contain the "
            f"same number of dims as destination ({list(given['destination'])} dims)"
        )
    wrapped = {name: [wrap_dim(d, ndim) for d in dims] for name, dims in given.items()}
    for name, dims in wrapped.items():
        if len(set(dims)) != len(dims):
            raise InvalidOperation(f"movedim: repeated dim in `{name}` ({list(given[name])})")
    if not ndim:
        return F.permute(input, ())
    order = [d for d in range(ndim) if d not in wrapped["source"]]
    for to, start in sorted(zip(wrapped["destination"], wrapped["source"], strict=True)):
        order.insert(to, start)
    return F.permute(input, tuple(order))


@composite()
def rot90(F: Any, input: Array, k: Int = 1, dims: Ints = (0, 1)) -> Any:
    """Turned by 90 degrees ``k`` times, from the first towards the second of ``dims``."""
    ndim = len(input.shape)
    if len(dims) != 2:
        raise InvalidOperation(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise InvalidOperation(f"expected total dims >= 2, but got total dims = {ndim}")
    first, second = wrap_dim(dims[0], ndim), wrap_dim(dims[1], ndim)
    if first == second:
        raise InvalidOperation(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    if k % 4 == 0:
        return F.clone(input)
    if k % 4 == 2:
        return F.flip(input, (first, second))
    return F.transpose(F.flip(input, (second if k % 4 == 1 else first,)), first, second)


# Repeating -----------------------------------------------------------------------------------------------


@composite(
    may_alias=True,
)
def expand_as(F: Any, input: Array, other: Array) -> Any:
    """Dimensions of size 1 repeated, without copying, to the shape of ``other``."""
    return F.expand(input, tuple(other.shape))


def _repeat_rule(input: Any, repeats: Any) -> Spec:
    lead = len(repeats) - len(input.shape)
    if lead < 0:
        raise ShapeMismatch(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = tuple(n * r for n, r in zip((1,) * lead + tuple(input.shape), repeats, strict=True))
    negative = next((n for n in shape if n < 0), None)
    if negative is not None:
        raise ShapeMismatch(f"Trying to create tensor with negative dimension {negative}: {list(shape)}")
    return Spec(shape, input.dtype)


@op(_repeat_rule)
def repeat(xp: Any, input: Array, repeats: Ints) -> Any:
    """Copies of the tensor side by side: ``repeats`` along each dimension, new ones in front."""
    if 0 in input.shape:  # NumPy takes no number of copies of nothing that an array could not have
        shape = _repeat_rule(input, repeats).shape
        return xp.zeros(shape, input.dtype)
    return xp.tile(input, repeats)


def _repeat_grad(F: Any, grad: Any, input_shape: Any, repeats: Any) -> Any:
    sizes = (1,) * (len(repeats) - len(input_shape)) + input_shape
    if 0 in sizes:
        return F.new_zeros(grad, input_shape)
    blocks = F.reshape(grad, tuple(n for pair in zip(repeats, sizes, strict=True) for n in pair))
    return F.reshape(F.sum(blocks, tuple(range(0, 2 * len(sizes), 2))), input_shape)


repeat.derivative(input=_repeat_grad)


@composite()
def tile(F: Any, input: Array, dims: Ints) -> Any:
    """Copies side by side: ``dims`` along the last dimensions."""
    return F.repeat(input, (1,) * (len(input.shape) - len(dims)) + dims)


# Rolling -------------------------------------------------------------------------------------------------


def _roll_rule(input: Any, shifts: Any, dims: Any = ()) -> Spec:
    by, axes = _several(shifts), _several(dims)
    if not by:
        raise InvalidOperation("`shifts` required")
    if len(by) != len(axes) and (axes or len(by) > 1):
        raise InvalidOperation(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(axes)}")
    for d in axes:
        if not input.shape:
            raise IndexOutOfRange(f"Dimension specified as {d} but tensor has no dimensions")
        wrap_dim(d, len(input.shape))
    return Spec(input.shape, input.dtype)


@op(_roll_rule, scratch=0.0)
def roll(xp: Any, input: Array, shifts: Shifts, dims: IntOrInts = ()) -> Any:
    """Moved by ``shifts`` along ``dims``, what leaves coming in at the other end; flattened if without ``dims``."""
    axes = _several(dims)
    return xp.roll(input, _several(shifts), axes) if axes else xp.roll(input, _several(shifts)[0])


roll.derivative(input=lambda F, grad, shifts, dims: F.roll(grad, tuple(-n for n in _several(shifts)), dims))


# Stacking ------------------------------------------------------------------------------------------------


def _check_stack(name: str, tensors: Any) -> None:
    if not tensors:
        raise InvalidOperation(f"{name} expects a non-empty TensorList")


@composite(method=False)
def hstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined column after column: along dimension 1, or 0 where they have one dimension."""
    _check_stack("hstack", tensors)
    rows = [x if x.shape else F.reshape(x, (1,)) for x in tensors]
    return F.cat(rows, 0 if len(rows[0].shape) == 1 else 1)


@composite(method=False, aliases=("row_stack",))
def vstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined row after row, along dimension 0; what has one dimension is a row."""
    _check_stack("vstack", tensors)
    return F.cat([x if len(x.shape) > 1 else F.reshape(x, (1, *(x.shape or (1,)))) for x in tensors])


@composite(method=False)
def dstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined along dimension 2; a matrix gets one, and a vector is a row."""
    _check_stack("dstack", tensors)
    lead = {0: (1,), 1: (1,), 2: ()}
    ends = {0: (1, 1), 1: (1,), 2: (1,)}
    deep = [
        x if len(x.shape) > 2 else F.reshape(x, (*lead[len(x.shape)], *x.shape, *ends[len(x.shape)])) for x in tensors
    ]
    return F.cat(deep, 2)


@composite(method=False)
def column_stack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined along dimension 1; what has at most one dimension is a column."""
    _check_stack("column_stack", tensors)
    return F.hstack([x if len(x.shape) > 1 else F.reshape(x, (*x.shape, *(1,) * (2 - len(x.shape)))) for x in tensors])


# Together ------------------------------------------------------------------------------------------------


@composite(
    may_alias=True,
    method=False,
    lists_outputs=True,
)
def broadcast_tensors(F: Any, tensors: ManyArrays) -> Any:
    """Each of the tensors in the shape that all of them broadcast to, without copying."""
    shape = broadcast_shapes(*[tuple(x.shape) for x in tensors])
    return tuple(x if tuple(x.shape) == shape else F.expand(x, shape) for x in tensors)


@composite(
    may_alias=True,
    method=False,
    lists_outputs=True,
)
def meshgrid(F: Any, tensors: ManyArrays = (), *, indexing: OptionalStr = None) -> Any:
    """Grids of coordinates from vectors; with ``indexing="xy"`` the first two dimensions are swapped."""
    _check_stack("meshgrid", tensors)
    wrong = next((x for x in tensors if len(x.shape) > 1), None)
    if wrong is not None:
        raise ShapeMismatch(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(wrong.shape)}")
    if any(x.dtype != tensors[0].dtype for x in tensors):
        raise InvalidOperation("meshgrid expects all tensors to have the same dtype")
    if indexing not in (None, "ij", "xy"):
        raise InvalidOperation(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    shape = tuple(x.shape[0] if x.shape else 1 for x in tensors)
    grids = []
    for i, x in enumerate(tensors):
        grid = F.expand(F.reshape(x, (1,) * i + (shape[i],) + (1,) * (len(shape) - i - 1)), shape)
        grids.append(F.transpose(grid, 0, 1) if indexing == "xy" and len(shape) > 1 else grid)
    return tuple(grids)
