"""Wraps the SDK's functions and methods so that calls like earlier ones are recorded without resolving their arguments.

A call's key is its grad mode, the shapes, dtypes and ``requires_grad`` of its tensors, and its other arguments. From
the third call with a key on, the step that it records is known, and so are its results and how to build its node. A
call that differs from such a call only in numbers records its own.

Errors that depend on values are raised at once if the client knows the values, or if the user's code catches them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from sys import _getframe
from types import FrameType
from typing import Any

from telegrad_engine.arrays.numpy import NUMPY
from telegrad_engine.context import observers, state
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.lru import LRU
from telegrad_engine.memory_layout import memory_of
from telegrad_engine.schema.op import Op, follow_arrays
from telegrad_engine.shapes import Spec, interned
from telegrad_engine.tensor.abstract import hidden_specs
from telegrad_engine.tensor.call_cache import (
    CALLS,
    CONSTANTS,
    SEQUENCES,
    CallSignature,
    Prepare,
    RecordedCall,
    bind_inputs,
    infer_specs,
    key_parts,
    preparer,
    with_stand_ins,
)
from telegrad_engine.tensor.execution import mark_as_inference, note_views
from telegrad_engine.tensor.memory import follow, is_contiguous, layout
from telegrad_engine.tensor.namespace import Apply, Resolve

from ..aten import in_place_name
from ..call_site import Position, errors_are_caught, is_ours, users_frame
from .lazy_graph import NodeBuilder, enter
from .segment import Effect
from .step import Places, RecordedStep, step_of

Make = Callable[[Any, Spec, str], Any]
"""Makes an output's handle, given its recorder, spec and id."""
ONCE, UNFIT, NEW = "once", "unfit", (None, None)
"""The state of a call that was made once, or cannot be prepared."""
EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
"""The end of the errors for a Function that a transform cannot use."""


class _Active(threading.local):
    argument: Any = None
    """Within a function that ``telegrad.func`` differentiates, its first argument: it captured all older tensors."""
    tracer: Any = None
    """Within a function that is being traced, the tracer that writes its ops to a program, or None."""


active = _Active()


