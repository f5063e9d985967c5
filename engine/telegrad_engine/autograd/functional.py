"""``torch.autograd.functional``: products with Jacobians and Hessians, and the whole matrices.

It uses only the tensors' ``autograd.grad`` and methods, so the engine's and the SDK's tensors share it. Right products
(jvp, hvp, forward mode) are the derivative of the left product, which is linear in its vector: docs/decisions/0006
gives the reasons, and says when many rows of a Jacobian are computed together. The error texts are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..context import enable_grad, is_grad_enabled, set_grad_enabled
from ..errors import (
    GradRequired,
    IndexOutOfRange,
    InvalidArgument,
    InvalidChoice,
    InvalidOperation,
    NotSupported,
    ShapeMismatch,
)
from ..shapes import torch_size
from ..transforms.batched_gradients import basis_rows, tracked_gradients

Tensors = tuple[Any, ...]
OUTPUTS = "outputs of the user-provided function"


def as_tensors(value: Any, what: str, name: str | None) -> tuple[bool, Tensors]:
    """Return whether ``value`` is a tuple, and its tensors. Raises InvalidArgument for values that are not tensors."""
    several = isinstance(value, tuple)
    tensors = value if several else (value,)
    for i, tensor in enumerate(tensors):
        if not hasattr(tensor, "_data"):
            which = f"value at index {i}" if several else f"given {what}"
            raise InvalidArgument(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {which} has type "
                f"{type(tensor)}."
            )
    return several, tensors


def fresh(tensors: Tensors, create_graph: bool, track: bool = True) -> Tensors:
    """Return aliases of the tensors, so that only their uses as arguments are differentiated."""
    return tuple(
        [
            t.view(tuple(t.shape)) if create_graph and t.requires_grad else t.detach().requires_grad_(track)
            for t in tensors
        ]
    )


def vector_like(v: Any, name: str, like: Tensors, several: bool, create_graph: bool) -> Tensors:
    """Return the vector of a product. Raises ShapeMismatch unless it has as many tensors as ``like``, of its shapes."""
    vectors = fresh(as_tensors(v, "v", name)[1], create_graph, track=False)
    if len(vectors) != len(like):
        if several:
            raise ShapeMismatch(f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}.")
        raise ShapeMismatch("The given v should contain a single Tensor.")
    for i, (given, other) in enumerate(zip(vectors, like, strict=True)):
        if given.shape != other.shape:
            which = f"Entry {i} in " if several else ""
            raise ShapeMismatch(
                f"{which}v has invalid size: should be {torch_size(other.shape)} but got {torch_size(given.shape)}."
            )
    return vectors


def input_vector(v: Any, name: str, inputs: Tensors, several: bool, create_graph: bool) -> Tensors | None:
    """Return the vector of a product with the inputs; it may be omitted for a single input of one element."""
    if v is not None:
        return vector_like(v, name, inputs, several, create_graph)
    if len(inputs) != 1 or inputs[0].numel() != 1:
        raise GradRequired(
            "The vector v can only be None if the input to the user-provided function is a single Tensor with a "
            "single element."
        )
    return None


def one_number(output: Any, name: str, strict: bool) -> Any:
    """Return ``output``. Raises unless it is a single tensor of one element."""
    several, outputs = as_tensors(output, OUTPUTS, name)
    check_tracked(outputs, strict, OUTPUT_UNTRACKED)
    if several:
        raise InvalidOperation(f"The function given to {name} should return a single Tensor")
    if output.numel() != 1:
        raise ShapeMismatch(f"The Tensor returned by the function given to {name} should contain a single element")
    return output


def returned(tensors: Tensors, several: bool, create_graph: bool) -> Any:
    """Return a tuple of tensors, or the only tensor unless ``several``; detached unless ``create_graph``."""
    if not create_graph:
        tensors = tuple([t.detach() for t in tensors])
    return tensors if several else tensors[0]


def turned(columns: Any, output: Any, tensor: Any) -> Any:
    """Return columns (elements, *output.shape) as a Jacobian (*output.shape, *input.shape); zeros for None."""
    shape = (*output.shape, *tensor.shape)
    if columns is None:
        return zeros(shape, output)
    return columns.permute((*range(1, columns.dim()), 0)).reshape(shape)


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Return zeros of ``shape``, with the dtype and device of ``like``."""
    return like.detach().new_zeros(shape)


