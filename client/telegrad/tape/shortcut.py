"""Shortcuts: functions that record a known instruction again, if their arguments are of the same kinds."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from types import FrameType
from typing import Any, NamedTuple

from telegrad_engine.arrays.numpy import NUMPY
from telegrad_engine.context import observers, state
from telegrad_engine.dtypes import FLOATING, DType
from telegrad_engine.schema.op import Op
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import hidden_specs, view_of
from telegrad_engine.tensor.call_cache import Call, Prepare, Resolved, entering, gathered, told_apart
from telegrad_engine.tensor.execution import Enter
from telegrad_engine.tensor.inference import mark
from telegrad_engine.tensor.namespace import Resolve
from telegrad_engine.tensor.prepared_calls import promised

from ..call_site import errors_are_caught
from .lazy_graph import Entry
from .node import MAX_SHORTCUTS, TRIES, Node, Own, Record, Shortcut

Make = Callable[[Any, Spec, str], Any]
"""Makes an output's handle, given its recorder, spec and id."""
CONSTANT = -1
"""The slot of an argument that is not a tensor."""
PLAIN = (int, float, str, type(None), type(Ellipsis), DType)


AsView = Callable[[Sequence[Any], Sequence[Any], Own | None], None]
"""Makes a call's outputs views of one of its tensors, given its own numbers if it has any."""


class Results(NamedTuple):
    """How to make the results of a call again, from tensors of the same kinds."""

    handles: Callable[[Any, Sequence[str]], tuple[Any, list[Any]]]
    """Makes their handles, given a recorder and ids. Returns the results as the op returns them, and a list of them."""
    plain: tuple[Make, Spec] | None
    """The parts of ``handles`` for a single result that is not a view."""
    entry: Entry | None
    """How to add the call to the graph; None if it has no gradient."""
    as_view: AsView | None
    """None if the results are not views."""
    verify: Callable[[Sequence[Any]], None] | None
    """Raises the error that the op would raise for the tensors' values, if the client knows them."""
    call: Call
    """The call, without its tensors."""

    def make(
        self, recorder: Any, names: Sequence[str], tensors: Sequence[Any], own: Own | None = None
    ) -> tuple[Any, Sequence[Any]]:
        """Make the results, which are not in the graph yet: as the op returns them, and as a list."""
        if self.plain is not None:
            create, spec = self.plain
            result = create(recorder, spec, names[0])
            outputs: Sequence[Any] = (result,)
        else:
            result, outputs = self.handles(recorder, names)
        if self.entry is None and state.inference:
            mark(outputs)
        if self.as_view is not None:
            self.as_view(tensors, outputs, own)
        return result, outputs


class Argument(NamedTuple):
    """What an argument must be for the shortcut to apply."""

    slot: int
    """The slot of a tensor; CONSTANT for anything else."""
    constant: Any
    spec: Spec | None = None
    requires_grad: bool = False