class PreparedCall(NodeBuilder):
    """Records calls with the same key, and builds their nodes."""

    __slots__ = (
        *("_attrs", "_checks", "_hidden", "_inputs", "_is_plain", "_make", "_order", "_recorded", "may_raise"),
        *("op", "step"),
    )

    def __init__(self, call: CallSignature, make: Make) -> None:
        self.op, inputs, self._attrs, specs, self._order = call
        self._inputs = [None if hasattr(x, "_data") else x for x in inputs]
        """The op's inputs, without the tensors."""
        self.step = _step_of(self.op, inputs, self._attrs, len(specs))
        self._make = make
        self.specs = [interned(spec.shape, spec.dtype) for spec in specs]
        self._recorded, self._hidden = RecordedCall(self.op, inputs, self._attrs, specs), hidden_specs(call)
        self.tracked = [(i, i) for i in self._recorded.tracked] if self._recorded.plan is not None else ()
        self._checks = self.op.value_check is not None or self.op.strict_view
        self.may_raise = self.op.may_raise
        order = range(len(inputs)) if self._order is None else [i for i in self._order if i is not None]
        self._is_plain = not call.many and not self.op.view and [*order] in ([0], [0, 1])
        """Whether it has one result, and one or two tensors, in the order of the inputs."""

    def record(self, recorder: Any, tensors: Sequence[Any], frame: FrameType, step: RecordedStep | None) -> Any:
        """Record a call on these tensors, with this step if its numbers are its own. Return the result."""
        order, segment = self._order, recorder.segment
        if self._checks:
            attrs, blank = (self._attrs, self._inputs) if step is None else (step.attrs, step.inputs)
            check_values(self.op, tensors if order is None else bind_inputs(blank, order, tensors), attrs)
        position = frame.f_code, frame.f_lasti
        if not self._is_plain:
            return self._record_any(recorder, tensors, step, position)
        slots, name = segment.slots, f"{recorder.id_prefix}{next(recorder.ids)}"
        first, last = tensors[0], tensors[-1]
        if len(tensors) == 1:
            places: Places = slots[first._id], slots.setdefault(name, len(slots))
        else:
            places = slots[first._id], slots[last._id], slots.setdefault(name, len(slots))
        segment.recorded.extend((self.step if step is None else step, places, position))
        output = self._make(recorder, self.specs[0], name)
        if self.tracked:
            lazy = segment.lazy
            if (
                lazy is not None
                and (first._lazy is lazy or places[0] in lazy.inputs)
                and (last._lazy is lazy or places[-2] in lazy.inputs)
                and not observers
            ):  # lazy.add, inlined for the most common calls
                lazy.calls.append((self, places, step, (output._version_counter,)))
                output._requires_grad, output._lazy = True, lazy
            else:
                enter(segment, self, tensors, places, (output,), step)
        elif state.inference:
            mark_as_inference((output,))
        return output

    def _record_any(self, recorder: Any, tensors: Sequence[Any], step: RecordedStep | None, position: Position) -> Any:
        """Record a call that may have other arguments between its tensors, or several results."""
        order, segment, make = self._order, recorder.segment, self._make
        slots = segment.slots
        given = tensors if order is None else [tensors[i] for i in order if i is not None]
        used = [slots[tensor._id] for tensor in given]  # first: new slots are in the order of the inputs
        names = [recorder.new_id() for _ in self.specs]
        made = [slots[name] for name in names]
        segment.recorded.extend((self.step if step is None else step, (*used, *made), position))
        outputs = [make(recorder, spec, name) for spec, name in zip(self.specs, names, strict=True)]
        if not self.tracked and state.inference:
            mark_as_inference(outputs)
        if self.op.view:
            base = tensors[(order or [0])[0] or 0]  # the op's first input, which is a tensor
            note_views(base, self.op, self._attrs if step is None else step.attrs, outputs)
        if self.tracked:
            enter(segment, self, tensors, (*[slots[tensor._id] for tensor in tensors], *made), outputs, step)
        return self.op.bundle(outputs)

    def build(self, tensors: Sequence[Any], outputs: Sequence[Any], step: RecordedStep | None = None) -> Sequence[Any]:
        """Record the node of a call, and return it."""
        order, recorded = self._order, self._recorded
        given = tensors if order is None else bind_inputs(self._inputs if step is None else step.inputs, order, tensors)
        if step is not None:
            before, state.grad_enabled = state.grad_enabled, True  # as it was at the time of the call
            try:
                recorded = RecordedCall(self.op, given, step.attrs, self.specs)
            finally:
                state.grad_enabled = before
        recorded.record(given, outputs, self._hidden)
        return (outputs[self.tracked[0][0]]._node,)

    def has_results_of(self, op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
        """Whether a call whose step is of the same kind has the same results; its numbers may be out of bounds."""
        specs = infer_specs(op, tuple(inputs), attrs) if op is self.op else None
        return specs is not None and [interned(spec.shape, spec.dtype) for spec in specs] == self.specs


class PreparedChange(PreparedCall):
    """Records in-place changes with the same key, outside the graph, of tensors that share memory with no other."""

    __slots__ = ()

    def __init__(self, call: CallSignature, make: Make) -> None:
        super().__init__(call, make)
        self.step = _step_of(self.op, call.inputs, call.attrs, 0)

    def record(self, recorder: Any, tensors: Sequence[Any], frame: FrameType, step: RecordedStep | None) -> Any:
        """Record a change of the first of these tensors, and return it."""
        segment, changed, order = recorder.segment, tensors[0], self._order
        slots, counter = segment.slots, changed._version_counter
        given = tensors if order is None else [tensors[i] for i in order if i is not None]
        segment.lazy, segment.effects[len(segment)] = None, Effect([(counter, counter[0])])
        places = tuple([slots[tensor._id] for tensor in given])
        segment.recorded.extend((self.step if step is None else step, places, (frame.f_code, frame.f_lasti)))
        counter[0] += 1
        return changed


def preparing_calls(make: Make, apply: Apply, in_place: bool = False) -> Prepare:
    """Return a ``prepare`` for :func:`recording`; ``make`` makes the outputs' handles."""
    kind: Any = PreparedChange if in_place else PreparedCall
    prepare = preparer(lambda call: kind(call, make), apply)

    def prepare_change(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tensors: Sequence[Any]) -> Any:
        tracked = state.grad_enabled and op.differentiable and any(tensor._requires_grad for tensor in tensors)
        if tracked or op.composite or op.view or op.value_check is not None:
            return None
        return prepare(op, inputs, attrs, tensors)

    return prepare_change if in_place else prepare


def _own_memory(tensors: Sequence[Any]) -> bool:
    """Whether an in-place change of the first of these tensors needs no further checks."""
    memory = memory_of(tensors[0])
    return active.argument is None and all(
        x._plain and type(x._version_counter) is list and (not i or memory_of(x) is not memory)
        for i, x in enumerate(tensors)
    )


def recording(
    otherwise: Callable[..., Any],
    resolve: Resolve,
    prepare: Prepare,
    kinds: Container[type[Any]],
    in_place: bool = False,
) -> Callable[..., Any]:
    """Like :func:`cached_calls`, for the SDK's functions: ``prepare`` returns a PreparedCall, or another function."""
    known: LRU[Any, tuple[Any, RecordedStep | None]] = LRU(CALLS)
    """Prepared calls or their states, by key, and the calls' own steps if they have numbers.

    A call with numbers is prepared by the kind of its step and the part of its key that is not constants."""

    def front(*args: Any, **kwargs: Any) -> Any:
        if observers and (in_place or state.ops_observed):
            return otherwise(*args, **kwargs)
        found: Any = None
        tensors: Any = args
        recorder: Any = None
        has_numbers = False
        if not kwargs and 0 < len(args) <= 2:  # the most common calls: only tensors, one or two of them, and no views
            first, last = args[0], args[-1]
            if type(first) in kinds and first._base is None:
                recorder = first._recorder
                if last is first:
                    found = state.grad_enabled, len(args), first._data, first._requires_grad
                elif type(last) in kinds and last._base is None and last._recorder is recorder:
                    found = state.grad_enabled, first._data, first._requires_grad, last._data, last._requires_grad
        if found is None:
            key = _key(args, kwargs, kinds)
            if key is None:
                return otherwise(*args, **kwargs)
            found, tensors, recorder, has_numbers = key
        if recorder.segment is None or recorder.segment.watched or state.autocast is not None:
            return otherwise(*args, **kwargs)
        try:
            prepared, step = known[found]
        except KeyError:
            prepared = step = None
            if _intern_specs(tensors):
                found = None
        if prepared is None and found is None:  # outside of the handler, whose error an error would show as its context
            return front(*args, **kwargs)
        if prepared is None and has_numbers:
            resolved = resolve(args, kwargs)
            op = None if resolved is None else resolved[0]
            if resolved is not None and op is not None and not (op.composite or op.has_lists or op.lists_outputs):
                step = _step_of(*resolved, 0 if in_place else len(op.outputs))
            if resolved is not None and step is not None and step.operands:
                exact, kinds_of = found, [x for tensor in tensors for x in (tensor._data, tensor._requires_grad)]
                found = (step.kind, state.grad_enabled, *kwargs, *kinds_of)
                prepared, _ = known.get(found, NEW)
                if isinstance(prepared, PreparedCall):
                    if not prepared.has_results_of(*resolved):
                        return otherwise(*args, **kwargs)
                    known[exact] = prepared, step
        if isinstance(prepared, PreparedCall):
            if in_place and not _own_memory(tensors):
                return otherwise(*args, **kwargs)
            frame = _getframe(1)
            if is_ours.get(frame.f_globals.get("__name__", ""), True):
                frame = users_frame()
            with recorder.lock:
                segment = recorder.segment
                if len(segment.recorded) >= segment.next_check:
                    recorder.make_way()
                result = prepared.record(recorder, tensors, frame, step)
                if prepared.may_raise:
                    raise_here(recorder, prepared.op, frame)
                return result
        if callable(prepared):
            return prepared(tensors)
        result = otherwise(*args, **kwargs)
        if prepared is None:
            known[found] = ONCE, None
        elif prepared is ONCE:
            args, kwargs, tensors = with_stand_ins(args, kwargs, kinds)
            resolved = resolve(args, kwargs)
            known[found] = (resolved and prepare(*resolved, tensors)) or UNFIT, None
        return result

    return functools.wraps(otherwise)(front)


def _key(args: Any, kwargs: Any, kinds: Container[type[Any]]) -> tuple[Any, list[Any], Any, bool] | None:
    """The key of a call, its tensors, their recorder, and whether it has numbers; None if it cannot be prepared."""
    key: list[Any] = [state.grad_enabled, *kwargs]
    tensors: list[Any] = []
    recorder, has_numbers = None, False
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in kinds:
            if value._base is not None and value._seen_version != value._version_counter[0]:
                return None  # the view's history must be rebuilt
            if recorder is None:
                recorder = value._recorder
            elif value._recorder is not recorder:
                return None  # the call raises the error for tensors of several sessions
            key += (value._data, value._requires_grad)
            tensors.append(value)
        elif kind in CONSTANTS:
            key += (kind, value)
            has_numbers = has_numbers or kind is int
        elif kind is float:
            key += (kind, value or repr(value))  # 0.0 and -0.0 compare equal but give different results
            has_numbers = True
        else:
            parts = key_parts(value if kind in SEQUENCES else (value,))
            if parts is None:
                return None
            key += (kind, parts)
            has_numbers = True
    return None if recorder is None else (tuple(key), tensors, recorder, has_numbers)


def _intern_specs(tensors: Sequence[Any]) -> bool:
    """Give tensors interned specs, as keys have them. Return whether any had another one."""
    changed = False
    for tensor in tensors:
        spec = interned(tensor._data.shape, tensor._data.dtype)
        changed = changed or spec is not tensor._data
        tensor._data = spec
    return changed


def _step_of(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any], outputs: int) -> RecordedStep:
    """The step of a call; an in-place change has no outputs."""
    ids = ["" if hasattr(x, "_data") else x for x in inputs]
    name = op.key if outputs else f"{op.key}_"
    return step_of(name, ids, outputs, attrs, None if state.grad_enabled else "no_grad")


