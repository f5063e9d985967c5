"""``gradcheck`` and ``gradgradcheck``: comparison of derivatives with finite differences of the function.

They behave as in ``torch.autograd``, including the error texts. They use only the tensors' ``autograd`` and methods, so
the engine's and the SDK's tensors share them; only the comparison uses plain numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import GradcheckError, InvalidChoice, InvalidOperation, InvalidValue
from ..tensor.namespace import Functions

Tensors = tuple[Any, ...]


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


def shaped_like(tensor: Any, numbers: Any) -> Any:
    """Return a tensor of these numbers with the shape and dtype of another one."""
    return tensor.detach().new_tensor(numbers.tolist(), dtype=tensor.dtype).reshape(tuple(tensor.shape))


def zeros_like(tensor: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return zeros with the dtype of another tensor, and its shape unless another is given."""
    return tensor.detach().new_zeros(tuple(tensor.shape) if shape is None else shape)


def _direction(rng: np.random.Generator, size: int) -> Any:
    vector = rng.random(size)
    return vector / max(float(np.linalg.norm(vector)), 1e-300)


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


# The checks of one function ------------------------------------------------------------------------------


class Check:
    """A function at one point, and the checks of its gradients."""

    def __init__(self, func: Any, inputs: Tensors, tolerance: Tolerance) -> None:
        _check_inputs(inputs)
        self.func = func
        self.inputs = inputs
        self.tolerance = tolerance
        self.outputs = outputs_of(func, inputs)
        self.tracked = tracked(inputs)
        self.autograd = type(self.tracked[0])._autograd()
        self.places = [position for position, x in enumerate(inputs) if _is_tracked(x)]

    def run(self, backward: bool, forward: bool, fast: bool) -> None:
        """Compare every derivative, or with ``fast`` one combination of them, with finite differences."""
        if not self.outputs:
            for position in self.places:
                for jacobian in self._numerical(position, every=True):
                    if np.any(np.abs(_numbers(jacobian)) > self.tolerance.atol):
                        raise GradcheckError("Numerical gradient for function expected to be zero")
            return
        compare = self._compare_projected if fast else self._compare_whole
        if backward:
            compare(self._rows, False)
        if forward:
            compare(self._columns, True)

    def run_further(self, batched: bool, undefined: bool) -> None:
        """Run the checks that need no finite differences."""
        if batched:
            for index in range(len(self.outputs)):
                self._check_batches(index)
        zeros = [zeros_like(out) for out in self.outputs]
        grads = self.autograd.grad(self.outputs, self.tracked, zeros, retain_graph=True, allow_unused=True)
        if any(grad is not None and _numbers(grad).any() for grad in grads):
            raise GradcheckError("backward not multiplied by grad_output")
        if undefined and len(self.outputs) > 1:
            self._check_absent()

    def _rows(self, index: int, left: Any = None, right: Any = None) -> list[Any]:
        """Return one output's Jacobian by each tracked input, computed by rows in backward mode: (inputs, outputs).

        With ``right``, its products with that vector: (inputs, 1). Raises GradcheckError if two computations differ.
        """
        output = self.outputs[index]
        elements = output.reshape(-1)
        outputs = [elements[i] for i in range(elements.numel())] if right is None else [output]
        seed = None if right is None else (shaped_like(output, right),)
        first, again = self._gradients(outputs, seed), self._gradients(outputs, seed)
        for found, other in zip(first, again, strict=True):
            spread = [np.abs(_numbers(a) - _numbers(b)).max(initial=0) for a, b in zip(found, other, strict=True)]
            if max(spread, default=0) > self.tolerance.nondet:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient.The tolerance "
                    f"for nondeterminism was {self.tolerance.nondet}."
                )
        return [_as_columns(rows, tensor) for rows, tensor in zip(first, self.tracked, strict=True)]

    def _gradients(self, outputs: list[Any], seed: Any) -> list[list[Any]]:
        """Return, for each tracked input, the gradients of every output."""
        rows: list[list[Any]] = [[] for _ in self.tracked]
        for output in outputs:
            grads = self.autograd.grad((output,), self.tracked, seed, retain_graph=True, allow_unused=True)
            for row, grad, tensor in zip(rows, grads, self.tracked, strict=True):
                row.append(zeros_like(tensor) if grad is None else grad)
        return rows

    def _columns(self, index: int, left: Any = None, right: Any = None) -> list[Any]:
        """Return the same Jacobian, computed by columns in forward mode; with ``left``, its products: (1, outputs)."""
        output = self.outputs[index]
        stack = Functions(type(output)._apply).stack
        return [
            stack([self._column(index, position, shaped_like(tensor, tangent)) for tangent in tangents])
            if len(tangents := np.eye(tensor.numel()) if left is None else [left[which]])
            else zeros_like(tensor, (0, output.numel()))
            for which, (position, tensor) in enumerate(zip(self.places, self.tracked, strict=True))
        ]

    def _column(self, index: int, position: int, tangent: Any) -> Any:
        """Return the output's tangent, flattened, for a tangent of one input."""
        with self.autograd.forward_ad.dual_level():
            dual = self.autograd.forward_ad.make_dual(self.inputs[position], tangent)
            outputs = outputs_of(self.func, [*self.inputs[:position], dual, *self.inputs[position + 1 :]])
            found = self.autograd.forward_ad.unpack_dual(outputs[index]).tangent
        output = outputs[index].detach()
        return output.new_zeros((output.numel(),)) if found is None else found.detach().reshape(-1)

    # Finite differences ------------------------------------------------------------------

    def _numerical(self, position: int, every: bool = False) -> list[Any]:
        """Return, for each output, the central differences (inputs, outputs) for steps of one input's elements."""
        tensor = self.inputs[position]
        slopes = []
        for index in np.ndindex(*tensor.shape):
            step = zeros_like(tensor)
            step[index] = self.tolerance.eps
            slopes.append(self._slopes(position, step, every))
        if not slopes:
            return [zeros_like(tensor, (0, out.numel())) for out in outputs_of(self.func, self.inputs, every)]
        stack = Functions(type(tensor)._apply).stack
        return [stack(list(column)) for column in zip(*slopes, strict=True)]

    def _slopes(self, position: int, step: Any, every: bool = False) -> list[Any]:
        """Return the outputs' central differences, flattened, for a step in one input."""
        below, above = [self._moved(position, step * sign, every) for sign in (-1.0, 1.0)]
        return [(b - a).reshape(-1) / (2 * self.tolerance.eps) for a, b in zip(below, above, strict=True)]

    def _moved(self, position: int, step: Any, every: bool) -> list[Any]:
        """Return the outputs with one input moved in place, as torch does: ``func`` may hold that tensor itself."""
        data = self.inputs[position]._data_alone()
        before = data.clone()
        data.add_(step)
        try:
            return [out.detach().clone() for out in outputs_of(self.func, self.inputs, every)]
        finally:
            data.copy_(before)

    def _compare_whole(self, jacobians: Callable[..., list[Any]], forward: bool) -> None:
        """Compare every derivative with a finite difference. Raises GradcheckError on a mismatch."""
        numerical = [self._numerical(position) for position in self.places]
        for index in range(len(self.outputs)):
            for which, (a, found) in enumerate(zip(jacobians(index), numerical, strict=True)):
                if not _close(a, found[index], self.tolerance.rtol, self.tolerance.atol):
                    raise GradcheckError(_mismatch(index, which, found[index], a, forward))

    def _compare_projected(self, jacobians: Callable[..., list[Any]], forward: bool) -> None:
        """Compare the combination ``u J v`` of all derivatives, for random ``u`` and ``v``, with a difference.

        The tolerance is the elements' tolerance combined in the same way. Raises GradcheckError on a mismatch.
        """
        rng, eps, tolerance = np.random.default_rng(0), self.tolerance.eps, self.tolerance
        left = [_direction(rng, tensor.numel()) for tensor in self.tracked]
        right = [_direction(rng, out.numel()) for out in self.outputs]
        slopes = [
            self._slopes(position, shaped_like(tensor, u * eps))
            for position, tensor, u in zip(self.places, self.tracked, left, strict=True)
        ]
        for index, v in enumerate(right):
            for which, (product, u) in enumerate(zip(jacobians(index, left, v), left, strict=True)):
                n = float(np.dot(_numbers(slopes[which][index]), v))
                a = float(np.dot(_numbers(product).reshape(-1), v if forward else u))
                if not np.isclose(a, n, tolerance.rtol, tolerance.atol * u.sum() * v.sum()):
                    whole = self._numerical(self.places[which])[index]
                    text = _explained(whole, jacobians(index)[which], tolerance)
                    raise GradcheckError(_mismatch(index, which, n, a, forward) + text)

    # Further checks ----------------------------------------------------------------------

    def _check_batches(self, index: int) -> None:
        """Raise unless batched gradients equal those of each row."""
        output = self.outputs[index]
        seeds = [random_like(output, seed) for seed in range(10)]
        options = {"retain_graph": True, "allow_unused": True}
        singly = [self.autograd.grad((output,), self.tracked, (seed,), **options) for seed in seeds]
        stack = Functions(type(output)._apply).stack
        together = self.autograd.grad((output,), self.tracked, (stack(seeds),), is_grads_batched=True, **options)
        for position, (found, *rows) in enumerate(zip(together, *singly, strict=True)):
            if found is None:
                continue
            expected = stack(rows)
            if not np.allclose(_numbers(found), _numbers(expected)):
                raise GradcheckError(
                    f"For output {index} and input {position}:\n\n"
                    "gradcheck or gradgradcheck failed while testing batched gradient computation.\n\n"
                    f"Got:\n{found}\n\nExpected:\n{expected}"
                )

    def _check_absent(self) -> None:
        """Raise unless a missing output gradient is treated as zeros."""
        advice = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
        for absent in range(len(self.outputs)):
            others = [out for i, out in enumerate(self.outputs) if i != absent]
            zeros = [zeros_like(out) for out in others]
            try:
                grads = self.autograd.grad(others, self.tracked, zeros, retain_graph=True, allow_unused=True)
            except RuntimeError as error:
                raise GradcheckError(
                    f"Expected backward function to handle undefined output grads. {advice}"
                ) from error
            if any(grad is not None and _numbers(grad).any() for grad in grads):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
                    + advice
                )


