"""A session's registered functions and calls of them: one instruction, whose output shapes are known at once.

A function is data, so everything it does without values depends only on the shapes and dtypes of its tensors. Its
graph is cached as a pattern, by which later calls with such tensors join a lazy graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from telegrad_engine.amp.autocast import autocast_dtype_on, autocast_to
from telegrad_engine.autograd.custom_function import Function
from telegrad_engine.context import state
from telegrad_engine.dtypes import parse
from telegrad_engine.errors import DataDependentShape, UnknownFunction
from telegrad_engine.graph.node import next_sequence
from telegrad_engine.lru import LRU
from telegrad_engine.program.registered_functions import Applicable, Budget, FunctionProgram
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta, functions

from .. import html_output
from ..tape.lazy_graph import NodeBuilder, Unrepeatable, join, pattern_since
from ..tape.recorder import Recorder
from ..tensor.handle import Tensor, handle, refs
from .tracing import VARIANT, Variants

own: dict[str, Variants] = {}
"""The functions that this process registered, by name."""
_known: weakref.WeakKeyDictionary[Recorder, dict[str, Applicable]] = weakref.WeakKeyDictionary()
"""The known functions of each session."""
_sent: weakref.WeakKeyDictionary[Recorder, set[str]] = weakref.WeakKeyDictionary()
"""The names that this process registered in each session, and may replace there."""
_patterns: weakref.WeakKeyDictionary[Applicable, LRU[tuple[Any, ...], NodeBuilder | None]] = weakref.WeakKeyDictionary()
"""The patterns of each function's calls; None for calls that have none."""
PLAIN = (None, None, None, None)
"""The plain state: no autocast, saved-tensor hooks, anomaly mode or observer."""
PATTERNS = 64
"""The number of patterns kept per function, by last use."""
DERIVATIVES = ("backward", "jvp")
"""The members of a definition with derivatives of its own."""
Definition = Mapping[str, Any]


def define(name: str, variants: Variants | None) -> None:
    """Replace or remove the function that this process registered under a name; sessions look it up again."""
    if variants is None:
        own.pop(name, None)
    else:
        own[name] = variants
    for found in _known.values():
        found.pop(name, None)


def names(recorder: Recorder) -> set[str]:
    """Return the names of a session's known functions."""
    return set(_known.get(recorder, ()))


def lookup(name: str) -> tuple[Definition, str] | None:
    """Return the definition that this process registered under a name, and its scope, or None."""
    variants = own.get(name) or own.get(name.partition(VARIANT)[0])
    definition = None if variants is None else variants.definition(name)
    return None if definition is None or variants is None else (definition, variants.scope)


def find(recorder: Recorder, name: str) -> Applicable:
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
            found[name] = _send(recorder, name, *ours)
    return found[name]


def _send(recorder: Recorder, name: str, definition: Definition, scope: str) -> Applicable:
    program = FunctionProgram(definition, partial(find, recorder))
    sent = _sent.setdefault(recorder, set())
    if scope == "server":
        recorder.flush()
        with suppress(UnknownFunction):
            if recorder.transport.function(name).definition == definition:
                return program  # an earlier session or another process has registered it
    if scope == "session" and name in sent:
        recorder.emit("remove_function", attrs={"name": name})
    recorder.emit("register_function", attrs={"definition": definition, "scope": scope})
    if scope == "session" and name not in sent:
        if recorder.observer is None:
            recorder.flush()  # raise here if another client of the session has registered this name
        sent.add(name)
    return program


def remove(recorder: Recorder, name: str, scope: str) -> None:
    """Remove a function in this process and from a session, or from its server."""
    if name not in own or name in _sent.get(recorder, ()) or scope == "server":  # else the session does not know it yet
        recorder.emit("remove_function", attrs={"name": name, "scope": scope})
    _sent.get(recorder, set()).discard(name)
    define(name, None)


