"""Nodes that only a whole backward pass may go through: those of checkpoints with reentrance, as in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.autograd.checkpoint import WHOLE_ONLY
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.differentiation import place
from telegrad_engine.graph.node import walk

from ..tape.recorder import Recorder
from ..tensor.handle import Tensor


def mark(results: Sequence[Any]) -> None:
    """Have no pass for chosen inputs go through the nodes that made these tensors."""
    for result in results:
        if isinstance(result, Tensor) and result.grad_fn is not None:
            result._recorder.whole.add(result.grad_fn)


def check(recorder: Recorder, roots: Sequence[Tensor], inputs: Tensor | Sequence[Tensor]) -> None:
    """Raise InvalidOperation if such a node is between the roots and the inputs."""
    ends = {place(t)[0] for t in ([inputs] if isinstance(inputs, Tensor) else inputs)}
    for root in roots:
        for node in walk(root.grad_fn) if root.grad_fn is not None else ():
            if node in recorder.whole and any(not ends.isdisjoint(reached.next) for reached in walk(node)):
                raise InvalidOperation(WHOLE_ONLY)
