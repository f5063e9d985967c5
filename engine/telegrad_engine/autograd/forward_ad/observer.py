"""The observer that computes the tangents of results on a thread that has entered a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.backward_pass import Values
from ...graph.node import Node
from ...instrumentation import Observer, Run
from ...tensor.gradient_values import GraphValues
from .level import Level, tangent_of
from .push import push, push_function, push_inplace


class ForwardMode(Observer):
    """Pushes the tangents of one level through each operation, and restores those of saved tensors."""

    sees_ops = True

    def __init__(self, level: Level) -> None:
        self._level = level

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Execute an op, and set the tangents of its results."""
        execute = super().op
        if not self._level.enabled or not self._level.concerns(inputs):
            return execute(run, op, inputs, attrs)
        return push(self._level, lambda *call: execute(run, *call), op, inputs, attrs)

    def in_place(self, run: Run, tensor: Any, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Execute an op in place, and update the tensor's tangent."""
        change = super().in_place
        if not self._level.enabled or op.composite or not self._level.concerns(inputs):
            return change(run, tensor, op, inputs, attrs)
        return push_inplace(self._level, lambda *call: change(run, *call), tensor, op, inputs, attrs)

    def function(self, run: Run, ctx: Any, args: tuple[Any, ...], separate: bool) -> Any:
        """Run a custom Function's forward without tangents, and push the tangents by its ``jvp``."""
        if not self._level.enabled or not self._level.concerns(args):
            return super().function(run, ctx, args, separate)
        with self._level.suspended():
            entry = super().function(run, ctx, args, separate)
        push_function(self._level, entry)
        return entry

    def tangent(self, tensor: Any) -> Any:
        """Return the current tangent of a tensor, or None."""
        return tangent_of(tensor)

    def gradients(self, values: Any, tensor: Any) -> Any:
        """Return Values whose gradients are tensors if tangents are enabled, because gradients have tangents too."""
        return super().gradients(DualValues(tensor) if self._level.enabled else values, tensor)

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """Restore the tangents of saved tensors."""
        if self._level.enabled:
            self._level.restore(node, values)
        super().unpacked(node, values)

    def unpacked_output(self, node: Node, output_nr: int, output: Any) -> None:
        """Restore the tangent of an output that a custom Function saved."""
        if self._level.enabled:
            self._level.restore_output(node, output_nr, output)
        super().unpacked_output(node, output_nr, output)


class DualValues(GraphValues):
    """Gradients as tensors that are not recorded, but have tangents. ``.grad`` gets values without tangents."""

    def __init__(self, like: Any) -> None:
        super().__init__(like._graph_class, recording=False)

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` as a pass on arrays does."""
        values: Values = tensor._array_values()
        values.accumulate(tensor, grad._data, False)
