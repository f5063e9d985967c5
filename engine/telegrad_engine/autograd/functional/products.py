"""``torch.autograd.functional``: products with Jacobians and Hessians, and the whole matrices.

It uses only a ``grad`` function and tensor methods, so the engine's and the SDK's tensors share it. Right products
(jvp, hvp, forward mode) are the derivative of the left product, which is linear in its vector: docs/decisions/0006
gives the reasons, and says when many rows of a Jacobian are computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...context import enable_grad, is_grad_enabled, set_grad_enabled
from ...errors import GradRequired, InvalidChoice, InvalidOperation
from ...graph import differentiation
from ...tensor.namespace import Functions
from ...transforms import batched_gradients
from .arguments import (
    ENTRY_INDEPENDENT,
    HESSIAN_INDEPENDENT,
    JACOBIAN_INDEPENDENT,
    OUTPUT_INDEPENDENT,
    OUTPUTS,
    Tensors,
    as_tensors,
    check_elements,
    check_forward,
    check_tracked,
    filled,
    fresh,
    grad_untracked,
    input_vector,
    jacobian_untracked,
    not_differentiable,
    one_number,
    output_untracked,
    returned,
    turned,
    vector_like,
    zeros,
)

Function = Callable[..., Any]
STRATEGIES = ("forward-mode", "reverse-mode")


class Functional:
    """The functions of ``torch.autograd.functional``, over a ``grad`` with torch's arguments.

    ``rows(output, inputs)`` returns, for each input, the gradients of every element of ``output`` in one tensor, or
    None for an unused input. Without ``rows``, or if it returns None, they are computed one at a time.
    """

    def __init__(
        self, grad: Callable[..., Sequence[Any]], rows: Callable[[Any, Tensors], Sequence[Any] | None] | None = None
    ) -> None:
        self._autograd_grad = grad
        self._batched_rows = rows

    # Products ----------------------------------------------------------------------------

    def vjp(
        self, func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
    ) -> tuple[Any, Any]:
        """Return ``func(*inputs)``, and the product of ``v`` with its Jacobian, in the inputs' shapes.

        ``v`` has the outputs' shapes; it may be omitted for an output of one element. An input that the outputs do
        not depend on gets zeros or, with ``strict``, raises. ``create_graph`` makes both results differentiable.
        """
        with enable_grad():
            several_in, inputs = as_tensors(inputs, "inputs", "vjp")
            inputs = fresh(inputs, create_graph)
            several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "vjp")
            check_tracked(outputs, strict, output_untracked)
            if v is not None:
                v = vector_like(v, "vjp", outputs, several_out, create_graph)
            elif len(outputs) != 1 or outputs[0].numel() != 1:
                raise GradRequired(
                    "The vector v can only be None if the user-provided function returns a single Tensor with a "
                    "single element."
                )
        with set_grad_enabled(create_graph or is_grad_enabled()):
            grads = self._grad(outputs, inputs, v, create_graph)
            result = filled(grads, inputs, strict, create_graph, OUTPUT_INDEPENDENT, "jacobian")
        return returned(outputs, several_out, create_graph), returned(result, several_in, create_graph)

    def jvp(
        self, func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
    ) -> tuple[Any, Any]:
        """Return ``func(*inputs)``, and the product of its Jacobian with ``v``, in the outputs' shapes.

        ``v`` has the inputs' shapes; it may be omitted for an input of one element. The other arguments are those of
        :meth:`vjp`.
        """
        with enable_grad():
            several_in, inputs = as_tensors(inputs, "inputs", "jvp")
            inputs = fresh(inputs, create_graph)
            v = input_vector(v, "jvp", inputs, several_in, create_graph)
            several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "jvp")
            check_tracked(outputs, strict, output_untracked)
            dummies, pulled = self._pullback(outputs, inputs)
            check_tracked(pulled, strict, grad_untracked)
        with set_grad_enabled(create_graph or is_grad_enabled()):
            grads = self._grad(pulled, dummies, v, create_graph)
            result = filled(grads, outputs, strict, create_graph, ENTRY_INDEPENDENT, "jacobian")
        return returned(outputs, several_out, create_graph), returned(result, several_out, create_graph)

    def vhp(
        self, func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
    ) -> tuple[Any, Any]:
        """Return ``func(*inputs)``, one number, and the product of ``v`` with its Hessian, in the inputs' shapes."""
        return self._hessian_product("vhp", func, inputs, v, create_graph, strict)

    def hvp(
        self, func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
    ) -> tuple[Any, Any]:
        """Return ``func(*inputs)``, one number, and the product of its Hessian with ``v``, in the inputs' shapes.

        For a twice continuously differentiable function, :meth:`vhp` gives the same result and is faster.
        """
        return self._hessian_product("hvp", func, inputs, v, create_graph, strict)

    def _hessian_product(
        self, name: str, func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool
    ) -> tuple[Any, Any]:
        with enable_grad():
            several, inputs = as_tensors(inputs, "inputs", name)
            inputs = fresh(inputs, create_graph)
            v = input_vector(v, name, inputs, several, create_graph)
            output = one_number(func(*inputs), name, strict)
            roots = self._grad((output,), inputs, None, True)
            check_tracked(roots, strict, jacobian_untracked)
            ends, independent = inputs, JACOBIAN_INDEPENDENT
            if name == "hvp":
                ends, roots = self._pullback(roots, inputs, like=inputs)
                independent = HESSIAN_INDEPENDENT
        with set_grad_enabled(create_graph or is_grad_enabled()):
            grads = self._grad(roots, ends, v, create_graph)
            result = filled(grads, inputs, strict, create_graph, independent, "hessian")
        return returned((output,), False, create_graph), returned(result, several, create_graph)

    # Whole matrices ----------------------------------------------------------------------

    def jacobian(
        self,
        func: Function,
        inputs: Any,
        create_graph: bool = False,
        strict: bool = False,
        vectorize: bool = False,
        strategy: str = "reverse-mode",
    ) -> Any:
        """Return the derivatives of every element of the outputs: (*output.shape, *input.shape).

        It is a tuple for a tuple of inputs, and a tuple of these for a tuple of outputs. ``strategy`` "forward-mode"
        computes columns, which suits few inputs and many outputs. Rows are computed together if that is faster;
        ``vectorize`` affects only which arguments raise torch's errors.
        """
        if strategy not in STRATEGIES:
            raise InvalidChoice(
                'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more '
                'outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use '
                '"reverse-mode".'
            )
        if strategy == "forward-mode":
            check_forward(create_graph, strict, vectorize)
            return self._jacobian_by_columns(func, inputs)
        with enable_grad():
            several_in, inputs = as_tensors(inputs, "inputs", "jacobian")
            inputs = fresh(inputs, create_graph)
            several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "jacobian")
            check_tracked(outputs, strict, output_untracked)
            if vectorize and strict:
                raise InvalidOperation(
                    "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
                    "together. Please either set `strict=False` or `vectorize=False`."
                )
            check_elements(outputs, vectorize)
            result = [
                returned(self._rows_of(i, out, inputs, create_graph, strict), several_in, create_graph)
                for i, out in enumerate(outputs)
            ]
        return tuple(result) if several_out else result[0]

    def _rows_of(self, index: int, output: Any, inputs: Tensors, create_graph: bool, strict: bool) -> Tensors:
        """Return the Jacobian of one output with respect to each input."""
        blocks = []
        for position, (rows, tensor) in enumerate(zip(self._rows(output, inputs, create_graph), inputs, strict=True)):
            if rows is None:
                if strict:
                    raise GradRequired(
                        f"Output {index} of the user-provided function is independent of input {position}. This is "
                        "not allowed in strict mode."
                    )
                blocks.append(zeros((*output.shape, *tensor.shape), tensor))
                continue
            if strict and create_graph and not rows.requires_grad:
                raise GradRequired(not_differentiable("jacobian", index))
            blocks.append(rows.reshape((*output.shape, *tensor.shape)))
        return tuple(blocks)

    def _jacobian_by_columns(self, func: Function, inputs: Any) -> Any:
        """Return the Jacobian, computed by columns: they are the rows of the pullback's Jacobian."""
        several_in, inputs = as_tensors(inputs, "inputs", "jacobian")
        with enable_grad():
            inputs = fresh(inputs, False)
            check_elements(inputs, True)
            several_out, outputs = as_tensors(func(*inputs), "outputs", None)
            dummies, pulled = self._pullback(outputs, inputs)
            columns = [[None] * len(outputs) if grad is None else self._rows(grad, dummies, False) for grad in pulled]
        result = [
            returned(tuple(turned(columns[j][i], out, tensor) for j, tensor in enumerate(inputs)), several_in, False)
            for i, out in enumerate(outputs)
        ]
        return tuple(result) if several_out else result[0]

    def hessian(
        self,
        func: Function,
        inputs: Any,
        create_graph: bool = False,
        strict: bool = False,
        vectorize: bool = False,
        outer_jacobian_strategy: str = "reverse-mode",
    ) -> Any:
        """Return the second derivatives of a function that returns one number: (*input.shape, *input.shape).

        For a tuple of inputs it is a tuple of tuples, with a block for each pair of inputs.
        """
        several, inputs = as_tensors(inputs, "inputs", "hessian")
        if outer_jacobian_strategy not in STRATEGIES:
            raise InvalidChoice('Expected strategy to be either "forward-mode" or "reverse-mode".')

        def gradient(*inputs: Any) -> Tensors:
            if outer_jacobian_strategy == "forward-mode":
                inputs = tuple([t.requires_grad_() for t in inputs])
            slope: Tensors = self.jacobian(
                lambda *args: one_number(func(*args), "hessian", strict).squeeze(), inputs, create_graph=True
            )
            check_tracked(slope, strict, jacobian_untracked)
            return slope

        result = self.jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
        return result if several else result[0][0]

    # Gradients ---------------------------------------------------------------------------

    def _grad(self, outputs: Tensors, inputs: Tensors, v: Tensors | None, create_graph: bool) -> Tensors:
        """Return the gradients of the outputs that have a history; None for an input that none of them depends on."""
        seeds = [None] * len(outputs) if v is None else v
        tracked = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o is not None and o.requires_grad]
        if not tracked:
            return (None,) * len(inputs)
        roots, grads = zip(*tracked, strict=True)
        return tuple(self._autograd_grad(roots, inputs, grads, create_graph=create_graph, allow_unused=True))

    def _pullback(self, outputs: Tensors, inputs: Tensors, like: Tensors | None = None) -> tuple[Tensors, Tensors]:
        """Return zeros in the outputs' shapes, and the inputs' gradients as linear functions of these zeros.

        ``like`` gives the shapes if some outputs are None. The value 0 does not matter, because the derivative of a
        linear function is the same everywhere.
        """
        dummies = tuple([zeros(tuple(out.shape), out).requires_grad_() for out in like or outputs])
        return dummies, self._grad(outputs, inputs, dummies, True)

    def _rows(self, output: Any, inputs: Tensors, create_graph: bool) -> Sequence[Any]:
        """Return each input's gradients of all elements of ``output``: (elements, *input.shape), or None for zeros."""
        if not output.requires_grad or not output.numel():
            return [None] * len(inputs)
        count = output.numel()
        if self._batched_rows is not None and count > 1 and not create_graph:
            together = self._batched_rows(output, inputs)
            if together is not None:
                return together
        elements = output.reshape(-1)
        found = [
            self._autograd_grad((elements[i],), inputs, retain_graph=True, create_graph=create_graph, allow_unused=True)
            for i in range(count)
        ]
        stack = Functions(type(output)._apply).stack
        return [None if row[0] is None else stack(list(row)) for row in zip(*found, strict=True)]


_ENGINE = Functional(differentiation.grad, batched_gradients.rows)
vjp, jvp, vhp, hvp = _ENGINE.vjp, _ENGINE.jvp, _ENGINE.vhp, _ENGINE.hvp
jacobian, hessian = _ENGINE.jacobian, _ENGINE.hessian