def learn(
    node: Node,
    segment: Any,
    function: Callable[..., Any],
    resolve: Resolve,
    prepare: Prepare,
    kinds: Container[type[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> None:
    """Store a shortcut for a function that recorded a known node and nothing else."""
    node.calls += 1
    if (node.calls > TRIES and node.calls % TRIES) or state.autocast is not None:
        return
    given = (*args, *kwargs.values())
    if not all(type(x) in kinds or _is_plain(x) for x in given):
        return
    own_args, own_kwargs, tensors = told_apart(args, kwargs, kinds)
    resolved = resolve(own_args, own_kwargs)
    if resolved is None or resolved[0].composite or resolved[0].key != node.op:
        return
    outputs = result if isinstance(result, tuple) else (result,)
    results: Any = prepare(*resolved, tensors)
    names = [*segment.slots]
    if results is None or [getattr(x, "_id", None) for x in outputs] != [names[slot] for slot in node.outputs]:
        return
    arguments = tuple([
        Argument(segment.slots[x._id], None, x._data, x._requires_grad) if type(x) in kinds
        else Argument(CONSTANT, deepcopy(x))  # the caller may change a list
        for x in given
    ])  # fmt: skip
    own = segment.own.get(node.index)
    if not kwargs and own is None and len(arguments) <= 2 and results.plain is not None and len(tensors) == len(given):
        record = _fast_record(arguments, node.mode is None, results, kinds)
    else:
        record = _general_record(tuple(kwargs), arguments, node.mode is None, results, own, resolve, kinds)
    node.shortcuts = [Shortcut(function, record, resolved[0]), *node.shortcuts][:MAX_SHORTCUTS]
    node.function, node.shortcut = function, node.shortcuts[0]


def _is_plain(value: Any) -> bool:
    """Whether a constant is of a type whose values are equal if their reprs are."""
    if isinstance(value, slice):
        return _is_plain((value.start, value.stop, value.step))
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _general_record(
    names: tuple[str, ...],
    arguments: tuple[Argument, ...],
    grad: bool,
    results: Results,
    own: Own | None,
    resolve: Resolve,
    kinds: Container[type[Any]],
) -> Record:
    """Return the function that records a call with such arguments, the last of which are keywords (``names``)."""
    verify = results.verify
    places = tuple([argument.slot for argument in arguments if argument.slot != CONSTANT])

    def record(args: Sequence[Any], kwargs: Mapping[str, Any], recorder: Any, segment: Any, node: Node) -> Any:
        given = args
        if kwargs or names:
            if tuple(kwargs) != names:
                return None
            given = (*args, *kwargs.values())
        if len(given) != len(arguments) or state.grad_enabled is not grad:
            return None
        slots = segment.slots
        tensors: list[Any] = []
        same = True
        for x, (slot, constant, spec, requires_grad) in zip(given, arguments, strict=True):
            if spec is not None:
                if type(x) not in kinds or x._recorder is not recorder or slots.setdefault(x._id, len(slots)) != slot:
                    return None
                data = x._data
                if data is not spec:
                    if data.shape != spec.shape or data.dtype != spec.dtype:
                        return None
                    x._data = spec  # so the next comparison is one of identity
                if x._requires_grad is not requires_grad or (
                    x._base is not None and x._seen_version != x._version_counter[0]
                ):
                    return None
                tensors.append(x)
            elif x is not constant and (type(x) is not type(constant) or repr(x) != repr(constant)):
                same = False
        if not same:
            return _record_with_numbers(results, resolve(args, kwargs), tensors, places, recorder, segment, node)
        if verify is not None:
            verify(tensors)
        return _record_again(results, tensors, places, recorder, segment, node, own)

    return record


def _record_with_numbers(
    results: Results,
    resolved: Resolved | None,
    tensors: Sequence[Any],
    places: tuple[int, ...],
    recorder: Any,
    segment: Any,
    node: Node,
) -> Any:
    """Record a call that differs in its numbers. Return None if it differs in anything else."""
    if resolved is None or not node.operands:
        return None
    op, inputs, attrs = resolved
    if op is not results.call.op:
        return None
    ids = [x._id if hasattr(x, "_data") else x for x in inputs]
    structure = segment.structure(op.key, ids, attrs)
    if (structure.inputs, structure.attrs) != node.key[2:4]:  # type: ignore[index]
        return None
    if _described(promised(op, inputs, attrs)) != _described(results.call.specs):
        return None  # a slice that goes beyond the end, say
    check_values(op, inputs, attrs)
    blank = [None if hasattr(x, "_data") else x for x in inputs]
    own = Own(blank, attrs, structure.operands)
    return _record_again(results, tensors, places, recorder, segment, node, own)


def _record_again(
    results: Results,
    tensors: Sequence[Any],
    places: tuple[int, ...],
    recorder: Any,
    segment: Any,
    node: Node,
    own: Own | None,
) -> Any:
    """Record a call that was recognized, and return its results. They join the graph later, if possible."""
    made = [recorder.new_id() for _ in node.outputs]
    slots = segment.slots
    for name in made:
        slots[name] = len(slots)
    if own is not None:
        segment.own[node.index] = own
    segment.last, segment.next = node, node.next
    result, outputs = results.make(recorder, made, tensors, own)
    entry = results.entry
    if entry is not None:
        lazy = segment.graph_for(tensors, places)
        if lazy is not None:
            lazy.add(entry, node, places, node.outputs, outputs, own)
        else:
            entry.enter(tensors, outputs, own)
    return result


def _described(specs: Sequence[Spec] | None) -> list[tuple[Any, ...]] | None:
    return None if specs is None else [(spec.shape, spec.dtype) for spec in specs]


def _fast_record(arguments: Sequence[Argument], grad: bool, results: Results, kinds: Container[type[Any]]) -> Record:
    """Like ``_general_record`` but without a loop, for the most common calls: one or two tensors, and one result."""
    assert results.plain is not None
    make, spec = results.plain
    verify, entry, count = results.verify, results.entry, len(arguments)
    (first, _, spec_a, grad_a), (second, _, spec_b, grad_b) = arguments[0], arguments[-1]
    assert spec_a is not None and spec_b is not None, "they are tensors"
    places = (first, second)[:count]

    def record(args: Sequence[Any], kwargs: Mapping[str, Any], recorder: Any, segment: Any, node: Node) -> Any:
        if len(args) != count or kwargs or state.grad_enabled is not grad:
            return None
        a, b, slots = args[0], args[-1], segment.slots
        if slots.get(a._id) != first and slots.setdefault(a._id, len(slots)) != first:
            return None
        if b is not a:
            if (type(b) is not type(a) and type(b) not in kinds) or b._recorder is not recorder:
                return None
            if slots.get(b._id) != second and slots.setdefault(b._id, len(slots)) != second:
                return None
            data = b._data
            if data is not spec_b:
                if data.shape != spec_b.shape or data.dtype != spec_b.dtype:
                    return None
                b._data = spec_b  # so the next comparison is one of identity
            if b._requires_grad is not grad_b or (b._base is not None and b._seen_version != b._version_counter[0]):
                return None
        elif first != second:
            return None
        data = a._data
        if data is not spec_a:
            if data.shape != spec_a.shape or data.dtype != spec_a.dtype:
                return None
            a._data = spec_a
        lazy = segment.lazy
        inside = lazy is not None and a._lazy is lazy  # then it requires grad, and nothing was written to it
        if inside:
            if not grad_a:
                return None
        elif a._requires_grad is not grad_a or (a._base is not None and a._seen_version != a._version_counter[0]):
            return None
        if verify is not None:
            verify(args)
        name = recorder.new_id()
        slots[name] = len(slots)
        segment.last, segment.next = node, node.next
        output = make(recorder, spec, name)
        if entry is not None:
            if (
                lazy is None
                or observers
                or not ((inside or first in lazy.inputs) and (b._lazy is lazy or second in lazy.inputs))
            ):
                lazy = segment.graph_for(args, places)
            if lazy is None:
                entry.enter(args, (output,), None)
            else:  # lazy.add(entry, node, places, node.outputs, (output,)), inlined
                lazy.calls.append((entry, places, node.outputs, None, (output._version_counter,)))
                lazy.last, output._requires_grad, output._lazy = node, True, lazy
        elif state.inference:
            mark((output,))
        return output

    return record


# Results of calls ---------------------------------------------------------------------------------


def results_of(make: Make) -> Callable[[Call], Any]:
    """Return the function that finds out how to make the results of a call again."""

    def prepared(call: Call) -> Results:
        op, inputs, attrs, specs, order = call
        blank = call._replace(inputs=tuple([None if hasattr(x, "_data") else x for x in inputs]))

        def handles(recorder: Any, given: Sequence[str]) -> tuple[Any, list[Any]]:
            outputs = [make(recorder, spec, name) for spec, name in zip(specs, given, strict=True)]
            return op.bundle(outputs), outputs

        def as_view(tensors: Sequence[Any], outputs: Sequence[Any], own: Own | None) -> None:
            base = tensors[(order or [0])[0] or 0]  # the op's first input, which is a tensor
            view_of(base, op, attrs if own is None else own.attrs, outputs)

        def verify(tensors: Sequence[Any]) -> None:
            check_values(op, tensors if order is None else gathered(blank.inputs, order, tensors), attrs)

        plain = None if call.many or op.view else (make, specs[0])
        entry, checked = _entry(call, blank), op.value_check is not None
        return Results(handles, plain, entry, as_view if op.view else None, verify if checked else None, blank)

    return prepared


def _entry(call: Call, blank: Call) -> Entry | None:
    """How to add a call to the graph later; ``blank`` is the call without its tensors."""
    enter, hidden = entering(call), hidden_specs(call)
    op, inputs, _, specs, order = blank
    tracked = [(i, i) for i, spec in enumerate(specs) if spec.dtype in FLOATING and i not in op.constants]
    if enter is None or not tracked:
        return None
    first = tracked[0][0]

    def enter_later(tensors: Sequence[Any], outputs: Sequence[Any], own: Own | None) -> Sequence[Any]:
        given = tensors if order is None else gathered(inputs if own is None else own.inputs, order, tensors)
        found: Enter | None = enter
        if own is not None:
            before, state.grad_enabled = state.grad_enabled, True  # as it was at the time of the call
            try:
                found = entering(blank._replace(inputs=tuple(given), attrs=own.attrs))
            finally:
                state.grad_enabled = before
        assert found is not None, "it is entered with other numbers"
        found(given, outputs, hidden)
        return (outputs[first]._node,)

    return Entry(specs, tracked, enter_later)


# Errors that depend on values ------------------------------------------------------------------


def check_values(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """Raise the error that the op would raise for the values of its inputs, if the client uploaded them itself."""
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
    """Wait for the op, verb or replay that was recorded last if the user's code, from a frame on, catches its error."""
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
    values = given[0]
    for op, attrs, index in tensor._view_chain:
        result = op.kernel(NUMPY, values, **attrs)
        values = result[index] if isinstance(result, (tuple, list)) else result
    return values
