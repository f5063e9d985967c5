"""``gradcheck`` and ``gradgradcheck``: derivatives held against small differences of the function itself.

As ``torch.autograd.gradcheck``, texts included. Written over a ``grad`` and tensors' methods, so the engine's
tensors and the SDK's share it; only the comparing is done on plain numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import autograd
from .errors import GradcheckError, InvalidChoice, InvalidOperation, InvalidValue
from .functional import Functional
from .functions import Functions
from .gradcheck_modes import Tolerance, check_projected, check_whole, numerical_jacobian, outputs_of

Tensors = tuple[Any, ...]


class Gradcheck:
    """The two functions, over a ``grad`` with torch's arguments."""

    def __init__(self, grad: Callable[..., Sequence[Any]]) -> None:
        self._grad = grad

    def gradcheck(
        self,
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
        """True if the gradients of ``func``'s outputs are what moving each input by ``eps`` says they are.

        Inputs that require grad are checked; they should be float64. ``fast_mode`` compares one random
        combination of all derivatives instead of each. ``masked`` concerns sparse tensors, which do not exist here.
        Raises GradcheckError for a difference (or returns False, without ``raise_exception``), ValueError if no
        input requires grad.
        """
        if not (check_forward_ad or check_backward_ad):
            raise InvalidChoice("Expected at least one of check_forward_ad or check_backward_ad to be True")
        if check_batched_grad and not check_backward_ad:
            raise InvalidChoice("Setting check_batched_grad=True requires check_backward_ad to be True")
        if check_batched_forward_grad and not check_forward_ad:
            raise InvalidChoice("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
        tolerance = Tolerance(eps, atol, rtol, nondet_tol, check_grad_dtypes)
        try:
            check = _Check(self._grad, func, _as_tuple(inputs), tolerance)
            check.run(check_backward_ad, check_forward_ad, fast_mode)
            if check_backward_ad and check.outputs:
                check.run_further(check_batched_grad, check_undefined_grad)
        except GradcheckError:
            if raise_exception:
                raise
            return False
        return True

    def gradgradcheck(
        self,
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
        """As :meth:`gradcheck`, for the gradients of ``func`` as a function of its inputs and ``grad_outputs``.

        ``grad_outputs`` are random numbers between -1 and 1 if not given. The memory layout that
        ``gen_non_contig_grad_outputs`` asks for makes no difference here.
        """
        if not (check_fwd_over_rev or check_rev_over_rev):
            raise InvalidChoice("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
        if check_undefined_grad and not check_rev_over_rev:
            raise InvalidChoice("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
        if check_batched_grad and not check_rev_over_rev:
            raise InvalidChoice("Setting check_batched_grad=True requires check_rev_over_rev to be True")
        inputs = _as_tuple(inputs)
        seeds = _seeds_for(outputs_of(func, inputs)) if grad_outputs is None else _as_tuple(grad_outputs)

        def gradients(*args: Any) -> Tensors:
            arguments = args[: len(inputs)]
            tracked = _tracked(arguments)
            grads = self._grad(
                outputs_of(func, arguments), tracked, args[len(inputs) :], create_graph=True, allow_unused=True
            )
            return tuple([g for g in grads if g is not None])

        return self.gradcheck(
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


class _Check:
    """One function at one point, and what is asked of its gradients there."""

    def __init__(self, grad: Callable[..., Sequence[Any]], func: Any, inputs: Tensors, tolerance: Tolerance) -> None:
        _check_inputs(inputs)
        self.grad = grad
        self.func = func
        self.inputs = inputs
        self.tolerance = tolerance
        self.outputs = outputs_of(func, inputs)
        self.tracked = _tracked(inputs)

    def run(self, backward: bool, forward: bool, fast: bool) -> None:
        """Compare with differences: every derivative, or one combination of them."""
        if not self.outputs:
            self._expect_constant()
            return
        compare = check_projected if fast else check_whole
        if backward:
            compare(self.func, self.inputs, self.outputs, self._rows, self.tolerance, False)
        if forward:
            compare(self.func, self.inputs, self.outputs, self._columns, self.tolerance, True)

    def run_further(self, batched: bool, undefined: bool) -> None:
        """What does not take differences to check."""
        if batched:
            for index in range(len(self.outputs)):
                self._check_batches(index)
        self._check_zeros()
        if undefined and len(self.outputs) > 1:
            self._check_absent()

    def _expect_constant(self) -> None:
        """Outputs without a history must not change with the inputs."""
        for position, tensor in enumerate(self.inputs):
            if not _is_tracked(tensor):
                continue
            for jacobian in numerical_jacobian(self.func, self.inputs, position, self.tolerance.eps, every=True):
                if np.any(np.abs(np.asarray(jacobian.tolist())) > self.tolerance.atol):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    def _rows(self, index: int) -> list[Any]:
        """The Jacobian of one output, a row at a time, with respect to each tracked input: (inputs, outputs)."""
        first, again = self._jacobian(index), self._jacobian(index)
        for (found, other), tensor in zip(zip(first, again, strict=True), self.tracked, strict=True):
            if self.tolerance.check_dtypes and any(row.dtype != tensor.dtype for row in found):
                raise GradcheckError("Gradient has dtype mismatch")
            if any(row.shape != tensor.shape for row in found):
                raise GradcheckError("Analytical gradient has incorrect size")
            spread = [np.abs(_numbers(a) - _numbers(b)).max(initial=0) for a, b in zip(found, other, strict=True)]
            if max(spread, default=0) > self.tolerance.nondet:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient.The tolerance "
                    f"for nondeterminism was {self.tolerance.nondet}."
                )
        return [_as_columns(rows, tensor) for rows, tensor in zip(first, self.tracked, strict=True)]

    def _jacobian(self, index: int) -> list[list[Any]]:
        """For each tracked input, the gradient of every element of the output."""
        elements = self.outputs[index].reshape(-1)
        rows: list[list[Any]] = [[] for _ in self.tracked]
        for i in range(elements.numel()):
            grads = self.grad((elements[i],), self.tracked, retain_graph=True, allow_unused=True)
            for row, grad, tensor in zip(rows, grads, self.tracked, strict=True):
                row.append(tensor._zeros_like() if grad is None else grad)
        return rows

    def _columns(self, index: int) -> list[Any]:
        """The same Jacobian in forward mode."""
        positions = [i for i, x in enumerate(self.inputs) if _is_tracked(x)]

        def output(*tracked: Any) -> Any:
            args = list(self.inputs)
            for position, tensor in zip(positions, tracked, strict=True):
                args[position] = tensor
            return outputs_of(self.func, args)[index]

        count = self.outputs[index].numel()
        if not any(t.numel() for t in self.tracked):
            return [t.detach().new_zeros((0, count)) for t in self.tracked]
        blocks = Functional(self.grad).jacobian(output, self.tracked, vectorize=True, strategy="forward-mode")
        return [b.reshape((count, t.numel())).permute((1, 0)) for b, t in zip(blocks, self.tracked, strict=True)]

    # What must hold besides --------------------------------------------------------------

    def _check_batches(self, index: int) -> None:
        """Gradients of many rows at once are those of each row."""
        output = self.outputs[index]
        seeds = [_random_like(output, seed) for seed in range(10)]
        singly = [self.grad((output,), self.tracked, (s,), retain_graph=True, allow_unused=True) for s in seeds]
        stack = Functions(type(output)._apply).stack
        together = self.grad(
            (output,), self.tracked, (stack(seeds),), retain_graph=True, allow_unused=True, is_grads_batched=True
        )
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

    def _check_zeros(self) -> None:
        """A gradient of zeros gives zeros, in the inputs' shapes and dtypes."""
        zeros = [out._zeros_like() for out in self.outputs]
        grads = self.grad(self.outputs, self.tracked, zeros, retain_graph=True, allow_unused=True)
        for grad, tensor in zip(grads, self.tracked, strict=True):
            if grad is None:
                continue
            if _numbers(grad).any():
                raise GradcheckError("backward not multiplied by grad_output")
            if grad.dtype != tensor.dtype:
                raise GradcheckError("grad is incorrect type")
            if grad.shape != tensor.shape:
                raise GradcheckError("grad is incorrect size")

    def _check_absent(self) -> None:
        """An output that no gradient arrives at counts as one with a gradient of zeros."""
        advice = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
        for absent in range(len(self.outputs)):
            others = [out for i, out in enumerate(self.outputs) if i != absent]
            zeros = [out._zeros_like() for out in others]
            try:
                grads = self.grad(others, self.tracked, zeros, retain_graph=True, allow_unused=True)
            except RuntimeError as error:
                raise GradcheckError(
                    f"Expected backward function to handle undefined output grads. {advice}"
                ) from error
            if any(grad is not None and _numbers(grad).any() for grad in grads):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
                    + advice
                )


def _as_tuple(value: Any) -> Tensors:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _is_tracked(value: Any) -> bool:
    return hasattr(value, "_data") and value.requires_grad


def _tracked(values: Sequence[Any]) -> Tensors:
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
    if not _tracked(inputs):
        raise InvalidValue(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


def _as_columns(rows: list[Any], tensor: Any) -> Any:
    """The gradients of each element of an output as the columns of a matrix: (inputs, outputs)."""
    if not rows:
        return tensor.detach().new_zeros((tensor.numel(), 0))
    return Functions(type(tensor)._apply).stack([row.reshape(-1) for row in rows], 1)


def _numbers(tensor: Any) -> Any:
    return np.asarray(tensor.detach().tolist())


def _random_like(tensor: Any, seed: int) -> Any:
    """Numbers between -1 and 1, the same ones every time: a check that failed fails again."""
    values = np.random.default_rng(seed).uniform(-1, 1, tuple(tensor.shape))
    return tensor.detach().new_tensor(values.tolist(), dtype=tensor.dtype).reshape(tuple(tensor.shape))


def _seeds_for(outputs: Tensors) -> Tensors:
    return tuple([_random_like(out, seed).requires_grad_() for seed, out in enumerate(outputs)])


_ENGINE = Gradcheck(autograd.grad)
gradcheck, gradgradcheck = _ENGINE.gradcheck, _ENGINE.gradgradcheck
