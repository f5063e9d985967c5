"""Compares Jacobians with finite differences: all elements, or one combination of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import GradcheckError
from ...tensor.namespace import Functions

Tensors = tuple[Any, ...]
Jacobians = Callable[..., list[Any]]
"""Maps an output's index to its analytical Jacobians (inputs, outputs), one for each input that requires grad; with
vectors for the inputs and the output, to their products with the vectors on one side, which take a pass each."""


class Tolerance(NamedTuple):
    """The step of the finite differences, and the tolerances of the comparison."""

    eps: float
    atol: float
    rtol: float
    nondet: float


def outputs_of(func: Callable[..., Any], inputs: Sequence[Any], every: bool = False) -> Tensors:
    """Return the outputs that require grad, or all of them with ``every``."""
    result = func(*inputs)
    outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    return tuple([out for out in outputs if every or out.requires_grad])


def numerical_jacobian(
    func: Callable[..., Any], inputs: Tensors, position: int, eps: float, every: bool = False
) -> list[Any]:
    """Return, for each output, the central differences (inputs, outputs) for steps ``eps`` of one input's elements."""
    tensor = inputs[position]
    slopes = []
    for index in np.ndindex(*tensor.shape):
        step = tensor.detach().new_zeros(tuple(tensor.shape))
        step[index] = eps
        slopes.append(_slopes(func, inputs, position, step, eps, every))
    if not slopes:
        return [tensor.detach().new_zeros((0, out.numel())) for out in outputs_of(func, inputs, every)]
    stack = Functions(type(tensor)._apply).stack
    return [stack(list(column)) for column in zip(*slopes, strict=True)]


def _slopes(
    func: Callable[..., Any], inputs: Tensors, position: int, step: Any, eps: float, every: bool = False
) -> list[Any]:
    """Return the outputs' central differences, flattened, for a step of length ``eps`` in one input."""
    below, above = [_moved(func, inputs, position, step * sign, every) for sign in (-1.0, 1.0)]
    return [(b - a).reshape(-1) / (2 * eps) for a, b in zip(below, above, strict=True)]


def _moved(func: Callable[..., Any], inputs: Tensors, position: int, step: Any, every: bool) -> list[Any]:
    """Return the outputs with one input moved in place, as torch does: ``func`` may hold that tensor itself."""
    data = inputs[position]._data_alone()
    before = data.clone()
    data.add_(step)
    try:
        return [out.detach().clone() for out in outputs_of(func, inputs, every)]
    finally:
        data.copy_(before)


def check_whole(
    func: Callable[..., Any],
    inputs: Tensors,
    outputs: Tensors,
    jacobians: Jacobians,
    tolerance: Tolerance,
    forward: bool,
) -> None:
    """Compare every derivative with a finite difference. Raises GradcheckError on a mismatch."""
    tracked = _positions(inputs)
    numerical = [numerical_jacobian(func, inputs, i, tolerance.eps) for i in tracked]
    for index in range(len(outputs)):
        analytical = jacobians(index)
        for which in range(len(tracked)):
            a, n = analytical[which], numerical[which][index]
            if not _close(a, n, tolerance.rtol, tolerance.atol):
                raise GradcheckError(_mismatch(index, which, n, a, forward))


def check_projected(
    func: Callable[..., Any],
    inputs: Tensors,
    outputs: Tensors,
    jacobians: Jacobians,
    tolerance: Tolerance,
    forward: bool,
) -> None:
    """Compare the combination ``u J v`` of all derivatives, for random ``u`` and ``v``, with a difference along ``u``.

    The tolerance is the elements' tolerance combined in the same way. Raises GradcheckError on a mismatch.
    """
    rng = np.random.default_rng(0)
    left = [_direction(rng, inputs[i].numel()) for i in _positions(inputs)]
    right = [_direction(rng, out.numel()) for out in outputs]
    slopes = [
        _slopes(func, inputs, i, shaped_like(inputs[i], u * tolerance.eps), tolerance.eps)
        for i, u in zip(_positions(inputs), left, strict=True)
    ]
    for index, v in enumerate(right):
        for which, (product, u) in enumerate(zip(jacobians(index, left, v), left, strict=True)):
            n = float(np.dot(np.asarray(slopes[which][index].tolist()), v))
            a = float(np.dot(np.asarray(product.tolist()).reshape(-1), v if forward else u))
            if not np.isclose(a, n, tolerance.rtol, tolerance.atol * u.sum() * v.sum()):
                whole = numerical_jacobian(func, inputs, _positions(inputs)[which], tolerance.eps)[index]
                text = _explained(whole, jacobians(index)[which], tolerance)
                raise GradcheckError(_mismatch(index, which, n, a, forward) + text)


def shaped_like(tensor: Any, numbers: Any) -> Any:
    """Return a tensor of these numbers with the shape and dtype of another one."""
    return tensor.detach().new_tensor(numbers.tolist(), dtype=tensor.dtype).reshape(tuple(tensor.shape))


def _direction(rng: np.random.Generator, size: int) -> Any:
    vector = rng.random(size)
    return vector / max(float(np.linalg.norm(vector)), 1e-300)


def _positions(inputs: Tensors) -> list[int]:
    return [i for i, x in enumerate(inputs) if hasattr(x, "_data") and x.requires_grad]


def _close(a: Any, n: Any, rtol: float, atol: float) -> bool:
    found, expected = np.asarray(a.tolist(), np.float64), np.asarray(n.tolist(), np.float64)
    if found.shape != expected.shape:
        return False
    return np.allclose(found, expected, rtol, atol)


def _mismatch(output: int, which: int, numerical: Any, analytical: Any, forward: bool) -> str:
    what = "Jacobian computed with forward mode mismatch" if forward else "Jacobian mismatch"
    return (
        f"{what} for output {output} with respect to input {which},\nnumerical:{numerical}\nanalytical:{analytical}\n"
    )


def _explained(numerical: Any, analytical: Any, tolerance: Tolerance) -> str:
    """Return the part of the error text with the whole matrices, for combinations that do not match."""
    text = (
        "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
        "in fast mode. See: https://github.com/pytorch/pytorch/issues/53876 for more background \n"
        "about fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
        f"Numerical:\n {numerical}\nAnalytical:\n{analytical}\n\n"
        f"The max per-element difference (slow mode) is: {(numerical - analytical).abs().max().item()}.\n"
    )
    if _close(analytical, numerical, tolerance.rtol, tolerance.atol):
        text += (
            "\nFast gradcheck failed but element-wise differences are small. This means that the\n"
            "test might've passed in slow_mode!"
        )
    return text
