"""Products beyond matmul: over chosen dimensions, Kronecker's, the cross product; and the trace."""

from __future__ import annotations

import math
from typing import Any

from ..cases import T, case
from ..dtypes import FLOATING, bool_, int64, parse
from ..errors import DTypeMismatch, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..params import Array, Int, Items, OptionalInt
from ..registry import composite, op
from ..specs import Spec, broadcast_shapes, wrap_dim, wrap_dims
from .addmm import kind_names

# Over chosen dimensions -------------------------------------------------------------------------------


@composite(method=False, cases=[case(T(2, 3, 4), T(3, 4, 5)), case(T(2, 3), T(3, 4), 1), case(T(2), T(3), dims=0)])
def tensordot(F: Any, a: Array, b: Array, dims: Int = 2) -> Any:
    """The sum of products over the last ``dims`` dimensions of ``a`` and the first of ``b``."""
    if dims < 0:
        raise InvalidOperation(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.ndim, b.ndim):
        raise InvalidOperation(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return _contract(F, a, b, tuple(range(-dims, 0)), tuple(range(dims)))


@composite(
    key="tensordot.dims",
    method=False,
    cases=[
        case(T(2, 3, 4), T(4, 5, 2), dims=([0, -1], [2, 0])),
        case(T(2, 3), T(1, 3), dims=([0, 1], [0, 1])),
        case(T(2, 3), T(4, 3), dims=([1], [0])),
        case(T(2, 3), T(4, 3), dims=([1], [0, 1])),
        case(T(2, 3), T(4, 3), dims=([1], [2])),
        case(T(3, 3), T(3, 3), dims=([0, 0], [0, 1])),
        case(T(2, 0), T(0, 3), dims=([1], [0])),
    ],
)
def tensordot_dims(F: Any, a: Array, b: Array, dims: Items) -> Any:
    """The sum of products over pairs of dimensions: those of ``a``, then those of ``b``."""
    return _contract(F, a, b, *dims)


def _contract(F: Any, a: Any, b: Any, dims_a: tuple[int, ...], dims_b: tuple[int, ...]) -> Any:
    if len(dims_a) != len(dims_b):
        raise InvalidOperation("both dimension lists should have same length")
    if a.dtype != b.dtype:
        raise DTypeMismatch("both inputs should have same dtype")
    for i, j in zip(dims_a, dims_b, strict=True):
        n, m = a.shape[wrap_dim(i, a.ndim)], b.shape[wrap_dim(j, b.ndim)]
        if m == 1:
            a = F.sum(a, (i,), True)
        elif n == 1:
            b = F.sum(b, (j,), True)
        elif n != m:
            raise ShapeMismatch(
                f"contracted dimensions need to match, but first has size {n} in dim {i} "
                f"and second has size {m} in dim {j}"
            )
    axes_a, axes_b = (wrap_dims(d, x.ndim) if d else () for d, x in ((dims_a, a), (dims_b, b)))
    left = tuple(i for i in range(a.ndim) if i not in axes_a)
    right = tuple(i for i in range(b.ndim) if i not in axes_b)
    rows, columns = tuple(a.shape[i] for i in left), tuple(b.shape[i] for i in right)
    summed = math.prod(a.shape[i] for i in axes_a)
    first = F.reshape(F.permute(a, left + axes_a), (math.prod(rows), summed))
    second = F.reshape(F.permute(b, axes_b + right), (summed, math.prod(columns)))
    return F.reshape(F.mm(first, second), rows + columns)


@composite(cases=[case(T(2, 3), T(4, 3)), case(T(2, 3), T(3)), case(T(), T(2, 3)), case(T(2, 3), T(4, 2))])
def inner(F: Any, input: Array, other: Array) -> Any:
    """The sums of products over the last dimensions of both; a 0-dim tensor only scales."""
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise ShapeMismatch(
            f"inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return _contract(F, input, other, (-1,), (-1,))


@composite(cases=[case(T(3), T(3)), case(T(0), T(0)), case(T(3), T(4)), case(T(3), T(2, 3))])
def vdot(F: Any, input: Array, other: Array) -> Any:
    """The inner product of two vectors; for real ones it is ``dot``."""
    if input.ndim == other.ndim == 1 and input.dtype != other.dtype:
        names = "{} and {}".format(*kind_names(input._data, other._data))
        raise DTypeMismatch(f"dot : expected both vectors to have same dtype, but found {names}")
    return F.dot(input, other)


# Other products ---------------------------------------------------------------------------------------


@composite(
    cases=[
        case(T(2, 3), T(4, 2)),
        case(T(2, 3), T(4)),
        case(T(), T(2, 3)),
        case(T(2, 1, 3), T(2, 2)),
        case(T(0, 3), T(2, 2)),
        case(T(2), T(3, dtype="int64")),
    ]
)
def kron(F: Any, input: Array, other: Array) -> Any:
    """The Kronecker product: each element of ``input`` times all of ``other``, in blocks."""
    ndim = max(input.ndim, other.ndim)
    a, b = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (input, other))
    spread = F.reshape(input, tuple(n for size in a for n in (size, 1)))
    blocks = F.reshape(other, tuple(n for size in b for n in (1, size)))
    return F.reshape(spread * blocks, tuple(n * m for n, m in zip(a, b, strict=True)))


def _cross_dim(shape: tuple[int, ...], dim: int | None) -> int:
    """The dimension of the vectors: by default the first of size 3."""
    if dim is not None:
        return wrap_dim(dim, len(shape))
    if 3 not in shape:
        raise ShapeMismatch("no dimension of size 3 in input")
    return shape.index(3)


def _cross_rule(input: Any, other: Any, dim: int | None = None) -> Spec:
    axis = _cross_dim(input.shape, dim)
    if len(input.shape) != len(other.shape):
        raise ShapeMismatch("linalg.cross: inputs must have the same number of dimensions.")
    n, m = input.shape[axis] if input.shape else 1, other.shape[axis] if other.shape else 1
    if n != 3 or m != 3:
        shown = axis if dim is None else dim
        raise ShapeMismatch(f"linalg.cross: inputs dimension {shown} must have length 3. Got {n} and {m}")
    shape = broadcast_shapes(input.shape, other.shape)
    if input.dtype != other.dtype:
        raise DTypeMismatch("expected scalar type {} but found {}".format(*kind_names(input, other)))
    if input.dtype == bool_.numpy:
        raise NotImplementedForDType("\"cross\" not implemented for 'Bool'")
    return Spec(shape, input.dtype)


@op(
    _cross_rule,
    node="LinalgCrossBackward0",
    cases=[
        case(T(2, 3), T(2, 3)),
        case(T(3, 3), T(3, 3)),
        case(T(3, 2), T(3, 1), dim=0),
        case(T(1, 3), T(4, 3), dim=-1),
        case(T(0, 3), T(0, 3)),
        case(T(2, 2), T(2, 2)),
        case(T(2, 3), T(3)),
        case(T(2, 3), T(2, 3), 0),
    ],
)
def cross(xp: Any, input: Array, other: Array, dim: OptionalInt = None) -> Any:
    """The cross product of vectors of three along ``dim``, by default the first of size 3."""
    return xp.cross(input, other, axis=_cross_dim(input.shape, dim))


cross.derivative(
    input=lambda F, grad, other, input_shape, dim: F.cross(other, grad, _cross_dim(input_shape, dim)),
    other=lambda F, grad, input, dim: F.cross(grad, input, _cross_dim(input.shape, dim)),
)


def _trace_rule(input: Any) -> Spec:
    if len(input.shape) != 2:
        raise ShapeMismatch(f"trace: expected a matrix, but got tensor with dim {len(input.shape)}")
    if input.dtype == bool_.numpy:
        raise NotImplementedForDType("\"trace\" not implemented for 'Bool'")
    return Spec((), input.dtype if input.dtype in FLOATING else int64.numpy)


@op(_trace_rule, cases=[case(T(3, 3)), case(T(2, 3)), case(T(0, 3)), case(T(2, 2, dtype="int32")), case(T(3))])
def trace(xp: Any, input: Array) -> Any:
    """The sum of the diagonal of a matrix."""
    return xp.asarray(xp.trace(input, dtype=_trace_rule(input).dtype))


trace.derivative(input=lambda F, grad, input_shape: grad * F.eye(*input_shape, dtype=parse(grad.dtype)))
