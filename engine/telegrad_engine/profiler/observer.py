"""The observer that reports a thread's operations to a profile's recorder."""

from __future__ import annotations

import functools
from collections.abc import Callable
from copy import copy
from typing import Any

from ..instrumentation import Observer, Run
from .recorder import Recorder

Function = Callable[..., Any]
UNTIMED = frozenset({"start_profile", "stop_profile", "begin_range", "end_range"})
"""Verbs that control the profile itself and are not timed."""


class Timing(Observer):
    """Records a range for each op, in-place op, verb and node of a backward pass."""

    sees_ops = True

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.resting = False
        """Whether reporting is suspended: while another profile runs inside this one, or inside an in-place op."""

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Record a composite op, whose inner ops are nested ranges; ``kernel`` records any other op."""
        if self.resting or not op.composite:
            return super().op(run, op, inputs, attrs)
        with self.recorder.range(f"aten::{op.name}", "op", inputs):
            return super().op(run, op, inputs, attrs)

    def kernel(self, run: Run, op: Any, arrays: Any, attrs: Any, xp: Any) -> Any:
        """Record the execution of an op's kernel."""
        if self.resting:
            return super().kernel(run, op, arrays, attrs, xp)
        with self.recorder.range(f"aten::{op.name}", "op", arrays):
            outputs, hidden = super().kernel(run, op, arrays, attrs, xp)
            self.recorder.allocated([*outputs, *hidden], arrays)
        return outputs, hidden

    def write(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> None:
        """Record an in-place op as one range without memory, although it executes another op."""
        if self.resting:
            super().write(run, op, inputs, attrs)
            return
        with self.recorder.range(f"aten::{op.name}_", "op", inputs):
            self.resting = True
            try:
                super().write(run, op, inputs, attrs)
            finally:
                self.resting = False

    def verb(self, run: Run, verb: Any, instruction: Any, inputs: Any) -> Any:
        """Record an instruction that is not an op."""
        if self.resting or instruction.op in UNTIMED:
            return super().verb(run, verb, instruction, inputs)
        with self.recorder.range(f"telegrad::{instruction.op}", "verb"):
            return super().verb(run, verb, instruction, inputs)

    def backward(self, values: Any, accumulate: Run) -> tuple[Any, Run]:
        """Time a backward pass node by node."""
        if not self.resting:
            values, accumulate = _timed_values(values, self.recorder), _accumulate(accumulate, self.recorder)
        return super().backward(values, accumulate)


# Backward passes ---------------------------------------------------------------------------------


def _accumulate(accumulate: Function, recorder: Recorder) -> Function:
    def timed(tensor: Any, grad: Any, may_mutate: bool) -> None:
        before = tensor._grad
        with recorder.range("torch::autograd::AccumulateGrad", "backward", [tensor]):
            accumulate(tensor, grad, may_mutate)
            if tensor._grad is not before:
                recorder.allocated([tensor._grad._data], [grad])

    return timed


def _timed_values(values: Any, recorder: Recorder) -> Any:
    kind: Any = type(values)
    timed = copy(values)
    timed.__class__ = _timed_class(kind)
    timed.recorder = recorder
    if values.raw:
        timed.F = _TimedKernels(values.F, recorder)
    return timed


@functools.cache
def _timed_class(kind: Callable[..., Any]) -> Any:
    """A timed subclass of the Values class ``kind``."""

    class Timed(kind):  # type: ignore[misc,valid-type]
        recorder: Recorder

        @property
        def Pass(self) -> Any:
            return _timed_pass(super().Pass)

        def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
            total = super().add(a, b, may_mutate)
            self.recorder.allocated([total], [a, b])
            return total

        def unbroadcast(self, grad: Any, *spec: Any) -> Any:
            fitted = super().unbroadcast(grad, *spec)
            self.recorder.allocated([fitted], [grad])
            return fitted

    return Timed


@functools.cache
def _timed_pass(kind: Callable[..., Any]) -> Any:
    """A subclass of the pass class ``kind`` that records a range for each node, named after the node."""

    class Timed(kind):  # type: ignore[misc,valid-type]
        def _evaluate(self, node: Any, grad: Any) -> None:
            recorder = self.values.recorder
            with recorder.range(node.name(), "backward", list(grad) if node.many else [grad]):
                plan = getattr(node, "plan", None)
                if not recorder.memory or not self.values.raw or plan is None:
                    super()._evaluate(node, grad)
                    return
                node.plan = _counting(plan, recorder)
                try:
                    super()._evaluate(node, grad)
                finally:
                    node.plan = plan

    return Timed


def _counting(plan: Any, recorder: Recorder) -> Any:
    """Return the plan with derivative rules whose results are counted: most use operators, not kernels."""

    def counted(rule: Function) -> Function:
        def evaluate(F: Any, *arguments: Any) -> Any:
            result = rule(F, *arguments)
            recorder.allocated(result if isinstance(result, (tuple, list)) else [result], arguments)
            return result

        return evaluate

    return plan._replace(steps=tuple(step._replace(rule=counted(step.rule)) for step in plan.steps))


class _TimedKernels:
    """The namespace of derivative rules on raw arrays, with a range for each kernel call."""

    def __init__(self, functions: Any, recorder: Recorder) -> None:
        self._functions = functions
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._functions, name)
        if not callable(found):
            return found
        recorder = self._recorder

        def timed(*args: Any, **kwargs: Any) -> Any:
            with recorder.range(f"aten::{name}", "op", args):
                result = found(*args, **kwargs)
                recorder.allocated(result if isinstance(result, (tuple, list)) else [result], args)
            return result

        setattr(self, name, timed)
        return timed
