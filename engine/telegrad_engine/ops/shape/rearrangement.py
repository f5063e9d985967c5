"""Moving, repeating, rolling and stacking, ``_copy`` forms of views, and channel and pixel shuffles."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import IndexOutOfRange, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import FUNCTION, LIST, MAY_ALIAS, METHOD_OF_TORCH, NN_FUNCTION, NO_SCRATCH, RESULT
from ...schema.op import Op, composite, op
from ...schema.parameters import Array, Arrays, Bool, Int, IntOrInts, Ints, ManyArrays, OptionalInt, OptionalStr, Shifts
from ...shapes import Spec, broadcast_shapes, check_nonnegative, infer_reshape, size_at, wrap_dim
from ..batching import shape_rules
from .joining import atleast_1d, atleast_2d, atleast_3d, select, unbind
from .scatter import sliced
from .views import as_strided, diagonal, permute, t, transpose, unsqueeze


@composite(memory=MAY_ALIAS)
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


@composite(aliases=("moveaxis",), memory=MAY_ALIAS)
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


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def expand_as(F: Any, input: Array, other: Array) -> Any:
    """Dimensions of size 1 repeated, without copying, to the shape of ``other``."""
    return F.expand(input, tuple(other.shape))


def _repeat_rule(input: Any, repeats: Any) -> Spec:
    lead = len(repeats) - len(input.shape)
    if lead < 0:
        raise ShapeMismatch(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    shape = [n * r for n, r in zip((1,) * lead + tuple(input.shape), repeats, strict=True)]
    return Spec(check_nonnegative(shape, "repeat"), input.dtype)


@op(_repeat_rule, variants=METHOD_OF_TORCH, batching=shape_rules.repeat)
def repeat(xp: Any, input: Array, repeats: Ints) -> Any:
    """Copies of the tensor side by side: ``repeats`` along each dimension, new ones in front."""
    if 0 in input.shape:  # for an empty array NumPy refuses numbers of copies that no array could have
        return xp.zeros(_repeat_rule(input, repeats).shape, input.dtype)
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


def _roll_rule(input: Any, shifts: Any, dims: Any) -> Spec:
    by, axes = _several(shifts), _several(dims)
    if not by:
        raise InvalidOperation("`shifts` required")
    if len(by) != len(axes) and (axes or len(by) > 1):
        raise InvalidOperation(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(axes)}")
    for d in axes:
        size_at(input.shape, d)
    return Spec(input.shape, input.dtype)


@op(_roll_rule, memory=NO_SCRATCH, batching=shape_rules.roll)
def roll(xp: Any, input: Array, shifts: Shifts, dims: IntOrInts = ()) -> Any:
    """Moved by ``shifts`` along ``dims``, what leaves coming in at the other end; flattened if without ``dims``."""
    axes = _several(dims)
    return xp.roll(input, _several(shifts), axes) if axes else xp.roll(input, _several(shifts)[0])


roll.derivative(input=lambda F, grad, shifts, dims: F.roll(grad, tuple(-n for n in _several(shifts)), dims))


# Stacking ------------------------------------------------------------------------------------------------


def _check_stack(name: str, tensors: Any) -> None:
    if not tensors:
        raise InvalidOperation(f"{name} expects a non-empty TensorList")


@composite(variants=FUNCTION)
def hstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined column after column: along dimension 1, or 0 where they have one dimension."""
    _check_stack("hstack", tensors)
    rows = [atleast_1d.raw(F, x) for x in tensors]
    return F.cat(rows, 0 if len(rows[0].shape) == 1 else 1)


@composite(aliases=("row_stack",), variants=FUNCTION)
def vstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined row after row, along dimension 0; what has one dimension is a row."""
    _check_stack("vstack", tensors)
    return F.cat([atleast_2d.raw(F, x) for x in tensors])


@composite(variants=FUNCTION)
def dstack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined along dimension 2; a matrix gets one, and a vector is a row."""
    _check_stack("dstack", tensors)
    return F.cat([atleast_3d.raw(F, x) for x in tensors], 2)


