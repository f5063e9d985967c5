"""The engine's level of forward mode: the observer of a thread."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...context import generator, observe, state, stop_observing
from ...graph.backward_pass import Values
from ...graph.node import Node
from ...instrumentation import Observer, Run
from ...tensor.gradient_values import GraphValues
from ..custom_function.ctx import is_tensor
from .level import Execute, Level
from .push import push, push_function, push_in_place, transposed


class ForwardMode(Observer, Level):
    """Pushes tangents through each operation, and restores those of saved tensors."""

    sees_ops = True

    def __init__(self, switch: Any) -> None:
        super().__init__(switch)
        self._saved: weakref.WeakKeyDictionary[Node, Mapping[int, Any]] = weakref.WeakKeyDictionary()
        self._suspended = 0

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Observe this thread inside the block."""
        observe(self)
        try:
            yield
        finally:
            stop_observing(self)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Return a context in which tensors have no tangents."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1

    @property
    def is_suspended(self) -> bool:
        """Whether tensors currently have no tangents."""
        return self._suspended > 0

    def end(self) -> None:
        """Discard all tangents."""
        super().end()
        self._saved.clear()

    # Operations ---------------------------------------------------------------------------

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Execute an op, and set the tangents of its results."""
        execute = super().op
        if not self.has_tangents(inputs):
            return execute(run, op, inputs, attrs)
        if state.autocast is not None:
            op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
        if op.composite:
            return execute(run, op, inputs, attrs)
        return push(self, lambda *call: execute(run, *call), op, inputs, attrs)

    def in_place(self, run: Run, tensor: Any, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Execute an op in place, and update the tensor's tangent."""
        change = super().in_place
        if op.composite or not self.has_tangents(inputs):
            return change(run, tensor, op, inputs, attrs)
        return push_in_place(self, lambda *call: change(run, *call), tensor, op, inputs, attrs)

    def function(self, run: Run, ctx: Any, args: tuple[Any, ...], separate: bool) -> Any:
        """Run a custom Function's forward without tangents, and push the tangents by its ``jvp``."""
        enter = super().function
        if not self.has_tangents(args):
            return enter(run, ctx, args, separate)
        return push_function(self, lambda: enter(run, ctx, args, separate))

    def pushed(
        self, execute: Execute, op: Any, inputs: tuple[Any, ...], attrs: Any, tangents: Sequence[Any]
    ) -> tuple[Sequence[Any], Any]:
        """Compute the tangents on stand-ins for the inputs, so that the graph of the results does not show it."""
        before = copy.deepcopy(generator()) if op.random else None
        found = transposed(execute, op, inputs, attrs, tangents)
        if before is not None:
            state.generator = before  # the op draws the same numbers
        return found, None

    def tangent(self, tensor: Any) -> Any:
        """Return the current tangent of a tensor, or None."""
        return self.of(tensor) if self.enabled else None

    # Gradients ----------------------------------------------------------------------------

    def gradients(self, values: Any, tensor: Any) -> Any:
        """Return Values whose gradients are tensors if tangents are enabled, because gradients have tangents too."""
        return super().gradients(DualValues(tensor) if self.enabled else values, tensor)

    def remember(self, outputs: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Store the tangents of a node's saved inputs and results."""
        node = outputs[0]._node if outputs else None
        if node is None:
            return
        found: dict[int, Any] = {}
        for position, (source, key) in enumerate(node.plan.saves):
            tangent = tangents[key] if source == "input" else results[key] if source == "output" else None
            if tangent is not None:
                found[position] = tangent
        if found:
            self._saved[node] = found

    def remember_outputs(self, node: Node | None, tangents: Sequence[Any]) -> None:
        """Store the tangents of a Function's outputs, which it may have saved."""
        if node is not None:
            self._saved[node] = {nr: tangent for nr, tangent in enumerate(tangents) if tangent is not None}

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """Restore the tangents of saved tensors."""
        if self.enabled:
            for position, tangent in self._saved.get(node, {}).items():
                value = values[position]
                for tensor, own in zip(value, tangent, strict=True) if isinstance(value, list) else [(value, tangent)]:
                    if own is not None and is_tensor(tensor):
                        self.give(tensor, own)
        super().unpacked(node, values)

    def unpacked_output(self, node: Node | None, output_nr: int, output: Any) -> None:
        """Restore the tangent of an output that a custom Function saved."""
        tangent = self._saved.get(node, {}).get(output_nr) if self.enabled and node is not None else None
        if tangent is not None:
            self.give(output, tangent)
        super().unpacked_output(node, output_nr, output)


class DualValues(GraphValues):
    """Gradients as tensors that are not recorded, but have tangents. ``.grad`` gets values without tangents."""

    def __init__(self, like: Any) -> None:
        super().__init__(like._graph_class, recording=False)

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` as a pass on arrays does."""
        values: Values = tensor._array_values()
        values.accumulate(tensor, grad._data, False)
