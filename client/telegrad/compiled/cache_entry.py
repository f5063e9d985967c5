"""A traced run of a compiled function: its guards, the instructions to record again, and its changes to handles.

The changes that a trace makes to its inputs are known from their state before and after it. A call records the
instructions again as a whole (:mod:`..tape.replay`), and makes the same changes to the handles of its own tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.program.instructions import names_in
from telegrad_engine.tensor import inference

from ..tape.effects import Changed, Effect, Received, Stepped
from ..tape.recorder import Recorder
from ..tape.replay import Replay
from ..tensor.handle import Tensor, handle
from .arguments import Rebuild
from .compiled_nodes import CompiledGraph, Unrepeatable
from .guards import Guards
from .inputs import Before, Inputs, Like, like, same_spec
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


class Trace(NamedTuple):
    """The record of one traced run of a function."""

    recorder: Recorder
    recorded: TraceRecorder
    inputs: Inputs
    before: list[Before]
    pattern: list[int]
    likes: list[Like]
    start: int
    """The sequence number of the first node."""
    guards: Guards
    settings: list[tuple[int, Settings]]
    """The settings of optimizer steps, with the index of the instruction; each call supplies their numbers."""


class CacheEntry:
    """A traced function that can be called again. Raises Unrepeatable if it cannot."""

    def __init__(self, trace: Trace, rebuild: Rebuild, results: list[Tensor]) -> None:
        self.recorder, self.guards = trace.recorder, trace.guards
        self.calls = 0
        self._pattern, self._likes = trace.pattern, trace.likes
        self._rebuild = rebuild
        self._settings = trace.settings
        self._find_changes(trace, results)
        self._find_effects(trace)
        self._describe(trace, results)
        self._make_replay(trace, [result._id for result in results])

    @property
    def length(self) -> int:
        """The number of instructions that a call records."""
        return len(self._replay)

    # What a trace did ------------------------------------------------------------------------

    def _find_changes(self, trace: Trace, results: list[Tensor]) -> None:
        """Find the changes to the inputs. New gradients are added to ``results``."""
        tensors = trace.inputs.tensors
        places = {id(tensor): place for place, tensor in reversed(list(enumerate(tensors)))}
        self._bumps: dict[int, int] = {}
        self._grads: list[tuple[int, bool, int | None, int | None]] = []
        seen: set[int] = set()
        for place, (tensor, before) in enumerate(zip(tensors, trace.before, strict=True)):
            if (tensor._node, tensor._output_nr, tensor._requires_grad) != (
                before.node,
                before.output_nr,
                before.requires_grad,
            ):
                raise Unrepeatable("it changes the history of a tensor from outside")
            if tensor._version_counter is not before.cell or not same_spec(tensor._data, before.data):
                raise Unrepeatable("it gives a tensor from outside other memory or another shape")
            if tensor._hooks is not None or tensor._grad_history is not None:
                raise Unrepeatable("a tensor from outside has a hook, or a gradient with a history")
            written = list.__getitem__(before.cell, 0) - before.version
            if written and tensor._base is not None:
                raise Unrepeatable("it writes to a view from outside")
            if written and id(before.cell) not in seen:
                seen.add(id(before.cell))
                self._bumps[place] = written
            if tensor._has_grad != before.has_grad or tensor._grad is not before.grad:
                grad = tensor._grad
                known = None if grad is None else places.get(id(grad))
                made = None
                if grad is not None and known is None:
                    if all(other is not grad for other in results):
                        results.append(grad)
                    made = next(i for i, other in enumerate(results) if other is grad)
                self._grads.append((place, tensor._has_grad, known, made))

    def _find_effects(self, trace: Trace) -> None:
        """Find the effects of the instructions on the inputs, to be undone if they never run."""
        tensors = [*enumerate(trace.inputs.tensors)][::-1]
        cells = {id(tensor._version_counter): place for place, tensor in tensors}
        places = {id(tensor): place for place, tensor in tensors}
        self._received: dict[int, list[tuple[int, bool, int | None]]] = {}
        """The passes: places of tensors, whether each had a gradient before, and places of the gradients added to."""
        self._written: dict[int, list[tuple[int, int]]] = {}
        """The other changes: places of tensors, and their versions before the change, counted from the call's start."""
        for index, effect in trace.recorded.effects.items():
            if isinstance(effect, Received):
                noted = [(reference(), had, cell) for reference, had, cell in effect.noted]
                self._received[index] = [
                    (places[id(tensor)], had, None if cell is None else cells.get(id(cell)))
                    for tensor, had, cell in noted
                    if id(tensor) in places
                ]
            elif isinstance(effect, (Changed, Stepped)):
                known = [(cells[id(cell)], version) for cell, version in effect.versions if id(cell) in cells]
                self._written[index] = [(place, version - trace.before[place].version) for place, version in known]

    def _describe(self, trace: Trace, results: list[Tensor]) -> None:
        """Find the properties of the results' handles."""
        before = trace.before
        cells = [*[b.cell for b in before], *[r._version_counter for r in results]]
        places = {
            (id(t if b.node is None else b.node), b.output_nr): place
            for place, (t, b) in reversed(list(enumerate(zip(trace.inputs.tensors, before, strict=True))))
        }
        self._graph = CompiledGraph(results, places, cells, trace.start)
        given, made = {id(t) for t in trace.inputs.tensors}, {id(r) for r in results}
        first: dict[int, int] = {}
        for place, cell in enumerate(cells):
            first.setdefault(id(cell), place)
        self._outputs = []
        for place, result in enumerate(results, len(before)):
            if type(result) is not Tensor:
                raise Unrepeatable(f"it makes a {type(result).__name__}")
            if result._id not in trace.recorded.made:
                raise Unrepeatable("it gives back a tensor that it finds where the guards do not look")
            if result._base is not None and (id(result._base) in given or id(result._base) in made):
                raise Unrepeatable("it gives back a view of an argument or of another result")
            if result._hooks is not None or result._has_grad:
                raise Unrepeatable("a result has a hook or a gradient")
            shared = first[id(result._version_counter)]
            version = list.__getitem__(result._version_counter, 0)
            marked = inference.is_marked(result)
            at = shared if shared != place else None
            self._outputs.append(Output(result._data, result._requires_grad, at, version, marked))

    # What is recorded again -------------------------------------------------------------------

    def _make_replay(self, trace: Trace, results: Sequence[str]) -> None:
        """Make the replay, and find which inputs it takes and which of the created tensors are results."""
        recorded = trace.recorded
        places = {tensor._id: place for place, tensor in reversed(list(enumerate(trace.inputs.tensors)))}
        taken: dict[str, int] = {}
        unbound: set[str] = set()
        """Ids that were assigned to gradients that do not exist."""
        for instruction in recorded.instructions:
            for name in names_in(instruction.inputs):
                if name not in recorded.made:
                    if name not in places:
                        raise Unrepeatable("it uses a tensor that it finds where the guards do not look")
                    taken[name] = places[name]
            if instruction.op == "grad":
                unbound.update(instruction.outputs)
        unbound -= recorded.released
        self._takes = [*taken.values()]
        dropped = recorded.made.difference(results, unbound)
        self._replay = Replay(recorded.instructions, recorded.lines, [*taken], dropped)
        made = self._replay.made
        self._results = [made.index(name) for name in results]

    # Calling ---------------------------------------------------------------------------------

    def numbers(self, inputs: Inputs) -> list[float] | None:
        """The optimizers' numbers for a call on these inputs; None if the trace is not valid for it."""
        tensors = inputs.tensors
        if len(tensors) != len(self._likes) or inputs.pattern() != self._pattern:
            return None
        if [*map(like, tensors)] != self._likes:
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
        for index, changes in self._written.items():
            cells = [(tensors[place]._version_counter, later) for place, later in changes]
            found[index] = Stepped([(cell, cell[0] + later) for cell, later in cells])
        for index, received in self._received.items():
            found[index] = Received(
                [
                    (weakref.ref(tensors[place]), had, None if grad is None else tensors[grad]._version_counter)
                    for place, had, grad in received
                ]
            )
        return found

    def _repeat(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Make the changes to these handles that the trace made to its own."""
        for place, written in self._bumps.items():
            tensors[place]._version_counter[0] += written
        for result, output in zip(results, self._outputs, strict=True):
            if output.place is not None:
                result._version_counter = _at(output.place, tensors, results)._version_counter
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