@composite(variants=FUNCTION)
def column_stack(F: Any, tensors: Arrays) -> Any:
    """The tensors joined along dimension 1; what has at most one dimension is a column."""
    _check_stack("column_stack", tensors)
    return F.hstack([x if len(x.shape) > 1 else F.reshape(x, (-1, 1)) for x in tensors])


# Broadcasting several tensors ----------------------------------------------------------------------------


@composite(variants=FUNCTION, results=LIST, memory=MAY_ALIAS)
def broadcast_tensors(F: Any, tensors: ManyArrays) -> Any:
    """Each of the tensors in the shape that all of them broadcast to, without copying."""
    shape = broadcast_shapes(*[tuple(x.shape) for x in tensors])
    return tuple(x if tuple(x.shape) == shape else F.expand(x, shape) for x in tensors)


@composite(variants=FUNCTION, results=LIST, memory=MAY_ALIAS)
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


# Copies instead of views: the ``_copy`` and ``unsafe`` forms ---------------------------------------------


def _copies(F: Any, parts: Any) -> tuple[Any, ...]:
    return tuple([F.clone(part) for part in parts])


def _copy_of(view: Op, doc: str) -> Op:
    """Declare the ``_copy`` form of a view op, with the same parameters."""

    @functools.wraps(view.raw)
    def copy(F: Any, *args: Any, **attrs: Any) -> Any:
        shown = getattr(F, view.name)(*args, **attrs)
        return _copies(F, shown) if view.lists_outputs else F.clone(shown)

    copy.__doc__ = doc
    return composite(key=f"{view.name}_copy", variants=FUNCTION, results=LIST if view.lists_outputs else RESULT)(copy)


@composite(variants=FUNCTION)
def alias_copy(F: Any, input: Array) -> Any:
    """A copy."""
    return F.clone(input)


as_strided_copy = _copy_of(as_strided, "A copy of what ``as_strided`` shows.")
diagonal_copy = _copy_of(diagonal, "A copy of a diagonal.")


@composite(variants=FUNCTION)
def expand_copy(F: Any, input: Array, size: Ints, *, implicit: Bool = False) -> Any:
    """A copy in which dimensions of size 1 are repeated."""
    return F.clone(F.expand(input, size))


permute_copy = _copy_of(permute, "A copy with its dimensions in another order.")
select_copy = _copy_of(select, "A copy of the slice at ``index``.")


