"""Has the engine report to the recorders, while a profile runs and not otherwise.

While at least one profile is active, the few functions through which everything executes are
replaced by ones that time themselves; with the last profile the engine's own return. So a profile
that is not there costs nothing. One on another thread costs an op the look-up of this thread's recorder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import autograd
from ..devices import ENGINE, DeviceTensor
from ..functional import batched
from ..replaced import Place, Replacements
from ..session import Session
from ..tensor import Tensor
from .recorder import Recorder, active

Function = Callable[..., Any]
UNTIMED = frozenset({"start_profile", "stop_profile", "begin_range", "end_range"})
"""What is about the profile itself."""


# What executes forward ---------------------------------------------------------------------------


def _execute(execute: Function) -> Function:
    """Of ``tensor.execute``: any other op, checked."""

    def timed(op: Any, datas: Any, *rest: Any) -> Any:
        recorder = active.recorder
        if recorder is None:
            return execute(op, datas, *rest)
        with recorder.range(f"aten::{op.name}", "op", datas):
            outs, hidden = execute(op, datas, *rest)
            recorder.allocated([*outs, *hidden], datas)
        return outs, hidden

    return timed


def _compose(compose: Function) -> Function:
    """Of ``tensor.compose``: an op that is made of others, which are ranges inside its own."""

    def timed(op: Any, inputs: Any, *rest: Any) -> Any:
        recorder = active.recorder
        if recorder is None:
            return compose(op, inputs, *rest)
        with recorder.range(f"aten::{op.name}", "op", inputs):
            return compose(op, inputs, *rest)

    return timed


def _write(write: Function) -> Function:
    """Of ``Tensor._write``: an op in place. It keeps no memory, and is one op, though it executes another."""

    def timed(self: Any, op: Any, inputs: Any, attrs: Any) -> None:
        recorder = active.recorder
        if recorder is None:
            write(self, op, inputs, attrs)
            return
        with recorder.range(f"aten::{op.name}_", "op", inputs):
            active.recorder = None
            try:
                write(self, op, inputs, attrs)
            finally:
                active.recorder = recorder

    return timed


def _verb(run_verb: Function) -> Function:
    """Of ``Session._run_verb``: an instruction that is no op, such as an upload, ``backward`` or ``sgd``."""

    def timed(self: Any, verb: Any, instruction: Any, *rest: Any) -> Any:
        recorder = active.recorder
        if recorder is None or instruction.op in UNTIMED:
            return run_verb(self, verb, instruction, *rest)
        with recorder.range(f"telegrad::{instruction.op}", "verb"):
            return run_verb(self, verb, instruction, *rest)

    return timed


# What executes backward --------------------------------------------------------------------------


def _run(run: Function) -> Function:
    """Of ``backward.run``: a pass, timed node by node."""

    def timed(roots: Any, values: Any, *, accumulate: Function, **options: Any) -> Any:
        recorder = active.recorder
        if recorder is not None:
            values = _timed_values(values, recorder)
            accumulate = _accumulate(accumulate, recorder)
        return run(roots, values, accumulate=accumulate, **options)

    return timed


def _accumulate(accumulate: Function, recorder: Recorder) -> Function:
    def timed(tensor: Any, grad: Any, private: bool) -> None:
        before = tensor._grad
        with recorder.range("torch::autograd::AccumulateGrad", "backward", [tensor]):
            accumulate(tensor, grad, private)
            if tensor._grad is not before:
                recorder.allocated([tensor._grad._data], [grad])

    return timed


def _timed_values(values: Any, recorder: Recorder) -> Any:
    kind: Any = type(values)
    timed = object.__new__(_timed_class(kind))
    timed.__dict__.update(values.__dict__)
    timed.recorder = recorder
    if values.raw:
        timed.F = _TimedKernels(values.F, recorder)
    return timed


@functools.cache
def _timed_class(kind: Callable[..., Any]) -> Any:
    """``kind`` of Values, the same but that it is timed."""

    class Timed(kind):  # type: ignore[misc,valid-type]
        recorder: Recorder

        @property
        def Pass(self) -> Any:
            return _timed_pass(super().Pass)

        def add(self, a: Any, b: Any, owned: bool) -> Any:
            total = super().add(a, b, owned)
            self.recorder.allocated([total], [a, b])
            return total

        def fit(self, grad: Any, *spec: Any) -> Any:
            fitted = super().fit(grad, *spec)
            self.recorder.allocated([fitted], [grad])
            return fitted

    return Timed


@functools.cache
def _timed_pass(kind: Callable[..., Any]) -> Any:
    """``kind`` of pass, the same but that each node is a range under its name."""

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
    """The plan with derivatives whose results are counted: most are written with operators, not kernels."""

    def counted(rule: Function) -> Function:
        def evaluate(F: Any, *arguments: Any) -> Any:
            result = rule(F, *arguments)
            recorder.allocated(result if isinstance(result, (tuple, list)) else [result], arguments)
            return result

        return evaluate

    return plan._replace(steps=tuple(step._replace(rule=counted(step.rule)) for step in plan.steps))


class _TimedKernels:
    """The namespace of derivative rules on raw arrays, each kernel a range."""

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


# Installing --------------------------------------------------------------------------------------

PLACES: tuple[Place, ...] = (
    (ENGINE, "execute", _execute),
    (ENGINE, "compose", _compose),
    (Tensor, "_write", _write),
    (DeviceTensor, "_write", _write),
    (autograd, "run", _run),
    (batched, "run", _run),
    (Session, "_run_verb", _verb),
)
_REPLACEMENTS = Replacements(PLACES)
install, uninstall = _REPLACEMENTS.install, _REPLACEMENTS.uninstall
