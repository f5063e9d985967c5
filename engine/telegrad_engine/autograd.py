"""``backward`` and ``grad``: what to differentiate, checked, handed to the pass, and what comes of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .backward import run
from .errors import DTypeMismatch, GradRequired, InvalidOperation, InvalidValue, ShapeMismatch
from .graph import Node


def backward(
    tensors: Any,
    gradients: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the sum of the tensors' gradients into the leaves, or into ``inputs`` alone.

    ``gradients`` has one tensor (or None for a tensor of one element) per tensor. Raises torch's
    errors for untracked roots, shapes that do not match and graphs that were freed.
    """
    if inputs is not None:
        inputs = [inputs] if hasattr(inputs, "_data") else list(inputs)
        if not inputs:
            raise InvalidOperation("`inputs` argument to `backward()` cannot be empty.")
        for tensor in inputs:
            if not tensor.requires_grad:
                raise GradRequired("One of the differentiated Tensors does not require grad")
    tensors = [tensors] if hasattr(tensors, "_data") else list(tensors)
    if hasattr(gradients, "_data"):
        gradients = [gradients]
    values = tensors[0]._values(create_graph)
    roots = _roots(tensors, gradients, values, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else [_target(t) for t in inputs]
    with values:
        captured = run(roots, values, keep_graph=keep, wanted=targets, accumulate=values.accumulate)
        if inputs is not None:
            for tensor, target in zip(inputs, targets or [], strict=True):
                if target in captured:
                    values.accumulate(tensor, captured.pop(target), False)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, leaving ``.grad`` alone.

    One tensor per input, of its shape and dtype; None for an input that was not used, if
    ``allow_unused``, or zeros, if ``materialize_grads``.
    """
    outputs = [outputs] if hasattr(outputs, "_data") else list(outputs)
    inputs = [inputs] if hasattr(inputs, "_data") else list(inputs)
    if grad_outputs is None or hasattr(grad_outputs, "_data"):
        grad_outputs = [grad_outputs]
        if grad_outputs == [None]:
            grad_outputs = [None] * len(outputs)
    if allow_unused is False and materialize_grads:
        raise InvalidValue(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    values = outputs[0]._values(create_graph)
    for tensor in inputs:
        if not tensor.requires_grad:
            raise GradRequired("One of the differentiated Tensors does not require grad")
    roots = _roots(outputs, grad_outputs, values, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    targets = [_target(t) for t in inputs]
    with values:
        captured = run(roots, values, keep_graph=keep, wanted=targets, accumulate=values.accumulate)
    results = []
    for index, (tensor, target) in enumerate(zip(inputs, targets, strict=True)):
        if target in captured:
            results.append(values.wrap(captured[target]))
        elif materialize_grads:
            results.append(tensor._zeros_like())
        elif allow_unused:
            results.append(None)
        else:
            raise GradRequired(
                f"The differentiated Tensor at index {index} appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
    return tuple(results)


def _target(tensor: Any) -> tuple[Any, int]:
    tensor._refresh()
    return (tensor, 0) if tensor._node is None else (tensor._node, tensor._slot)


def _roots(
    tensors: Sequence[Any], gradients: Sequence[Any] | None, values: Any, create_graph: bool
) -> list[tuple[Any, int, Any]]:
    if gradients is None:
        gradients = [None] * len(tensors)
    if len(gradients) != len(tensors):
        raise InvalidOperation(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    roots = []
    for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        gradient = _check_gradient(tensor, gradient, index)
        if not tensor.requires_grad:
            raise GradRequired(f"element {index} of tensors does not require grad and does not have a grad_fn")
        roots.append((*_target(tensor), values.seed(tensor, gradient)))
    return roots


def _check_gradient(tensor: Any, gradient: Any, index: int) -> Any:
    if gradient is None:
        if tensor.requires_grad and tensor.numel() != 1:
            raise GradRequired("grad can be implicitly created only for scalar outputs")
        return None
    if not hasattr(gradient, "_data"):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
    if gradient._data.shape != tensor._data.shape:
        raise ShapeMismatch(
            f"Mismatch in shape: grad_output[{index}] has a shape of {gradient.shape} and "
            f"output[{index}] has a shape of {tensor.shape}."
        )
    if not gradient.is_floating_point():
        raise DTypeMismatch(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{index}] has a dtype of {gradient.dtype} and output[{index}] "
            f"has a dtype of {tensor.dtype}."
        )
    return gradient


# Hooks -------------------------------------------------------------------------------------


class Handle:
    """What registering a hook returns; ``remove()`` takes the hook away."""

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Hooks(dict[int, Any]):
    """A tensor's hooks by registration order, and the tensor that retains its gradient, weakly."""

    retain: weakref.ref[Any] | None = None
    after: dict[int, Any] | None = None

    def add(self, hook: Any) -> Handle:
        """Append a hook."""
        key = max(self, default=-1) + 1
        self[key] = hook
        return Handle(self, key)

    def __bool__(self) -> bool:
        return True


def hooks_of(tensor: Any) -> Hooks:
    """The hooks of a tensor; a non-leaf's live on its node."""
    node = tensor.grad_fn
    if node is None:
        if tensor._hooks is None:
            tensor._hooks = Hooks()
        hooks: Hooks = tensor._hooks
        return hooks
    if node.hooks is None:
        node.hooks = {}
    found: Hooks = node.hooks.setdefault(tensor._slot, Hooks())
    return found


def add_hook(tensor: Any, hook: Callable[[Any], Any]) -> Handle:
    """Register ``hook`` on a tensor that requires grad."""
    return hooks_of(tensor).add(hook)


def add_after(tensor: Any, hook: Callable[[Any], Any]) -> Handle:
    """Call ``hook(tensor)`` once a leaf's gradient has been accumulated."""
    hooks = hooks_of(tensor)
    if hooks.after is None:
        hooks.after = {}
    key = max(hooks.after, default=-1) + 1
    hooks.after[key] = hook
    return Handle(hooks.after, key)


def move_retain(tensor: Any, node: Node, slot: int) -> None:
    """Let ``tensor``, which an in-place change gave a new node, retain its gradient there and no more at the old."""
    hooks = node.hooks.get(slot) if node.hooks else None
    if hooks is not None and hooks.retain is not None and hooks.retain() is tensor:
        hooks.retain = None
        add_retain(tensor)


def add_retain(tensor: Any) -> None:
    """Have the pass store the gradient of this non-leaf."""
    hooks_of(tensor).retain = weakref.ref(tensor)


def is_retained(tensor: Any) -> bool:
    """Whether ``add_retain`` was called for this tensor."""
    node: Node = tensor._node
    hooks = node.hooks.get(tensor._slot) if node.hooks else None
    return hooks is not None and hooks.retain is not None
