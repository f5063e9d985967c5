"""Checks of the arguments and results of ``functional``: tuples of tensors, vectors, strict mode.

The error texts are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import GradRequired, IndexOutOfRange, InvalidArgument, InvalidOperation, NotSupported, ShapeMismatch
from ...shapes import torch_size

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
    check_tracked(outputs, strict, output_untracked)
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
            raise GradRequired(not_differentiable(which, i))
        result.append(grad)
    return tuple(result)


def not_differentiable(which: str, index: int) -> str:
    """The error text for a result without a history under ``create_graph``."""
    return (
        f"The {which} of the user-provided function is independent of input {index}. This is not allowed in strict "
        "mode when create_graph=True."
    )


def check_tracked(tensors: Tensors, strict: bool, text: Callable[[int], str]) -> None:
    """In strict mode, raise for the first tensor that is None or has no history."""
    if not strict:
        return
    for i, tensor in enumerate(tensors):
        if tensor is None:
            raise GradRequired(OUTPUT_INDEPENDENT.format(i))
        if not tensor.requires_grad:
            raise GradRequired(text(i))


def output_untracked(i: int) -> str:
    """The error text for an output without a history."""
    return (
        f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
        "differentiable manner from the input when running in strict mode."
    )


def grad_untracked(i: int) -> str:
    """The error text for a gradient that does not depend on the inputs."""
    return (
        f"The gradient with respect to input {i} is independent of the inputs of the user-provided function. This is "
        "not allowed in strict mode."
    )


def jacobian_untracked(i: int) -> str:
    """The error text for a Jacobian that does not depend on the input."""
    return (
        "While computing the hessian, found that the jacobian of the user-provided function with respect to input "
        f"{i} is independent of the input. This is not allowed in strict mode. You should ensure that your function "
        "is twice differentiable and that the jacobian depends on the inputs (this would be violated by a linear "
        "function for example)."
    )