@composite(variants=FUNCTION)
def slice_copy(
    F: Any, input: Array, dim: Int = 0, start: OptionalInt = None, end: OptionalInt = None, step: Int = 1
) -> Any:
    """A copy of the slice ``start:end:step`` of dimension ``dim``."""
    if not input.shape:
        raise IndexOutOfRange("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise InvalidOperation("slice step must be positive")
    return F.clone(sliced(F, input, dim, start, end, step))


@composite(variants=FUNCTION, results=LIST)
def split_copy(F: Any, input: Array, split_size: Int, dim: Int = 0) -> Any:
    """Copies of parts of one size."""
    return _copies(F, F.split(input, split_size, dim))


@composite(results=LIST, memory=MAY_ALIAS)
def split_with_sizes(F: Any, input: Array, split_sizes: Ints, dim: Int = 0) -> Any:
    """Views of parts of these sizes."""
    return F.split(input, split_sizes, dim)


split_with_sizes_copy = _copy_of(split_with_sizes, "Copies of parts of these sizes.")


@composite(variants=FUNCTION)
def squeeze_copy(F: Any, input: Array, dim: IntOrInts = None) -> Any:
    """A copy without dimensions of size 1."""
    return F.clone(F.squeeze(input) if dim is None else F.squeeze(input, dim))


t_copy = _copy_of(t, "A copy of the transpose.")
transpose_copy = _copy_of(transpose, "A copy with two dimensions swapped.")
unbind_copy = _copy_of(unbind, "Copies of the slices along ``dim``.")


@composite(variants=FUNCTION)
def unfold_copy(F: Any, input: Array, dimension: Int, size: Int, step: Int) -> Any:
    """A copy of the windows along a dimension."""
    return F.clone(F.unfold(input, dimension, size, step))


unsqueeze_copy = _copy_of(unsqueeze, "A copy with one more dimension, of size 1.")


@composite(variants=FUNCTION)
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


@composite(results=LIST, memory=MAY_ALIAS)
def unsafe_split(F: Any, input: Array, split_size: Int, dim: Int = 0) -> Any:
    """Parts of one size that may be changed in place, since autograd takes them for copies."""
    return _copies(F, F.split(input, split_size, dim))


@composite(results=LIST, memory=MAY_ALIAS)
def unsafe_split_with_sizes(F: Any, input: Array, split_sizes: Ints, dim: Int = 0) -> Any:
    """Parts of these sizes that may be changed in place, since autograd takes them for copies."""
    return _copies(F, F.split(input, split_sizes, dim))


@composite(results=LIST, memory=MAY_ALIAS)
def unsafe_chunk(F: Any, input: Array, chunks: Int, dim: Int = 0) -> Any:
    """At most ``chunks`` parts that may be changed in place, since autograd takes them for copies."""
    return _copies(F, F.chunk(input, chunks, dim))


# The shape of another tensor -----------------------------------------------------------------------------


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def view_as(F: Any, input: Array, other: Array) -> Any:
    """The tensor as a view in the shape of ``other``."""
    return F.view(input, tuple(other.shape))


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def reshape_as(F: Any, input: Array, other: Array) -> Any:
    """The tensor in the shape of ``other``."""
    return F.reshape(input, tuple(other.shape))


# Channel and pixel shuffles ------------------------------------------------------------------------------


def _check_image(name: str, input: Any, what: str, factor: int) -> None:
    if len(input.shape) < 3:
        raise ShapeMismatch(
            f"{name} expects input to have at least 3 dimensions, but got input with {len(input.shape)} dimension(s)"
        )
    if factor <= 0:
        raise InvalidOperation(f"{name} expects a positive {what}, but got {factor}")


@composite(variants=FUNCTION | NN_FUNCTION)
def pixel_shuffle(F: Any, input: Array, upscale_factor: Int) -> Any:
    """Channels (…, C r², H, W) laid out as pixels (…, C, H r, W r) (Shi et al. 2016)."""
    r = upscale_factor
    _check_image("pixel_shuffle", input, "upscale_factor", r)
    *lead, channels, height, width = input.shape
    if r * r >= 2**63:
        raise InvalidValue(f"upscale factor is too large, (upscale_factor)^2 overflowed: upscale_factor={r}")
    if channels % (r * r):
        raise ShapeMismatch(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    split = F.reshape(input, (*lead, channels // (r * r), r, r, height, width))
    mixed = F.permute(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return F.reshape(mixed, (*lead, channels // (r * r), height * r, width * r))


@composite(variants=FUNCTION | NN_FUNCTION)
def pixel_unshuffle(F: Any, input: Array, downscale_factor: Int) -> Any:
    """Pixels (…, C, H r, W r) laid out as channels (…, C r², H, W): ``pixel_shuffle`` undone."""
    r = downscale_factor
    _check_image("pixel_unshuffle", input, "downscale_factor", r)
    *lead, channels, height, width = input.shape
    for name, axis, size in (("height", -2, height), ("width", -1, width)):
        if size % r:
            raise ShapeMismatch(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({axis})={size} "
                f"is not divisible by {r}"
            )
    n = len(lead)
    split = F.reshape(input, (*lead, channels, height // r, r, width // r, r))
    mixed = F.permute(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return F.reshape(mixed, (*lead, channels * r * r, height // r, width // r))


@composite(variants=FUNCTION | NN_FUNCTION)
def channel_shuffle(F: Any, input: Array, groups: Int) -> Any:
    """Channels (N, C, …) with those of all groups taken in turn (Zhang et al. 2017)."""
    shape = tuple(input.shape)
    if len(shape) <= 2:
        raise ShapeMismatch(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0:
        raise InvalidOperation(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise ShapeMismatch(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups."
        )
    split = F.reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return F.reshape(F.transpose(split, 1, 2), shape)


@composite(variants=FUNCTION | NN_FUNCTION)
def native_channel_shuffle(F: Any, input: Array, groups: Int) -> Any:
    """``channel_shuffle``."""
    return F.channel_shuffle(input, groups)
