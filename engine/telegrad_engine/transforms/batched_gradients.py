"""Many gradients of one graph in one pass: the rows of a Jacobian, ``grad(…, is_grads_batched=True)``.

The pass of one row runs once, on all rows, as ``vmap`` maps a function (:mod:`.vmap`): gradients have a hidden
dimension of rows, which saved values do not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ..context import below, observed_by, state
from ..errors import GradRequired, IndexOutOfRange, InvalidValue, ShapeMismatch
from ..graph import differentiation
from ..graph.backward_pass import run
from ..graph.node import Node, walk
from ..instrumentation import Run
from ..schema.op import Op
from ..shapes import torch_size
from ..tensor.abstract import Meta
from ..tensor.eager import Tensor
from ..tensor.gradient_values import GraphValues
from ..tensor.namespace import Functions
from .vmap import BatchedTensor, Level

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
    dimension of rows, and torch's errors are raised if it is missing or differs between them.
    """
    if not is_grads_batched:
        return differentiation.grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )
    outputs, inputs, grad_outputs, _ = differentiation.check_grad(
        outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads
    )
    count = check_rows(outputs, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if rows_are_alike(outputs, inputs):
        results = _in_batches(outputs, inputs, grad_outputs, count, keep, create_graph)
    else:
        results = one_by_one(outputs, inputs, grad_outputs, count, keep, create_graph, allow_unused=True)
    return differentiation.completed(inputs, results, create_graph, allow_unused, materialize_grads)


def tracked_gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], **options: Any
) -> Sequence[Any]:
    """Return the gradients of the outputs that have a history; None for an input that none of them depends on.

    There is a seed for each output, which may be None; so may an output.
    """
    tracked = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o is not None and o.requires_grad]
    if not tracked:
        return [None] * len(inputs)
    roots, grads = zip(*tracked, strict=True)
    found: Sequence[Any] = type(roots[0])._autograd().grad(roots, inputs, grads, allow_unused=True, **options)
    return found


def basis_rows(
    output: Any,
    inputs: Sequence[Any],
    create_graph: bool,
    chunk_size: int | None = None,
    levels: int = 0,
) -> list[Any]:
    """Return, for each input, the gradients of each element of ``output``: (elements, *input.shape), or None if unused.

    The graph is kept. At most ``chunk_size`` rows are computed together. The
    first ``levels`` dimensions of ``output`` are batches of ``vmap``: each row has a gradient for every sample.
    """
    F, shape = _functions_of(type(output)._apply), tuple(output.shape)[levels:]
    grad = type(output)._autograd().grad
    count = math.prod(shape)
    options = {"retain_graph": True, "create_graph": create_graph, "allow_unused": True}
    if count == 1:
        found = grad((output,), inputs, (F.ones_like(output),), **options)
        return [None if row is None else row.unsqueeze(0) for row in found]
    basis, parts = F.eye(count, dtype=output.dtype), []
    for start in range(0, count, chunk_size or count):
        size = min(chunk_size or count, count - start)
        seeds = basis if size == count else basis.narrow(0, start, size)
        seeds = seeds.reshape((size, *(1,) * levels, *shape))
        seeds = seeds.expand((size, *output.shape)) if levels else seeds
        parts.append(grad((output,), inputs, (seeds,), is_grads_batched=True, **options))
    return [
        None if part[0] is None else part[0] if len(part) == 1 else F.cat(list(part))
        for part in zip(*parts, strict=True)
    ]


_functions_of = cache(Functions)


def rows_are_alike(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether one pass gives the gradients that a pass for each row would give.

    Hooks, a Function's backward and anomaly mode expect gradients of a single row; other devices have no batches.
    """
    return (
        outputs[0]._graph_class in (Tensor, Meta)
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


def one_by_one(
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    seeds: Sequence[Any],
    count: int,
    keep: bool,
    create_graph: bool,
    **options: Any,
) -> list[Any]:
    """Compute each row in a pass of its own, by ``grad`` with these options."""
    grad = type(outputs[0])._autograd().grad
    found = [
        grad(outputs, inputs, [s[i] for s in seeds], keep or i + 1 < count, create_graph, **options)
        for i in range(count)
    ]
    stack = _functions_of(type(outputs[0])._apply).stack
    return [None if row[0] is None else stack(list(row)) for row in zip(*found, strict=True)]


def _in_batches(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool, create_graph: bool
) -> list[Any]:
    """Compute the rows in batches of at most ``ELEMENTS`` elements of the largest array."""
    size = max(1, min(count, ELEMENTS // _largest(outputs)))
    parts = []
    for start in range(0, count, size):
        some = min(size, count - start)
        batch = seeds if some == count else [seed.narrow(0, start, some) for seed in seeds]
        parts.append(_batch(outputs, inputs, batch, some, keep or start + some < count, create_graph))
    cat = _functions_of(type(outputs[0])._graph_class._apply).cat
    return [
        None if part[0] is None else part[0] if len(part) == 1 else cat(list(part)) for part in zip(*parts, strict=True)
    ]


def _batch(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], count: int, keep: bool, create_graph: bool
) -> list[Any]:
    """Compute all rows of ``seeds``: the pass of one row, as ``vmap`` maps it over the rows."""
    cls = type(outputs[0])._graph_class
    level, values = _rows_of(cls)(count), GraphValues(cls, create_graph)
    roots = [(*differentiation.place(t), level.sample(seed)) for t, seed in zip(outputs, seeds, strict=True)]
    wanted = [differentiation.place(t) for t in inputs]
    with values, _without_casts(), observed_by(level):
        captured = run(roots, values, keep_graph=keep, wanted=wanted, accumulate=values.accumulate)
        return [level.lift(captured[place]) if place in captured else None for place in wanted]


class Rows(Level):
    """A batch of gradients, each of which is a row."""

    sees_meta = True

    def op(self, run: Run, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply an op to all rows. Transforms of the caller's ops do not concern those of a pass."""
        if self.owns_any(inputs):
            return super().op(run, op, inputs, attrs)
        with below(self):
            return self.F._apply(op, inputs, attrs)

    def note_loop(self, name: str) -> None:
        """Say nothing: which ops a derivative consists of is not the caller's choice."""


@cache
def _rows_of(cls: type[Any]) -> type[Rows]:
    """Return the class of batches of gradients that are tensors of class ``cls``."""
    row = type("Row", (BatchedTensor, cls), {})
    return type("Rows", (Rows,), {"sample_class": row, "F": _functions_of(cls._apply)})


@contextmanager
def _without_casts() -> Iterator[None]:
    """Within the block, compute in the dtypes of the gradients, as a pass does."""
    before, state.autocast = state.autocast, None
    try:
        yield
    finally:
        state.autocast = before


def _largest(outputs: Sequence[Any]) -> int:
    """Return the number of elements of the largest result in the graph."""
    return max([1, *(math.prod(node.shape) for node in _nodes(outputs))])
