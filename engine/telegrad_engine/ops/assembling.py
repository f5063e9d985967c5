"""Tensors brought to as many dimensions as are wanted, laid out in blocks, and places found in a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes import from_numpy, int64
from ..errors import InvalidArgument, InvalidOperation, InvalidValue
from ..schema.op import Op, common_dtype, composite
from ..schema.parameters import Array, Ints, ManyArrays

# Dimensions ----------------------------------------------------------------------------------------------


def _one(F: Any, x: Any) -> Any:
    return x if x.dim() else F.reshape(x, (1,))


def _two(F: Any, x: Any) -> Any:
    return x if x.dim() > 1 else F.unsqueeze(_one(F, x), 0)


def _three(F: Any, x: Any) -> Any:
    return x if x.dim() > 2 else F.unsqueeze(_two(F, x), -1)


def _at_least(least: int, widen: Callable[[Any, Any], Any], doc: str) -> tuple[Op, Op]:
    """Both forms of one function: of a tensor, and of several, which gives a tuple."""

    def single(F: Any, input: Array) -> Any:
        return widen(F, input)

    def each(F: Any, tensors: ManyArrays) -> Any:
        return tuple(widen(F, x) for x in tensors)

    single.__name__ = each.__name__ = f"atleast_{least}d"
    single.__doc__, each.__doc__ = doc, f"Each of the tensors as ``atleast_{least}d`` gives it."
    alone = composite(method=False, may_alias=True)(single)
    key = f"{each.__name__}.tensors"
    return alone, composite(method=False, may_alias=True, key=key, lists_outputs=True)(each)


atleast_1d = _at_least(1, _one, "The tensor; a 0-dim one as (1,).")
atleast_2d = _at_least(2, _two, "The tensor with at least two dimensions: (n) becomes (1, n).")
atleast_3d = _at_least(3, _three, "The tensor with at least three dimensions: (n) becomes (1, n, 1), (m, n) (m, n, 1).")

# Blocks --------------------------------------------------------------------------------------------------


@composite(
    method=False,
)
def block_diag(F: Any, tensors: ManyArrays = ()) -> Any:
    """A matrix with the tensors, as matrices, one after the other down its diagonal and zeros beside them."""
    for i, x in enumerate(tensors):
        if x.dim() > 2:
            raise InvalidOperation(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.dim()} dimensions"
            )
    if not tensors:
        return F.zeros((1, 0))
    dtype = from_numpy(common_dtype(tuple([x._data for x in tensors])))  # before all are matrices
    blocks = [F.to(_two(F, x), dtype=dtype) for x in tensors]
    width = sum(x.shape[1] for x in blocks)
    rows, before = [], 0
    for x in blocks:
        rows.append(F.constant_pad_nd(x, (before, width - before - x.shape[1])))
        before += x.shape[1]
    return F.cat(rows, 0)


# Places --------------------------------------------------------------------------------------------------


@composite(
    method=False,
    lists_outputs=True,
)
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
