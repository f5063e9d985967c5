"""Loops that depend on values: ``while_loop`` and ``scan``, each one instruction of a traced function.

Outside of tracing they are Python loops on tensors, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad_engine.errors import LimitExceeded
from telegrad_engine.program.registered_functions.limits import MAX_ITERATIONS
from telegrad_engine.transforms.tangents import as_tuple

from ..tape.thread_state import active
from ..tensor.handle import Tensor, functions
from .traced_tensor import Traced, refusal
from .tracer import Data, Tracer


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    *,
    max_iterations: int = MAX_ITERATIONS,
) -> tuple[Any, ...]:
    """Repeat ``carried = body_fn(*carried)`` while ``cond_fn(*carried)``, a tensor of one element, is true.

    ``body_fn`` returns as many tensors as it takes, of the same shapes and dtypes. Raises LimitExceeded after
    ``max_iterations``.
    """
    carried, tracer = tuple(carried_inputs), active.tracer
    if tracer is not None:
        attrs = {
            "cond": _block(tracer, cond_fn, carried, 1),
            "body": _block(tracer, body_fn, carried, len(carried)),
            "max_iterations": max_iterations,
        }
        return tuple(tracer.record("while_loop", [carried], attrs, len(carried)))
    for _ in range(max_iterations):
        if not cond_fn(*carried):
            return carried
        carried = as_tuple(body_fn(*carried))
    raise LimitExceeded(f"a while_loop did not end after {max_iterations} iterations")


def scan(body_fn: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any]) -> tuple[Any, ...]:
    """Run ``body_fn(*carried, *slices)`` for each slice of ``xs`` along their first dimension, in order.

    ``body_fn`` returns the carried tensors, as many as ``init`` has, and optionally more, which are stacked. Returns
    the last carried tensors and the stacks.
    """
    carried, sequences, tracer = tuple(init), tuple(xs), active.tracer
    if tracer is not None:
        block = _block(tracer, body_fn, (*carried, *sequences), None)
        return tuple(tracer.record("scan", [carried, sequences], {"body": block}, len(block["outputs"])))
    rows = []
    for slices in zip(*[x.unbind(0) for x in sequences], strict=True):
        results = as_tuple(body_fn(*carried, *slices))
        carried = results[: len(carried)]
        rows.append(results[len(carried) :])
    return (*carried, *[functions.stack(column) for column in zip(*rows, strict=True)])


def _block(tracer: Tracer, code: Callable[..., Any], like: Sequence[Any], outputs: int | None) -> Data:
    """The program of one iteration of a loop, which may use outer tensors."""
    inputs = [Traced(tracer, tracer.new_id()) for _ in like]
    questions = len(tracer.asked)
    tracer.segments.append([])
    results = as_tuple(code(*inputs))
    if len(tracer.asked) > questions:
        raise refusal("a loop that is traced cannot branch in Python; use tg.where in it")
    if not all(isinstance(r, Tensor) for r in results) or (outputs is not None and len(results) != outputs):
        raise refusal(f"the code of this loop returns {outputs or 'some'} tensors")
    return {
        "inputs": [t._id for t in inputs],
        "instructions": tracer.segments.pop(),
        "outputs": [r._id for r in results],
    }


__all__ = ["scan", "while_loop"]
