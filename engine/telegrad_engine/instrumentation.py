"""The base of what observes a thread: profiles, forward mode, hooks on saved tensors, checkpoints and anomaly mode.

``context.state.observer`` is the observer of the current thread, or None; ``context.observed_by`` adds one. While a
thread has an observer that ``sees_ops``, its fast paths (``tensor/elementwise_fast_path.py``, ``tensor/call_cache.py``)
step aside, so that the observer sees every op. Other threads are not affected (docs/decisions/0038).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Run = Callable[..., Any]
"""The function that performs a step."""


class Observer:
    """Sees what one thread executes, step by step. This class changes nothing.

    A subclass overrides the steps that it is about. It performs a step by calling the method of ``super()``, which goes
    on with the observer that was added before, and finally calls ``run``.
    """

    sees_ops: ClassVar[bool] = False
    """Whether it is about ``op``, ``in_place``, ``kernel`` or ``write``. If not, fast paths leave these steps out."""
    outer: Observer | None = None
    """The observer of this thread that was added before."""

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """An op on tensors, as it was called: it is checked, executed and recorded."""
        return run(op, inputs, attrs) if self.outer is None else self.outer.op(run, op, inputs, attrs)

    def in_place(self, run: Run, tensor: Any, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """An op in place, on any kind of tensor: the same, and ``tensor`` is written to."""
        outer = self.outer
        return run(tensor, op, inputs, attrs) if outer is None else outer.in_place(run, tensor, op, inputs, attrs)

    def kernel(self, run: Run, op: Any, arrays: Any, attrs: Any, xp: Any) -> Any:
        """The execution of an op on arrays. Returns its outputs, and those that are for the derivative alone."""
        return run(op, arrays, attrs, xp) if self.outer is None else self.outer.kernel(run, op, arrays, attrs, xp)

    def write(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> None:
        """The execution of an op in place: its kernel, and the copy into ``inputs[0]``."""
        if self.outer is None:
            run(op, inputs, attrs)
        else:
            self.outer.write(run, op, inputs, attrs)

    def function(self, run: Run, ctx: Any, args: tuple[Any, ...], separate: bool) -> Any:
        """The forward of a custom Function. Returns its outputs, which are in the graph."""
        return run(ctx, args, separate) if self.outer is None else self.outer.function(run, ctx, args, separate)

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """A node has just been recorded."""
        if self.outer is not None:
            self.outer.node(node, inputs, outputs)

    def tangent(self, tensor: Any) -> Any:
        """The tangent of a tensor, or None."""
        return None if self.outer is None else self.outer.tangent(tensor)

    def gradients(self, values: Any, tensor: Any) -> Any:
        """A pass from ``tensor`` that records nothing is to begin. Returns the ``Values`` that it computes with."""
        return values if self.outer is None else self.outer.gradients(values, tensor)

    def backward(self, values: Any, accumulate: Run) -> tuple[Any, Run]:
        """A pass begins. Returns the ``Values`` that it computes with, and what accumulates gradients."""
        return (values, accumulate) if self.outer is None else self.outer.backward(values, accumulate)

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """What a node saved was unpacked as tensors, for its derivatives."""
        if self.outer is not None:
            self.outer.unpacked(node, values)

    def unpacked_output(self, node: Any, output_nr: int, output: Any) -> None:
        """An output of its own that a custom Function saved was unpacked."""
        if self.outer is not None:
            self.outer.unpacked_output(node, output_nr, output)

    def verb(self, run: Run, verb: Any, instruction: Any, inputs: Any) -> Any:
        """An instruction of a program that is not an op, such as an upload, ``backward`` or ``sgd``."""
        return run(verb, instruction, inputs) if self.outer is None else self.outer.verb(run, verb, instruction, inputs)