# Checks that torch makes ---------------------------------------------------------------------------------


def check_elements(tensors: Tensors, vectorize: bool) -> None:
    """Raise torch's error for empty tensors: if all are empty with ``vectorize``, if any is without."""
    sizes = [t.numel() for t in tensors]
    if vectorize and not any(sizes):
        raise IndexOutOfRange("index 0 is out of bounds for dimension 0 with size 0")
    if not vectorize and not all(sizes):
        raise InvalidOperation("stack expects a non-empty TensorList")


def check_forward(create_graph: bool, strict: bool, vectorize: bool) -> None:
    """Raise for options that torch does not accept in forward mode."""
    if create_graph:
        raise NotSupported(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not '
            'supported together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if strict:
        raise InvalidOperation(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported '
            'together (yet). Please either set `strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotSupported(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
            "`vectorize=True`."
        )


OUTPUT_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
ENTRY_INDEPENDENT = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
    "backward trick to compute forward mode gradients. This is not allowed in strict mode."
)
JACOBIAN_INDEPENDENT = (
    "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
HESSIAN_INDEPENDENT = (
    "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This is not allowed "
    "in strict mode as it prevents from using the double backward trick to replace forward mode AD."
)


NOT_DIFFERENTIABLE = (
    "The {} of the user-provided function is independent of input {}. This is not allowed in strict mode when "
    "create_graph=True."
)
OUTPUT_UNTRACKED = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
GRAD_UNTRACKED = (
    "The gradient with respect to input {} is independent of the inputs of the user-provided function. This is not "
    "allowed in strict mode."
)
JACOBIAN_UNTRACKED = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example)."
)


def filled(grads: Tensors, like: Tensors, strict: bool, create_graph: bool, independent: str, which: str) -> Tensors:
    """Return the gradients, with zeros for None.

    In strict mode, None is an error, and so is a gradient without a history if ``create_graph``.
    """
    result = []
    for i, (grad, tensor) in enumerate(zip(grads, like, strict=True)):
        if grad is None:
            if strict:
                raise GradRequired(independent.format(i))
            grad = zeros(tuple(tensor.shape), tensor)
        elif strict and create_graph and not grad.requires_grad:
            raise GradRequired(NOT_DIFFERENTIABLE.format(which, i))
        result.append(grad)
    return tuple(result)


def check_tracked(tensors: Tensors, strict: bool, text: str) -> None:
    """In strict mode, raise for the first tensor that is None or has no history."""
    if not strict:
        return
    for i, tensor in enumerate(tensors):
        if tensor is None:
            raise GradRequired(OUTPUT_INDEPENDENT.format(i))
        if not tensor.requires_grad:
            raise GradRequired(text.format(i))


# The functions -------------------------------------------------------------------------------------------


Function = Callable[..., Any]
STRATEGIES = ("forward-mode", "reverse-mode")


