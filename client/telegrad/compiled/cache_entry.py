"""A traced run of a compiled function: its guards, the instructions to record again, and its changes to handles.

The changes that a trace makes to its inputs are known from their state before and after it. A call records the
instructions again as a whole (:mod:`..tape.replay`), and makes the same changes to the handles of its own tensors.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.program.instructions import names_in
from telegrad_engine.tensor import inference

from ..tape.effects import Effect
from ..tape.graph_pattern import Unrepeatable
from ..tape.replay import Replay
from ..tape.shortcut import raise_here
from ..tensor.handle import Tensor, handle
from .arguments import rebuilding
from .compiled_graph import CompiledGraph
from .guards import Guards
from .inputs import Inputs, State, version_of
from .optimizer_settings import Settings
from .trace_recorder import TraceRecorder


class Output(NamedTuple):
    """The properties of a result's handle."""

    data: Any
    requires_grad: bool
    place: int | None
    """The place of the tensor whose version it shares, among the inputs followed by the results; None for its own."""
    version: int
    inference: bool


class CacheEntry:
    """A traced function that can be called again. Raises Unrepeatable if it cannot."""

    def __init__(self, trace: TraceRecorder, guards: Guards, settings: list[tuple[int, Settings]], result: Any) -> None:
        """Describe a trace. ``settings`` are those of optimizer steps; ``result`` is what the traced run returned."""
        self.recorder, self.guards, self.calls = trace.recorder, guards, 0
        self._signature, self._settings = trace.signature, settings
        results: list[Tensor] = []
        self._rebuild = rebuilding(result, trace.inputs.places, results)
        self._find_changes(trace, results)
        self._find_effects(trace)
        self._describe(trace, results)
        self._make_replay(trace, [made._id for made in results])
        _check_leaks(trace, results)

    @property
    def length(self) -> int:
        """The number of instructions that a call records."""
        return len(self._replay)

    # What a trace did ------------------------------------------------------------------------

    def _find_changes(self, trace: TraceRecorder, results: list[Tensor]) -> None:
        """Find the changes to the inputs. New gradients are added to ``results``."""
        tensors, places = trace.inputs.tensors, trace.inputs.places
        self._bumps: dict[int, int] = {}
        self._grads: list[tuple[int, bool, int | None, int | None]] = []
        seen: set[int] = set()
        for place, (tensor, before) in enumerate(zip(tensors, trace.before, strict=True)):
            now = State.of(tensor)
            if now.history != before.history:
                raise Unrepeatable("it changes the history of a tensor from outside")
            if now.version_counter is not before.version_counter or not _same_spec(now.data, before.data):
                raise Unrepeatable("it gives a tensor from outside other memory or another shape")
            if tensor._hooks is not None or tensor._grad_history is not None:
                raise Unrepeatable("a tensor from outside has a hook, or a gradient with a history")
            written = now.version - before.version
            if written and tensor._base is not None:
                raise Unrepeatable("it writes to a view from outside")
            if written and id(before.version_counter) not in seen:
                seen.add(id(before.version_counter))
                self._bumps[place] = written
            grad = now.grad
            if now.has_grad != before.has_grad or grad is not before.grad:
                known = None if grad is None else places.get(id(grad))
                made = None
                if grad is not None and known is None:
                    if all(other is not grad for other in results):
                        results.append(grad)
                    made = next(i for i, other in enumerate(results) if other is grad)
                self._grads.append((place, now.has_grad, known, made))

    def _find_effects(self, trace: TraceRecorder) -> None:
        """Find the effects of the instructions on the inputs, to be undone if they never run."""
        counters, places = trace.inputs.counters, trace.inputs.places
        self._changes: dict[int, tuple[list[tuple[int, int]], list[tuple[int, bool, int | None]]]] = {}
        """By instruction: places of tensors, with their versions before it, counted from the call's start; and places
        of tensors that get gradients, whether each had one before, and the places of the gradients added to."""
        for index, effect in trace.effects.items():
            receiving = [tensor for reference, _, _ in effect.received if (tensor := reference()) is not None]
            if any(id(tensor) not in places and tensor._id not in trace.made for tensor in receiving):
                raise Unrepeatable("it gives a gradient to a tensor that it finds where the guards do not look")
            versions = [
                (counters[id(counter)], version) for counter, version in effect.versions if id(counter) in counters
            ]
            received = [
                (places[id(tensor)], had, None if counter is None else counters.get(id(counter)))
                for reference, had, counter in effect.received
                if id(tensor := reference()) in places
            ]
            self._changes[index] = (
                [(place, version - trace.before[place].version) for place, version in versions],
                received,
            )

    def _describe(self, trace: TraceRecorder, results: list[Tensor]) -> None:
        """Find the properties of the results' handles."""
        inputs = trace.inputs
        counters = [each._version_counter for each in (*inputs.tensors, *results)]
        self._graph = CompiledGraph(trace.start, inputs.tensors, results)
        made = {id(result) for result in results}
        first: dict[int, int] = {}
        for place, counter in enumerate(counters):
            first.setdefault(id(counter), place)
        self._outputs = []
        for place, result in enumerate(results, len(inputs.tensors)):
            if type(result) is not Tensor:
                raise Unrepeatable(f"it makes a {type(result).__name__}")
            if result._id not in trace.made:
                raise Unrepeatable("it gives back a tensor that it finds where the guards do not look")
            if result._base is not None and (id(result._base) in inputs.places or id(result._base) in made):
                raise Unrepeatable("it gives back a view of an argument or of another result")
            if result._hooks is not None or result._has_grad:
                raise Unrepeatable("a result has a hook or a gradient")
            shared = first[id(result._version_counter)]
            at, marked = None if shared == place else shared, inference.is_marked(result)
            self._outputs.append(Output(result._data, result._requires_grad, at, version_of(result), marked))

    # What is recorded again -------------------------------------------------------------------

    def _make_replay(self, trace: TraceRecorder, results: Sequence[str]) -> None:
        """Make the replay, and find which inputs it takes and which of the created tensors are results."""
        places = {tensor._id: place for place, tensor in reversed(list(enumerate(trace.inputs.tensors)))}
        taken: dict[str, int] = {}
        unbound: set[str] = set()
        """Ids that were assigned to gradients that do not exist."""
        for instruction in trace.instructions:
            for name in names_in(instruction.inputs):
                if name not in trace.made:
                    if name not in places:
                        raise Unrepeatable("it uses a tensor that it finds where the guards do not look")
                    taken[name] = places[name]
            if instruction.op == "grad":
                unbound.update(instruction.outputs)
        unbound -= trace.created_ids
        self._takes = [*taken.values()]
        dropped = trace.made.difference(results, unbound)
        self._replay = Replay(trace.instructions, trace.lines, [*taken], dropped)
        made = self._replay.made
        self._results = [made.index(name) for name in results]

    # Calling ---------------------------------------------------------------------------------

    def numbers(self, inputs: Inputs) -> list[float] | None:
        """The optimizers' numbers for a call on these inputs; None if the trace is not valid for it."""
        if inputs.signature() != self._signature:
            return None
        if self.guards.changed() is not None:
            return None
        found: list[float] = []
        for _, settings in self._settings:
            now = settings.now()
            if now is None:
                return None
            found += now
        return found

    def run(self, inputs: Inputs, numbers: Sequence[float]) -> Any:
        """Run one call: record its instructions, and make their changes to the handles."""
        recorder, tensors = self.recorder, inputs.tensors
        taken = [tensors[place]._id for place in self._takes]
        with recorder.lock:
            made = recorder.replay(self._replay, taken, self._attrs(numbers), self._effects(tensors))
            results = [
                handle(recorder, output.data, made[place])
                for output, place in zip(self._outputs, self._results, strict=True)
            ]
            self.calls += 1
            self._repeat(tensors, results)
            raise_here(recorder, self._replay)
        return self._rebuild(tensors, results)

    def _attrs(self, numbers: Sequence[float]) -> Mapping[int, Mapping[str, Any]]:
        """The attributes of the optimizer steps, with these numbers among their settings."""
        found, given = {}, iter(numbers)
        for index, step in self._settings:
            attrs = self._replay.steps[index].attrs
            found[index] = {**attrs, "settings": {**attrs["settings"], **{name: next(given) for name in step.numbers}}}
        return found

    def _effects(self, tensors: Sequence[Tensor]) -> Mapping[int, Effect]:
        """The effects of the instructions on these tensors, to be undone if they never run."""
        found: dict[int, Effect] = {}
        for index, (versions, received) in self._changes.items():
            counters = [(tensors[place]._version_counter, later) for place, later in versions]
            found[index] = Effect(
                [(counter, counter[0] + later) for counter, later in counters],
                received=[
                    (weakref.ref(tensors[place]), had, None if grad is None else tensors[grad]._version_counter)
                    for place, had, grad in received
                ],
            )
        return found

    def _repeat(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Make the changes to these handles that the trace made to its own."""
        for place, written in self._bumps.items():
            tensors[place]._version_counter[0] += written
        for result, output in zip(results, self._outputs, strict=True):
            if output.place is not None:
                other = _at(output.place, tensors, results)
                result._version_counter = other._version_counter
                self.recorder.sharing.add(result, other)
            elif output.inference:
                inference.mark([result])
            else:
                result._version_counter[0] = output.version
            result._requires_grad = output.requires_grad
        graph, segment = self._graph, self.recorder.segment
        if graph.made:
            taken = [_at(place, tensors, results) for place in graph.taken]
            segment.join(graph.entry, taken, [results[index] for index in graph.made], segment.lazy)
        for place, has_grad, known, made in self._grads:
            tensor = tensors[place]
            tensor._has_grad = has_grad
            tensor._grad = results[made] if made is not None else None if known is None else tensors[known]


def _at(place: int, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> Tensor:
    """The tensor at a place among the inputs, followed by the results."""
    return tensors[place] if place < len(tensors) else results[place - len(tensors)]


def _same_spec(a: Any, b: Any) -> bool:
    return a is b or (a.shape == b.shape and a.dtype == b.dtype)


def _check_leaks(trace: TraceRecorder, results: list[Tensor]) -> None:
    """Raise Unrepeatable if a tensor that the function made is still alive and is not a result."""
    kept = {t._id for t in results} | {t._base._id for t in results if isinstance(t._base, Tensor)}
    left = trace.made - kept
    if not left.isdisjoint(trace.handles):
        gc.collect()  # frees tensors that only reference cycles keep
    if not left.isdisjoint(trace.handles):
        raise Unrepeatable("it keeps a tensor that it makes")
