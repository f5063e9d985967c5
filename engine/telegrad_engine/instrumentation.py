"""The base class for observers of a thread: transforms, the profiler, checkpoints and anomaly mode.

``context.state.observer`` is the observer of the current thread, or None; ``context.observed_by`` adds one. While a
thread has an observer with ``sees_ops``, no call is a prepared one (``tensor/call_cache.py``), so that the observer
sees every op. Other threads are not affected (docs/decisions/0038). The SDK's transforms, such as ``vmap``, observe the
ops that it records (docs/decisions/0032); the programs of a session in the same thread have observers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

Run = Callable[..., Any]
"""The function that performs a step."""


class Observer:
    """Observes the steps that one thread executes. This base class has no effect.

    A subclass overrides the methods of the steps that it observes. It performs a step by calling the method of
    ``super()``, which calls the observer that was added before, and finally ``run``.
    """

    sees_ops: ClassVar[bool] = False
    """Whether it observes ``op``, ``in_place``, ``kernel`` or ``write``, which fast paths otherwise skip."""
    sees_meta: ClassVar[bool] = False
    """Whether it observes the ops on tensors without values too, if it was added last."""
    outer: Observer | None = None
    """The observer of this thread that was added before."""

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """A call of an op on tensors: it is checked, executed and recorded."""
        return run(op, inputs, attrs) if self.outer is None else self.outer.op(run, op, inputs, attrs)

    def in_place(self, run: Run, tensor: Any, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """A call of an in-place op, which writes to ``tensor``: it is checked, executed and recorded."""
        outer = self.outer
        return run(tensor, op, inputs, attrs) if outer is None else outer.in_place(run, tensor, op, inputs, attrs)

    def kernel(self, run: Run, op: Any, arrays: Any, attrs: Any, xp: Any) -> Any:
        """The execution of an op on arrays. Returns its outputs, and its hidden outputs for the derivative."""
        return run(op, arrays, attrs, xp) if self.outer is None else self.outer.kernel(run, op, arrays, attrs, xp)

    def write(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> None:
        """The execution of an in-place op: its kernel, and the copy into ``inputs[0]``."""
        if self.outer is None:
            run(op, inputs, attrs)
        else:
            self.outer.write(run, op, inputs, attrs)

    def function(self, run: Run, ctx: Any, args: tuple[Any, ...], separate: bool) -> Any:
        """The forward of a custom Function. Returns its outputs, after they were recorded."""
        return run(ctx, args, separate) if self.outer is None else self.outer.function(run, ctx, args, separate)

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Called after a node was recorded."""
        if self.outer is not None:
            self.outer.node(node, inputs, outputs)

    def tangent(self, tensor: Any) -> Any:
        """The tangent of a tensor, or None."""
        return None if self.outer is None else self.outer.tangent(tensor)

    def grad(self, run: Run, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """A call of the SDK's ``autograd.grad``."""
        if self.outer is None:
            return run(outputs, inputs, grad_outputs, **options)
        return self.outer.grad(run, outputs, inputs, grad_outputs, options)

    def gradients(self, values: Any, tensor: Any) -> Any:
        """Called before a pass from ``tensor`` without ``create_graph``. Returns the ``Values`` of the pass."""
        return values if self.outer is None else self.outer.gradients(values, tensor)

    def backward(self, values: Any, accumulate: Run) -> tuple[Any, Run]:
        """Called when a pass begins. Returns the ``Values`` and the ``accumulate`` function of the pass."""
        return (values, accumulate) if self.outer is None else self.outer.backward(values, accumulate)

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """Called after a node's saved values were unpacked as tensors for its derivatives."""
        if self.outer is not None:
            self.outer.unpacked(node, values)

    def unpacked_output(self, node: Any, output_nr: int, output: Any) -> None:
        """Called after an output that a custom Function saved was unpacked."""
        if self.outer is not None:
            self.outer.unpacked_output(node, output_nr, output)

    def verb(self, run: Run, verb: Any, instruction: Any, inputs: Any) -> Any:
        """An instruction of a program that is not an op, such as an upload, ``backward`` or ``sgd``."""
        return run(verb, instruction, inputs) if self.outer is None else self.outer.verb(run, verb, instruction, inputs)
