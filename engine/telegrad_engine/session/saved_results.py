"""Selective checkpointing: results that a checkpoint saves instead of recomputing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..context import state
from ..errors import InvalidOperation
from ..graph.node import Node, record
from ..graph.saved_tensor_hooks import Packed
from ..program.instructions import Instruction
from ..schema.op import Op
from ..tensor.abstract import unwrap

MUTATED = "Tensor cached during selective activation checkpoint has been mutated"


class SavedResults:
    """The results of one instruction: its outputs, and the hidden outputs that its derivative needs."""

    def __init__(self, op: Op, outputs: Sequence[Any], packed: Mapping[int, Any], allow_mutation: bool) -> None:
        self._op = op
        self._outputs = [tensor.detach() for tensor in outputs]
        self._versions = [tensor._version for tensor in outputs]
        self._hidden = _hidden_values(op, outputs[0]._node, packed)
        self._allow_mutation = allow_mutation

    def replayed(self, instruction: Instruction) -> Instruction:
        """Return the instruction with these results in place of its computation.

        If they were modified in place, return the instruction itself if that is allowed, else raise InvalidOperation.
        """
        if any(t._version != before for t, before in zip(self._outputs, self._versions, strict=True)):
            if self._allow_mutation:
                return instruction
            raise InvalidOperation(MUTATED)
        parts = instruction.op, instruction.inputs, instruction.outputs, instruction.attrs, instruction.grad_mode
        replayed = Instruction(*parts, checked=True)
        replayed.call = lambda *inputs: self._record(inputs, instruction.attrs)
        return replayed

    def _record(self, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs, recorded in the graph as if the op had just computed them."""
        arguments = self._op.check_inputs(inputs)
        outputs = [tensor._new_like(tensor._data) for tensor in self._outputs]
        if state.grad_enabled and unwrap(arguments)[1] and self._op.differentiable:
            record(self._op, attrs, arguments, outputs, self._hidden)
        return outputs


def can_save(op: Op) -> bool:
    """Return whether an op's results can be saved: a view has none, and a random op must advance the generator."""
    return not (op.composite or op.view or op.random)


def _hidden_values(op: Op, node: Node | None, packed: Mapping[int, Any]) -> list[Any]:
    """Return the hidden outputs that the node saved, else None; ``packed`` has its saved values by number."""
    values: list[Any] = [None] * len(op.hidden)
    for value, save in zip(node.saved, node.plan.saves, strict=True) if node is not None else ():
        if save.source == "hidden":
            values[save.key] = packed[value.kept] if isinstance(value, Packed) else value
    return values