class FunctionCall(NamedTuple):
    """A call of a registered function in a session."""

    recorder: Recorder
    function: Applicable
    tensors: Sequence[Any]
    parameters: Mapping[str, Any]

    def record(self) -> list[Tensor]:
        """Record the call and return its outputs, which get ids, shapes, dtypes and nodes in the client graph."""
        recorder = self.recorder
        try:
            found = self._evaluate(Budget(asking=True), repeatable=True)
        except DataDependentShape:
            return self._record_and_ask()
        if not isinstance(found, NodeBuilder):
            made = [handle(recorder, None) for _ in found]
            _adopt(made, found)
            self._emit(made)
            return made
        made = [handle(recorder, spec) for spec in found.specs]
        with recorder.lock:
            before = recorder.segment.lazy
            self._emit(made)
            join(recorder.segment, found, self.tensors, made, before)
        return made

    def _emit(self, made: Sequence[Tensor], **options: Any) -> None:
        attrs: dict[str, Any] = {"function": self.function.name, **options}
        if self.parameters:
            attrs["attrs"] = self.function.signature.encode_attrs(self.parameters)
        dtype = autocast_dtype_on(self.recorder.transport.device)
        if dtype is not None:
            attrs["autocast"] = dtype
        self.recorder.emit("apply", [refs(self.tensors)], [t._id for t in made], attrs)

    def _evaluate(self, budget: Budget, repeatable: bool = False) -> Sequence[Any] | NodeBuilder:
        """Stand-ins for the results, computed without recording anything; if ``repeatable``, a known call's pattern."""
        function, device = self.function, self.recorder.transport.device
        before, state.default_dtype = state.default_dtype, self.recorder.default_dtype
        try:
            with autocast_to(device, autocast_dtype_on(device)):
                for tensor in self.tensors:
                    tensor._refresh()
                key = self._key() if repeatable else None
                patterns: Any = {} if key is None else _patterns.setdefault(function, LRU(PATTERNS))
                entry: NodeBuilder | None = patterns.get(key)
                if entry is not None:
                    return entry
                start, given = next_sequence(), [tensor._alias() for tensor in self.tensors]
                results = function.call(given, self.parameters, budget)
                if key is not None and key not in patterns:
                    patterns[key] = _pattern(given, results, start)
                return results
        finally:
            state.default_dtype = before

    def _key(self) -> tuple[Any, ...] | None:
        """All that the result depends on; None if that is more than shapes, dtypes and modes."""
        function, tensors = self.function, self.tensors
        if not isinstance(function, FunctionProgram):
            return None
        if (state.autocast, state.saved_hooks, state.anomaly, state.observer) != PLAIN:
            return None
        places = [_place(tensor) for tensor in tensors if tensor._requires_grad]
        counters = [id(tensor._version_counter) for tensor in tensors]
        if len({*counters}) != len(counters) or len({*places}) != len(places):
            return None  # two of them are the same
        values = repr(function.signature.encode_attrs(self.parameters)) if self.parameters else ""
        kinds = [(x._data.shape, x._data.dtype, x._requires_grad, x._output_nr) for x in tensors]
        return (*kinds, values, state.grad_enabled, state.inference, state.default_dtype)

    def _record_and_ask(self) -> list[Tensor]:
        """Run a call whose outputs depend on values at once, and fetch its decisions, or else the results' specs."""
        made = [handle(self.recorder, None) for _ in range(self.function.outputs)]
        if not isinstance(self.function, FunctionProgram):
            self._emit(made)
            return self._ask(made)
        decisions = handle(self.recorder, None)
        self._emit([*made, decisions], decisions=True)
        known = decisions._fetch()
        try:
            _adopt(made, self._evaluate(Budget(known=known)))
            return made
        except DataDependentShape:
            return self._ask(made)

    def _ask(self, made: list[Tensor]) -> list[Tensor]:
        """Fetch the results' specs from the session, and assume that each result depends on every tensor."""
        answer = self.recorder.fetch([t._id for t in made], values=False)
        known = [answer[t._id].description for t in made]
        specs = [Spec(tuple(k["shape"]), parse(k["dtype"]).numpy) for k in known]
        metas = Opaque.apply(self.function.name, specs, *[t._alias() for t in self.tensors])
        for tensor, meta, description in zip(made, metas, known, strict=True):
            tensor._data = meta._data
            if description["requires_grad"]:
                tensor._adopt(meta)
        return made


def _adopt(made: Sequence[Tensor], found: Any) -> None:
    for tensor, meta in zip(made, found, strict=True):
        tensor._data = meta._data
        tensor._adopt(meta)


def _place(tensor: Any) -> tuple[Any, ...]:
    """A tensor's place in the graph, of which no nodes are built."""
    if tensor._lazy is not None:
        return id(tensor._lazy), tensor._id
    return id(tensor if tensor._node is None else tensor._node), tensor._output_nr


def _pattern(given: Sequence[Any], results: Sequence[Any], start: int) -> NodeBuilder | None:
    """The pattern of the nodes made since ``start``, or None unless they are plain nodes, which lead to each result."""
    if any(type(result) is not Meta or result._base is not None for result in results):
        return None
    try:
        pattern = pattern_since(start, given, results)
    except Unrepeatable:
        return None
    plain = all(data.kind.evaluate is None and "hooks" not in data.fixed for data in pattern.nodes)
    roots = [root for _, root in pattern.results if root is not None]
    return pattern if plain and len({*roots}) == len(roots) else None


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


# In a notebook ----------------------------------------------------------------------------


def function_html(signature: str, definition: Definition) -> str:
    """Return the signature and the programs of a function's definition, one instruction a line."""
    given = [name for name in DERIVATIVES if definition.get(name)]
    title = html_output.properties(
        signature,
        [(name, "its own" if name in given else "from the forward program") for name in DERIVATIVES],
    )
    programs = ["\n".join([name, *_lines(definition[name])]) for name in ("forward", *given)]
    return html_output.block("function", title, html_output.preformatted("\n\n".join(programs)))


def _lines(program: Mapping[str, Any]) -> Iterator[str]:
    for step in program["instructions"]:
        arguments = [*map(_argument, step["inputs"])]
        arguments += [f"{name}={_argument(value)}" for name, value in step.get("attrs", {}).items()]
        yield f"  {', '.join(map(_argument, step['outputs']))} = {step['op']}({', '.join(arguments)})"
    yield f"  return {', '.join(map(_argument, program['outputs']))}"


def _argument(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, Mapping) and value.keys() == {"attr"}:
        return str(value["attr"])
    return repr(value)
