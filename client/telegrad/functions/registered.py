"""A session's registered functions and calls of them: one instruction, whose output shapes are known at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad_engine.amp.autocast import autocast_dtype_on, autocast_to
from telegrad_engine.autograd.custom_function import Function
from telegrad_engine.context import state
from telegrad_engine.dtypes import parse
from telegrad_engine.errors import DataDependentShape, UnknownFunction
from telegrad_engine.program.registered_functions import Applicable, Budget, FunctionProgram
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta, functions

from ..tape.lazy_graph import Entry
from ..tape.recorder import Recorder
from ..tensor.handle import Tensor, handle, refs
from .abstract_evaluation import evaluate

_known: weakref.WeakKeyDictionary[Recorder, dict[str, Applicable]] = weakref.WeakKeyDictionary()
"""The known functions of each session."""
_sent: weakref.WeakKeyDictionary[Recorder, set[str]] = weakref.WeakKeyDictionary()
"""The names that this process registered in each session, and may replace there."""
Definition = Mapping[str, Any]
Lookup = Callable[[str], tuple[Definition, str] | None]
"""Return the definition that this process registered under a name, and its scope, or None."""


def forget(name: str) -> None:
    """Make every session look up this function again, after it was registered again."""
    for found in _known.values():
        found.pop(name, None)


def names(recorder: Recorder) -> set[str]:
    """Return the names of a session's known functions."""
    return set(_known.get(recorder, ()))


def find(recorder: Recorder, name: str, lookup: Lookup) -> Applicable:
    """Return a session's function by name, after sending it if this process registered it and the session lacks it.

    Raises UnknownFunction.
    """
    found = _known.setdefault(recorder, {})
    if name not in found:
        ours = lookup(name)
        if ours is None:
            recorder.flush()  # a program that registers it may not be sent yet
            found[name] = recorder.transport.function(name)
        else:
            found[name] = _send(recorder, name, *ours, lookup)
    return found[name]


def _send(recorder: Recorder, name: str, definition: Definition, scope: str, lookup: Lookup) -> Applicable:
    program = FunctionProgram(definition, lambda other: find(recorder, other, lookup))
    sent = _sent.setdefault(recorder, set())
    if scope == "server":
        recorder.flush()
        present = _present(recorder, name)
        if present is not None and present.definition == definition:
            return program  # an earlier session or another process has registered it
    if scope == "session" and name in sent:
        recorder.emit("remove_function", attrs={"name": name})
    recorder.emit("register_function", attrs={"definition": definition, "scope": scope})
    if scope == "session" and name not in sent:
        if recorder.observer is None:
            recorder.flush()  # raise here if another client of the session has registered this name
        sent.add(name)
    return program


def _present(recorder: Recorder, name: str) -> Applicable | None:
    """The session's function of this name, even if another client registered it, or None."""
    try:
        return recorder.transport.function(name)
    except UnknownFunction:
        return None


def remove(recorder: Recorder, name: str, scope: str) -> None:
    """Remove a function from a session, or from its server."""
    recorder.emit("remove_function", attrs={"name": name, "scope": scope})
    _sent.get(recorder, set()).discard(name)
    forget(name)


def call(
    recorder: Recorder, function: Applicable, tensors: Sequence[Any], parameters: Mapping[str, Any]
) -> list[Tensor]:
    """Record a call: the outputs get ids, shapes, dtypes and nodes in the client graph."""
    try:
        found = _evaluated(recorder, function, tensors, parameters, Budget(asking=True))
    except DataDependentShape:
        return _call_and_ask(recorder, function, tensors, parameters)
    if not isinstance(found, Entry):
        made = [handle(recorder, None) for _ in found]
        _adopt(made, found)
        _emit(recorder, function, tensors, parameters, made)
        return made
    made = [handle(recorder, spec) for spec in found.specs]
    with recorder.lock:
        lazy = recorder.segment.lazy
        _emit(recorder, function, tensors, parameters, made)
        recorder.segment.join(found, tensors, made, lazy)
    return made


def _evaluated(
    recorder: Recorder,
    function: Applicable,
    tensors: Sequence[Any],
    parameters: Mapping[str, Any],
    budget: Budget,
) -> Sequence[Any] | Entry:
    """Stand-ins for the results, computed from stand-ins for the tensors without recording anything, or a pattern."""
    device = recorder.transport.device
    before, state.default_dtype = state.default_dtype, recorder.default_dtype
    try:
        with autocast_to(device, autocast_dtype_on(device)):
            if not budget.asking:
                return function.call([t._alias() for t in tensors], parameters, budget)
            return evaluate(function, tensors, parameters, lambda given: function.call(given, parameters, budget))
    finally:
        state.default_dtype = before


def _adopt(made: Sequence[Tensor], found: Sequence[Any]) -> None:
    for tensor, meta in zip(made, found, strict=True):
        tensor._data = meta._data
        tensor._adopt(meta)


def _emit(
    recorder: Recorder,
    function: Applicable,
    tensors: Sequence[Tensor],
    parameters: Mapping[str, Any],
    made: Sequence[Tensor],
    **options: Any,
) -> None:
    attrs: dict[str, Any] = {"function": function.name, **options}
    if parameters:
        attrs["attrs"] = function.signature.encode_attrs(parameters)
    dtype = autocast_dtype_on(recorder.transport.device)
    if dtype is not None:
        attrs["autocast"] = dtype
    recorder.emit("apply", [refs(tensors)], [t._id for t in made], attrs)


def _call_and_ask(
    recorder: Recorder, function: Applicable, tensors: Sequence[Tensor], parameters: Mapping[str, Any]
) -> list[Tensor]:
    """Run a call whose outputs depend on values at once, and fetch its decisions, or else the results' specs."""
    made = [handle(recorder, None) for _ in range(function.outputs)]
    if not isinstance(function, FunctionProgram):
        _emit(recorder, function, tensors, parameters, made)
        return _ask(recorder, function, tensors, made)
    decisions = handle(recorder, None)
    _emit(recorder, function, tensors, parameters, [*made, decisions], decisions=True)
    known = decisions._fetch()
    try:
        _adopt(made, _evaluated(recorder, function, tensors, parameters, Budget(known=known)))
        return made
    except DataDependentShape:
        return _ask(recorder, function, tensors, made)


def _ask(recorder: Recorder, function: Applicable, tensors: Sequence[Any], made: list[Tensor]) -> list[Tensor]:
    """Fetch the results' specs from the session, and assume that each result depends on every tensor."""
    answer = recorder.fetch([t._id for t in made], values=False)
    known = [answer[t._id].description for t in made]
    specs = [Spec(tuple(k["shape"]), parse(k["dtype"]).numpy) for k in known]
    metas = Opaque.apply(function.name, specs, *[t._alias() for t in tensors])
    for tensor, meta, description in zip(made, metas, known, strict=True):
        tensor._data = meta._data
        if description["requires_grad"]:
            tensor._adopt(meta)
    return made


class Opaque(Function):
    """The client graph's node of a function of which only the results' specs are known."""

    @staticmethod
    def forward(name: str, specs: Sequence[Spec], *tensors: Any) -> Any:
        """Return stand-ins for the results."""
        return tuple([Meta(spec) for spec in specs])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the tensors."""
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return stand-ins for the gradients, which may depend on every tensor."""
        everything = sum(functions.sum(t) for t in (*ctx.saved_tensors, *grads))
        return (None, None, *[functions.mul(functions.zeros_like(t), everything) for t in ctx.saved_tensors])
