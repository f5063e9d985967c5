"""Many gradients of one graph in one pass: the rows of a Jacobian, ``grad(…, is_grads_batched=True)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...context import state
from ...errors import GradRequired, IndexOutOfRange, InvalidValue, ShapeMismatch
from ...graph import differentiation
from ...graph.backward_pass import run
from ...graph.node import Node, walk
from ...shapes import torch_size
from ...tensor.eager import ARRAYS, Tensor
from ...tensor.namespace import Functions
from .rows import BatchedValues

ELEMENTS = 2**18
"""The largest number of elements in a batch of the graph's largest array, so that batches fit into the CPU cache."""


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
    is_grads_batched: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``, without changing ``.grad``.

    The result has one tensor per input, of its shape and dtype. For an unused input it is None with ``allow_unused``,
    or zeros with ``materialize_grads``. With ``is_grads_batched``, the ``grad_outputs`` and the results have a leading
    dimension of rows.
    """
    if not is_grads_batched:
        return differentiation.grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )
    outs, ins, rows, _ = differentiation.check_grad(
        outputs, inputs, grad_outputs, False, allow_unused, materialize_grads
    )
    return grad_rows(outs, ins, rows, retain_graph, create_graph, allow_unused, materialize_grads)


def grad_rows(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    grad_outputs: Sequence[Any],
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    """Compute ``autograd.grad`` for ``grad_outputs`` with a leading dimension of rows, which the results have too.

    Raises torch's errors if that dimension is missing or differs between them.
    """
    count = check_rows(outputs, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph or not _serves(outputs, inputs):
        results = _one_by_one(outputs, inputs, grad_outputs, count, keep, create_graph)
    else:
        results = _in_batches(outputs, inputs, [g._data for g in grad_outputs], count, keep)
    for index, (tensor, result) in enumerate(zip(inputs, results, strict=True)):
        if result is None and materialize_grads:
            results[index] = tensor._zeros_like().requires_grad_(create_graph)
        elif result is None and not allow_unused:
            raise differentiation.unused(index)
    return tuple(results)


def rows(output: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """Return, for each input, the gradients of each element of ``output``: (elements, *input.shape), or None if unused.

    The graph is kept. Returns None if the rows must be computed one by one.
    """
    if not _serves([output], inputs):
        return None
    count = output.numel()
    seeds = np.eye(count, dtype=output._data.dtype).reshape(count, *output._data.shape)
    return _in_batches([output], inputs, [seeds], count, True)


def _serves(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether the batched pass gives the same results as a pass for each row.

    It works on NumPy arrays only. Hooks, a Function's backward and anomaly mode expect gradients of a single row.
    """
    return (
        outputs[0]._values(False) is ARRAYS
        and state.anomaly is None
        and not any(tensor._hooks for tensor in inputs)
        and not any(node.hooks is not None or node.evaluate is not None for node in _nodes(outputs))
    )


def _nodes(outputs: Sequence[Any]) -> set[Node]:
    roots = [output.grad_fn for output in outputs]
    return {node for root in roots if root is not None for node in walk(root)}


def check_rows(outputs: Sequence[Any], grad_outputs: Sequence[Any]) -> int:
    """Return the number of rows of the gradients. Raises unless all have the same number and the outputs' shapes."""
    sizes = []
    for index, (output, gradient) in enumerate(zip(outputs, grad_outputs, strict=True)):
        if gradient is None:
            raise GradRequired("grad can be implicitly created only for scalar outputs")
        if not gradient.shape:
            raise IndexOutOfRange(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                "convert a 0-dim tensor to a number"
            )
        if gradient.shape[1:] != output.shape:
            raise ShapeMismatch(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{index}] has a shape of "
                f"{torch_size(gradient.shape[2:])} and output[{index}] has a shape of {torch_size(output.shape)}. If "
                "you only want some tensors in `grad_output` to be considered batched, consider using vmap."
            )
        sizes.append(gradient.shape[0])
    if len(set(sizes)) > 1:
        raise InvalidValue(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    if not sizes[0]:
        raise IndexOutOfRange("index 0 is out of bounds for dimension 0 with size 0")
    return int(sizes[0])


def _one_by_one(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool, create_graph: bool
) -> list[Any]:
    """Compute each row in a pass of its own."""
    found = [
        differentiation.grad(
            outputs, inputs, [s[i] for s in seeds], keep or i + 1 < count, create_graph, allow_unused=True
        )
        for i in range(count)
    ]
    stack = Functions(type(outputs[0])._apply).stack
    return [None if row[0] is None else stack(list(row)) for row in zip(*found, strict=True)]


def _in_batches(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool
) -> list[Any]:
    """Compute the rows in batches of at most ``ELEMENTS`` elements of the largest array."""
    places = [differentiation.place(t) for t in outputs]
    wanted = [differentiation.place(t) for t in inputs]
    size = max(1, min(count, ELEMENTS // _largest(outputs)))
    parts: list[list[Any]] = [[] for _ in inputs]
    for start in range(0, count, size):
        some = min(size, count - start)
        values = BatchedValues(some)
        roots = [(*place, seed[start : start + some]) for place, seed in zip(places, seeds, strict=True)]
        with values:
            captured = run(
                roots, values, keep_graph=keep or start + some < count, wanted=wanted, accumulate=values.accumulate
            )
        for part, place in zip(parts, wanted, strict=True):
            part.append(captured.get(place))
    return [None if part[0] is None else Tensor(_whole(part)) for part in parts]


def _largest(outputs: Sequence[Any]) -> int:
    """Return the number of elements of the largest result in the graph."""
    return max([1, *(math.prod(node.shape) for node in _nodes(outputs))])


def _whole(parts: list[Any]) -> Any:
    """Return the rows of all batches in one new array."""
    return np.array(parts[0]) if len(parts) == 1 else np.concatenate(parts)
