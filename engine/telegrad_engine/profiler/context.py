"""``profile`` and ``record_function``: the profiler's user API."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from typing import Any, Self, TypeVar

from ..context import observe, observer_of, stop_observing
from ..errors import InvalidOperation
from ..instrumentation import Observer, Run
from .readings import Readings
from .recorder import FunctionEvent, Recorder

_F = TypeVar("_F", bound=Callable[..., Any])


class ProfilerActivity(Enum):
    """The activity that is timed: CPU work only.

    Examples:
        >>> tg.profiler.ProfilerActivity.CPU.name
        'CPU'
    """

    CPU = 0


def check_activities(activities: Iterable[ProfilerActivity] | None) -> None:
    """Raise AssertionError, as torch does, for an empty or invalid collection of activities."""
    chosen = {ProfilerActivity.CPU} if activities is None else set(activities)
    assert chosen and all(isinstance(a, ProfilerActivity) for a in chosen), "No valid profiler activities found"


class profile(Readings):
    """Records what the engine executes on this thread inside a ``with`` block, or from start to stop.

    Ops are named ``aten::<name>``, nodes of a backward pass after their ``grad_fn``, and a session's verbs
    ``telegrad::<name>``. Times are the host's: on an accelerator, which computes asynchronously, they measure the
    launch.

    ``activities`` may only contain ``ProfilerActivity.CPU``. ``record_shapes`` records the input shapes,
    ``profile_memory`` the bytes of the allocated arrays, and ``with_stack`` the lines of the user's code. Only the
    first ``max_events`` ranges are kept as events; the averages include all ranges.

    Unlike torch's, a profile may be entered again after it was left, and then adds to its totals. Raises
    InvalidOperation if it is entered while it runs.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        max_events: int = 200_000,
    ) -> None:
        check_activities(activities)
        super().__init__(
            Recorder(shapes=record_shapes, memory=profile_memory, stacks=with_stack, max_events=max_events)
        )
        self._running = threading.Lock()
        self._timing = Timing(self._recorder)
        self._outer: Timing | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start or resume recording, and suspend a profile that already runs on this thread."""
        if not self._running.acquire(blocking=False):
            raise InvalidOperation("Profiler context manager is not reentrant")
        self._thread = threading.get_ident()
        self._outer = observer_of(Timing)
        if self._outer is not None:
            self._outer.resting = True
        observe(self._timing)

    def stop(self) -> None:
        """Stop recording and close all open ranges. Raises InvalidOperation if not running on this thread."""
        self.pause()
        self._recorder.close_all()

    def pause(self) -> None:
        """Stop recording until the next start. Open ranges stay open, and their time keeps running."""
        if not self._running.locked() or self._thread != threading.get_ident():
            raise InvalidOperation("Profiler is not running on this thread")
        stop_observing(self._timing)
        if self._outer is not None:
            self._outer.resting = False
        self._outer = None
        self._running.release()


class record_function:
    """A labelled range for a ``with`` block or a decorated function; does nothing if no profile runs."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._opened: list[tuple[Recorder, FunctionEvent] | None] = []

    def __enter__(self) -> Self:
        timing = observer_of(Timing)
        self._opened.append(None if timing is None else (timing.recorder, timing.recorder.open(self.name, "range")))
        return self

    def __exit__(self, *exc: object) -> None:
        opened = self._opened.pop()
        if opened is not None:
            recorder, event = opened
            recorder.close(event)

    def __call__(self, function: _F) -> _F:
        """Decorate ``function`` so that every call is a range."""

        @functools.wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name, self.args):
                return function(*args, **kwargs)

        return labelled  # type: ignore[return-value]


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