def check_values(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """Raise the error that the op would raise for the layout of its input, or for values that the client uploaded."""
    if op.strict_view and not is_contiguous(inputs[0]):
        follow(layout(inputs[0]), (op, attrs, 0))
    if op.value_check is None:
        return
    recorder, datas = inputs[0]._recorder, list(inputs)
    recorder.checked = None
    for position in op.checked:
        datas[position] = _values(inputs[position])
        if datas[position] is None and inputs[position] is not None:
            return
    op.value_check(NUMPY, *[getattr(x, "_data", x) for x in datas], **attrs)
    recorder.checked = op


def raise_here(recorder: Any, op: Any, frame: FrameType | None = None) -> None:
    """Wait for the op, verb or block that was recorded last if the user's code, from a frame on, catches its error."""
    if op.may_raise and recorder.segment is not None and op is not recorder.checked and errors_are_caught(frame):
        recorder.flush(requested=False)


def _values(x: Any) -> Any:
    """An input's values as a NumPy array or a tuple of arrays; None if they are unknown."""
    if isinstance(x, (tuple, list)):
        found = [None if each is None else _of_tensor(each) for each in x]
        return None if any(f is None and each is not None for f, each in zip(found, x, strict=True)) else tuple(found)
    return None if x is None else _of_tensor(x)


def _of_tensor(tensor: Any) -> Any:
    """The values of an uploaded tensor that has not changed since, or of a view of one; None for other tensors."""
    base = tensor if tensor._base is None else tensor._base
    given = getattr(base, "_given", None)
    if given is None or tensor._version_counter[0] or given[1] is not tensor._version_counter or base._inverse_chain:
        return None
    return follow_arrays(NUMPY, given[0], tensor._view_chain)


# In-place changes of what a differentiated function captured -------


def refuse_captured(tensor: Any, op: Op, inputs: tuple[Any, ...]) -> None:
    """Raise if ``op`` would change a tensor in place that the function being differentiated captured."""
    own = active.argument
    if tensor._recorder is own._recorder and _age(tensor._memory_id) < _age(own._id):
        raise InvalidOperation(
            "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation "
            f"({in_place_name(op, inputs)}) that would mutate a captured Tensor. This is not supported; please rewrite "
            "the function being transformed to explicitly accept the mutated Tensor(s) as inputs."
        )


def _age(name: str) -> tuple[int, str]:
    """A key that sorts the ids of one recorder, which are numbered, in the order in which they were made."""
    return len(name), name
