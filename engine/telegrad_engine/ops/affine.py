"""The places that affine maps send a grid to: what ``grid_sample`` takes."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, is_floating
from ..errors import InvalidValue, NotImplementedForDType, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Ints, OptionalBool
from ..shapes import Spec, torch_size


def _grid_rule(theta: Any, size: Any, align_corners: bool | None = None) -> Spec:
    if not is_floating(theta.dtype):
        raise InvalidValue(f"Expected theta to have floating point type, but got {from_numpy(theta.dtype)!r}")
    ndim, shape = len(size) - 2, list(theta.shape)
    if ndim not in (2, 3):
        raise NotImplementedForDType(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{tuple(size)}."
        )
    if len(shape) != 3 or shape[1:] != [ndim, ndim + 1]:
        raise InvalidValue(
            f"Expected a batch of {ndim}D affine matrices of shape Nx{ndim}x{ndim + 1} for size {tuple(size)}. Got "
            f"{torch_size(shape)}."
        )
    if min(size) <= 0:
        raise InvalidValue(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if size[0] != shape[0]:
        raise ShapeMismatch(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {ndim + 1}] but got: "
            f"[{shape[0]}, {ndim + 1}]."
        )
    return Spec((size[0], *size[2:], ndim), theta.dtype)


def _corners(xp: Any, n: int, aligned: bool, dtype: Any) -> Any:
    """``n`` places from -1 to 1: the centres of elements of which the centres, or the edges, are the extremes."""
    if n == 1:
        return xp.zeros((1,), dtype)
    places = xp.linspace(-1, 1, n)
    return (places if aligned else places * ((n - 1) / n)).astype(dtype)


def _base(xp: Any, sizes: Any, aligned: bool, dtype: Any) -> Any:
    """The grid before it is mapped, as rows (x, y, …, 1)."""
    ndim = len(sizes)
    axes = [
        xp.reshape(_corners(xp, n, aligned, dtype), [-1 if d == axis else 1 for d in range(ndim)])
        for axis, n in enumerate(sizes)
    ]
    columns = [xp.broadcast_to(places, sizes) for places in (*axes[::-1], xp.ones((1,) * ndim, dtype))]
    return xp.reshape(xp.stack(columns, axis=-1), (math.prod(sizes), ndim + 1))


@op(
    _grid_rule,
    namespace="torch.nn.functional",
    node="AffineGridGeneratorBackward0",
    hidden=("base",),
    hidden_rule=lambda theta, size, align_corners=None: (Spec((math.prod(size[2:]), len(size) - 1), theta.dtype),),
    scratch=2.0,
)
def affine_grid(xp: Any, theta: Array, size: Ints, align_corners: OptionalBool = None) -> Any:
    """Where affine maps ``theta`` (N, 2, 3) send each element of images of ``size`` (N, C, H, W): (N, H, W, 2).

    Places are (x, y) from -1 to 1; volumes and (N, 3, 4) likewise.
    """
    base = _base(xp, tuple(size[2:]), bool(align_corners), theta.dtype)
    grid = xp.matmul(base, xp.swapaxes(theta, -1, -2))
    return xp.reshape(grid, (size[0], *size[2:], len(size) - 2)), base


def _grid_grad(F: Any, grad: Any, theta_shape: Any, base: Any) -> Any:
    n, ndim, _ = theta_shape
    return F.matmul(F.transpose(F.reshape(grad, (n, -1, ndim)), -1, -2), base)


affine_grid.derivative(theta=_grid_grad)