# Products ------------------------------------------------------------------------------------------------


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of ``v`` with its Jacobian, in the inputs' shapes.

    ``v`` has the outputs' shapes; it may be omitted for an output of one element. An input that the outputs do
    not depend on gets zeros or, with ``strict``, raises. ``create_graph`` makes both results differentiable.

    Examples:
        >>> x, v = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.0])
        >>> tg.autograd.functional.vjp(lambda x: x * x, x, v)
        (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        several_in, inputs = as_tensors(inputs, "inputs", "vjp")
        inputs = fresh(inputs, create_graph)
        several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "vjp")
        check_tracked(outputs, strict, OUTPUT_UNTRACKED)
        if v is not None:
            v = vector_like(v, "vjp", outputs, several_out, create_graph)
        elif len(outputs) != 1 or outputs[0].numel() != 1:
            raise GradRequired(
                "The vector v can only be None if the user-provided function returns a single Tensor with a "
                "single element."
            )
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(outputs, inputs, v, create_graph)
        result = filled(grads, inputs, strict, create_graph, OUTPUT_INDEPENDENT, "jacobian")
    return returned(outputs, several_out, create_graph), returned(result, several_in, create_graph)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of its Jacobian with ``v``, in the outputs' shapes.

    ``v`` has the inputs' shapes; it may be omitted for an input of one element. ``create_graph`` and ``strict`` are as
    in :func:`vjp`.

    Examples:
        >>> x, v = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.0])
        >>> tg.autograd.functional.jvp(lambda x: x * x, x, v)
        (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        several_in, inputs = as_tensors(inputs, "inputs", "jvp")
        inputs = fresh(inputs, create_graph)
        v = input_vector(v, "jvp", inputs, several_in, create_graph)
        several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "jvp")
        check_tracked(outputs, strict, OUTPUT_UNTRACKED)
        dummies, pulled = _pullback(outputs, inputs)
        check_tracked(pulled, strict, GRAD_UNTRACKED)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(pulled, dummies, v, create_graph)
        result = filled(grads, outputs, strict, create_graph, ENTRY_INDEPENDENT, "jacobian")
    return returned(outputs, several_out, create_graph), returned(result, several_out, create_graph)


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, one number, and the product of ``v`` with its Hessian, in the inputs' shapes.

    The arguments are those of ``hvp``: see ``vjp``.

    Examples:
        >>> x, v = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.0])
        >>> tg.autograd.functional.vhp(lambda x: (x**3).sum(), x, v)[1]
        tensor([6., 0.])
    """
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, one number, and the product of its Hessian with ``v``, in the inputs' shapes.

    For a twice continuously differentiable function, :func:`vhp` gives the same result and is faster.

    ``create_graph`` and ``strict`` are as in ``vjp``.

    Examples:
        >>> x, v = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.0])
        >>> tg.autograd.functional.hvp(lambda x: (x**3).sum(), x, v)[1]
        tensor([6., 0.])
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    with enable_grad():
        several, inputs = as_tensors(inputs, "inputs", name)
        inputs = fresh(inputs, create_graph)
        v = input_vector(v, name, inputs, several, create_graph)
        output = one_number(func(*inputs), name, strict)
        roots = _grad((output,), inputs, None, True)
        check_tracked(roots, strict, JACOBIAN_UNTRACKED)
        ends, independent = inputs, JACOBIAN_INDEPENDENT
        if name == "hvp":
            ends, roots = _pullback(roots, inputs, like=inputs)
            independent = HESSIAN_INDEPENDENT
    with set_grad_enabled(create_graph or is_grad_enabled()):
        grads = _grad(roots, ends, v, create_graph)
        result = filled(grads, inputs, strict, create_graph, independent, "hessian")
    return returned((output,), False, create_graph), returned(result, several, create_graph)


# Whole matrices ------------------------------------------------------------------------------------------


def jacobian(
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

    ``func`` takes ``inputs``, a tensor or a tuple. ``create_graph`` makes the result differentiable; ``strict``
    raises RuntimeError if the outputs do not depend on an input.

    Examples:
        >>> tg.autograd.functional.jacobian(lambda x: x * x, tg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if strategy not in STRATEGIES:
        raise InvalidChoice(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more '
            'outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use '
            '"reverse-mode".'
        )
    if strategy == "forward-mode":
        check_forward(create_graph, strict, vectorize)
        return _jacobian_by_columns(func, inputs)
    with enable_grad():
        several_in, inputs = as_tensors(inputs, "inputs", "jacobian")
        inputs = fresh(inputs, create_graph)
        several_out, outputs = as_tensors(func(*inputs), OUTPUTS, "jacobian")
        check_tracked(outputs, strict, OUTPUT_UNTRACKED)
        if vectorize and strict:
            raise InvalidOperation(
                "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
                "together. Please either set `strict=False` or `vectorize=False`."
            )
        check_elements(outputs, vectorize)
        result = [
            returned(_rows_of(i, out, inputs, create_graph, strict), several_in, create_graph)
            for i, out in enumerate(outputs)
        ]
    return tuple(result) if several_out else result[0]


def _rows_of(index: int, output: Any, inputs: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """Return the Jacobian of one output with respect to each input."""
    blocks = []
    for position, (rows, tensor) in enumerate(zip(_rows(output, inputs, create_graph), inputs, strict=True)):
        if rows is None:
            if strict:
                raise GradRequired(
                    f"Output {index} of the user-provided function is independent of input {position}. This is "
                    "not allowed in strict mode."
                )
            blocks.append(zeros((*output.shape, *tensor.shape), tensor))
            continue
        if strict and create_graph and not rows.requires_grad:
            raise GradRequired(NOT_DIFFERENTIABLE.format("jacobian", index))
        blocks.append(rows.reshape((*output.shape, *tensor.shape)))
    return tuple(blocks)


def _jacobian_by_columns(func: Function, inputs: Any) -> Any:
    """Return the Jacobian, computed by columns: they are the rows of the pullback's Jacobian."""
    several_in, inputs = as_tensors(inputs, "inputs", "jacobian")
    with enable_grad():
        inputs = fresh(inputs, False)
        check_elements(inputs, True)
        several_out, outputs = as_tensors(func(*inputs), "outputs", None)
        dummies, pulled = _pullback(outputs, inputs)
        columns = [[None] * len(outputs) if grad is None else _rows(grad, dummies, False) for grad in pulled]
    result = [
        returned(tuple(turned(columns[j][i], out, tensor) for j, tensor in enumerate(inputs)), several_in, False)
        for i, out in enumerate(outputs)
    ]
    return tuple(result) if several_out else result[0]


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the second derivatives of a function that returns one number: (*input.shape, *input.shape).

    For a tuple of inputs it is a tuple of tuples, with a block for each pair of inputs.

    ``func`` takes ``inputs``, a tensor or a tuple. ``create_graph`` makes the result differentiable; ``strict``
    raises RuntimeError if ``func`` does not depend on an input; ``vectorize`` and ``outer_jacobian_strategy`` are as
    in ``jacobian``.

    Examples:
        >>> tg.autograd.functional.hessian(lambda x: (x**3).sum(), tg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    several, inputs = as_tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in STRATEGIES:
        raise InvalidChoice('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient(*inputs: Any) -> Tensors:
        if outer_jacobian_strategy == "forward-mode":
            inputs = tuple([t.requires_grad_() for t in inputs])
        slope: Tensors = jacobian(
            lambda *args: one_number(func(*args), "hessian", strict).squeeze(), inputs, create_graph=True
        )
        check_tracked(slope, strict, JACOBIAN_UNTRACKED)
        return slope

    result = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return result if several else result[0][0]


# Gradients -----------------------------------------------------------------------------------------------


def _grad(outputs: Tensors, inputs: Tensors, v: Tensors | None, create_graph: bool) -> Tensors:
    """Return the gradients of the outputs that have a history; None for an input that none of them depends on."""
    seeds = (None,) * len(outputs) if v is None else v
    return tuple(tracked_gradients(outputs, inputs, seeds, create_graph=create_graph))


def _pullback(outputs: Tensors, inputs: Tensors, like: Tensors | None = None) -> tuple[Tensors, Tensors]:
    """Return zeros in the outputs' shapes, and the inputs' gradients as linear functions of these zeros.

    ``like`` gives the shapes if some outputs are None. The value 0 does not matter, because the derivative of a
    linear function is the same everywhere.
    """
    dummies = tuple([zeros(tuple(out.shape), out).requires_grad_() for out in like or outputs])
    return dummies, _grad(outputs, inputs, dummies, True)


def _rows(output: Any, inputs: Tensors, create_graph: bool) -> Sequence[Any]:
    """Return each input's gradients of all elements of ``output``: (elements, *input.shape), or None for zeros."""
    if not output.requires_grad or not output.numel():
        return [None] * len(inputs)
    return basis_rows(output, inputs, create_graph)
