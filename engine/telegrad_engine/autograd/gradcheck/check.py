"""The checks of one function's gradients at one point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import GradcheckError, InvalidOperation, InvalidValue
from ...tensor.namespace import Functions
from .differences import Tensors, Tolerance, check_projected, check_whole, numerical_jacobian, outputs_of, shaped_like


class Check:
    """A function at one point, and the checks of its gradients."""

    def __init__(
        self, grad: Callable[..., Sequence[Any]], forward_ad: Any, func: Any, inputs: Tensors, tolerance: Tolerance
    ) -> None:
        _check_inputs(inputs)
        self.grad, self.forward_ad = grad, forward_ad
        self.func = func
        self.inputs = inputs
        self.tolerance = tolerance
        self.outputs = outputs_of(func, inputs)
        self.tracked = tracked(inputs)

    def run(self, backward: bool, forward: bool, fast: bool) -> None:
        """Compare every derivative, or with ``fast`` one combination of them, with finite differences."""
        if not self.outputs:
            self._expect_constant()
            return
        compare = check_projected if fast else check_whole
        if backward:
            compare(self.func, self.inputs, self.outputs, self._rows, self.tolerance, False)
        if forward:
            compare(self.func, self.inputs, self.outputs, self._columns, self.tolerance, True)

    def run_further(self, batched: bool, undefined: bool) -> None:
        """Run the checks that need no finite differences."""
        if batched:
            for index in range(len(self.outputs)):
                self._check_batches(index)
        self._check_zeros()
        if undefined and len(self.outputs) > 1:
            self._check_absent()

    def _expect_constant(self) -> None:
        """Raise if outputs without a history change with the inputs."""
        for position, tensor in enumerate(self.inputs):
            if not _is_tracked(tensor):
                continue
            for jacobian in numerical_jacobian(self.func, self.inputs, position, self.tolerance.eps, every=True):
                if np.any(np.abs(np.asarray(jacobian.tolist())) > self.tolerance.atol):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

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
            grads = self.grad((output,), self.tracked, seed, retain_graph=True, allow_unused=True)
            for row, grad, tensor in zip(rows, grads, self.tracked, strict=True):
                row.append(tensor.detach().new_zeros(tuple(tensor.shape)) if grad is None else grad)
        return rows

    def _columns(self, index: int, left: Any = None, right: Any = None) -> list[Any]:
        """Return the same Jacobian, computed by columns in forward mode; with ``left``, its products: (1, outputs)."""
        output = self.outputs[index]
        stack = Functions(type(output)._apply).stack
        places = [position for position, tensor in enumerate(self.inputs) if _is_tracked(tensor)]
        return [
            stack([self._column(index, position, shaped_like(tensor, tangent)) for tangent in tangents])
            if len(tangents := np.eye(tensor.numel()) if left is None else [left[which]])
            else tensor.detach().new_zeros((0, output.numel()))
            for which, (position, tensor) in enumerate(zip(places, self.tracked, strict=True))
        ]

    def _column(self, index: int, position: int, tangent: Any) -> Any:
        """Return the output's tangent, flattened, for a tangent of one input."""
        with self.forward_ad.dual_level():
            dual = self.forward_ad.make_dual(self.inputs[position], tangent)
            outputs = outputs_of(self.func, [*self.inputs[:position], dual, *self.inputs[position + 1 :]])
            found = self.forward_ad.unpack_dual(outputs[index]).tangent
        output = outputs[index].detach()
        return output.new_zeros((output.numel(),)) if found is None else found.detach().reshape(-1)

    # Further checks ----------------------------------------------------------------------

    def _check_batches(self, index: int) -> None:
        """Raise unless batched gradients equal those of each row."""
        output = self.outputs[index]
        seeds = [random_like(output, seed) for seed in range(10)]
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
        """Raise unless output gradients of zeros give input gradients of zeros."""
        zeros = [out.detach().new_zeros(tuple(out.shape)) for out in self.outputs]
        grads = self.grad(self.outputs, self.tracked, zeros, retain_graph=True, allow_unused=True)
        if any(grad is not None and _numbers(grad).any() for grad in grads):
            raise GradcheckError("backward not multiplied by grad_output")

    def _check_absent(self) -> None:
        """Raise unless a missing output gradient is treated as zeros."""
        advice = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
        for absent in range(len(self.outputs)):
            others = [out for i, out in enumerate(self.outputs) if i != absent]
            zeros = [out.detach().new_zeros(tuple(out.shape)) for out in others]
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
        return tensor.detach().new_zeros((tensor.numel(), 0))
    return Functions(type(tensor)._apply).stack([row.reshape(-1) for row in rows], 1)


def _numbers(tensor: Any) -> Any:
    return np.asarray(tensor.detach().tolist())


def random_like(tensor: Any, seed: int) -> Any:
    """Return random numbers between -1 and 1 that depend only on ``seed``, so that failures are reproducible."""
    return shaped_like(tensor, np.random.default_rng(seed).uniform(-1, 1, tuple(tensor.shape)))