def _is_tracked(value: Any) -> bool:
    return hasattr(value, "_data") and value.requires_grad


def tracked(values: Sequence[Any]) -> Tensors:
    """Return the tensors among the values that require grad."""
    return tuple([v for v in values if _is_tracked(v)])


def _check_inputs(inputs: Tensors) -> None:
    for position, tensor in enumerate(inputs):
        if not _is_tracked(tensor):
            continue
        if tensor.dtype.name != "float64":
            warnings.warn(
                f"Input #{position} requires gradient and is not a double precision floating point or complex. This "
                "check will likely fail if all the inputs are not of double precision floating point or complex. ",
                UserWarning,
                stacklevel=4,
            )
        strides = getattr(tensor._data, "strides", tensor.shape)
        if any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)):
            raise InvalidOperation(
                f"The {position}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )
    if not tracked(inputs):
        raise InvalidValue(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


def _as_columns(rows: list[Any], tensor: Any) -> Any:
    """Return the gradients of an output's elements as the columns of a matrix: (inputs, outputs)."""
    if not rows:
        return zeros_like(tensor, (tensor.numel(), 0))
    return Functions(type(tensor)._apply).stack([row.reshape(-1) for row in rows], 1)


def _numbers(tensor: Any) -> Any:
    return np.asarray(tensor.detach().tolist())


def random_like(tensor: Any, seed: int) -> Any:
    """Return random numbers between -1 and 1 that depend only on ``seed``, so that failures are reproducible."""
    return shaped_like(tensor, np.random.default_rng(seed).uniform(-1, 1, tuple(tensor.shape)))


# The functions, with torch's arguments -------------------------------------------------------------------


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Return True if the gradients of ``func`` agree with finite differences of step ``eps``.

    Inputs that require grad are checked; they should be float64. ``fast_mode`` compares one random combination of
    all derivatives instead of each. ``check_grad_dtypes`` has no effect, because every gradient is cast to its
    input's dtype, and neither has ``masked``, which is for sparse tensors. On a mismatch it raises GradcheckError,
    or returns False without ``raise_exception``. Raises ValueError if no input requires grad.

    ``func`` takes ``inputs`` and returns a tensor, or a tuple. ``atol`` and ``rtol`` are the tolerances, and
    ``nondet_tol`` that of two evaluations of the gradient. ``check_backward_ad`` and ``check_forward_ad`` check the two
    modes, ``check_batched_grad`` and ``check_batched_forward_grad`` many gradients in one pass, and
    ``check_undefined_grad`` gradients that are None.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
        >>> tg.autograd.gradcheck(tg.sin, (x,))
        True
    """
    if not (check_forward_ad or check_backward_ad):
        raise InvalidChoice("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise InvalidChoice("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise InvalidChoice("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    tolerance = Tolerance(eps, atol, rtol, nondet_tol)
    try:
        check = Check(func, _as_tuple(inputs), tolerance)
        check.run(check_backward_ad, check_forward_ad, fast_mode)
        if check_backward_ad and check.outputs:
            check.run_further(check_batched_grad, check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Run :func:`gradcheck` on the gradients of ``func``, as a function of its inputs and ``grad_outputs``.

    If ``grad_outputs`` are not given, they are random numbers between -1 and 1. ``gen_non_contig_grad_outputs``
    has no effect: the memory layout does not matter.

    ``check_fwd_over_rev`` and ``check_rev_over_rev`` check forward and reverse mode over the reverse pass. The other
    arguments are as for ``gradcheck``.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
        >>> tg.autograd.gradgradcheck(tg.sin, (x,))
        True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise InvalidChoice("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise InvalidChoice("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise InvalidChoice("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = _as_tuple(inputs)
    if grad_outputs is None:
        outputs = outputs_of(func, inputs)
        seeds = tuple([random_like(out, seed).requires_grad_() for seed, out in enumerate(outputs)])
    else:
        seeds = _as_tuple(grad_outputs)

    def gradients(*args: Any) -> Tensors:
        arguments = args[: len(inputs)]
        outputs = outputs_of(func, arguments)
        grad = next(type(x)._autograd().grad for x in args if hasattr(x, "_data"))
        grads = grad(outputs, tracked(arguments), args[len(inputs) :], create_graph=True, allow_unused=True)
        return tuple([g for g in grads if g is not None])

    return gradcheck(
        gradients,
        inputs + seeds,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )


def _as_tuple(value: Any) -> Tensors:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
