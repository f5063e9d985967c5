"""One way that a function went, as a procedure of the session: what it takes, what must hold, and what it leaves.

What a trace did to tensors that were there before is known from their state before and after. A call sends one
instruction and does the same to their handles.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine import inference
from telegrad_engine.errors import TelegradError
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction
from telegrad_engine.program.data import program_data
from telegrad_engine.program.procedures import MOST_BYTES, MOST_PROCEDURES, STEP, Procedure

from ..tape.recorder import Recorder
from ..tape.recording import Defined
from ..tensor import Tensor, handle
from .capture import Capture
from .given import Before, Given, Like, like, same_spec
from .graph import Condenser, Unrepeatable, instantiate
from .settings import Settings
from .structure import Rebuild
from .surroundings import Surroundings

_names = count(1)


class Output(NamedTuple):
    """What a handle on a result has to know."""

    data: Any
    requires_grad: bool
    node: int | None
    slot: int
    place: int | None
    """The tensor whose version it shares: one that was given, or, further up, an earlier result."""
    version: int
    inference: bool


class Trace(NamedTuple):
    """All that one run of the function left behind."""

    recorder: Recorder
    capture: Capture
    given: Given
    before: list[Before]
    pattern: list[int]
    likes: list[Like]
    start: int
    """The number of the first node."""
    around: Surroundings
    settings: list[tuple[int, Settings]]
    """Of the steps of optimizers, by their place among the instructions, whose numbers a call gives."""


class Variant:
    """A traced function that can be called again. Raises Unrepeatable if it cannot."""

    def __init__(self, trace: Trace, rebuild: Rebuild, results: list[Tensor]) -> None:
        self.recorder, self.around = trace.recorder, trace.around
        # Other clients of the session have procedures, too.
        self.name = f"compiled_{self.recorder.transport.id_prefix}{next(_names)}"
        self.calls = 0
        self._pattern, self._likes = trace.pattern, trace.likes
        self._rebuild = rebuild
        self._steps = trace.capture.steps
        self._lines = trace.capture.lines
        self._settings = [settings for _, settings in trace.settings]
        self._attrs = {"name": self.name}
        self._effects(trace, results)
        self._describe(trace, results)
        self._define(trace, [result._id for result in results])
        weakref.finalize(self, _forget, weakref.ref(self.recorder), self.name).atexit = False

    @property
    def length(self) -> int:
        """How many instructions a call stands for."""
        return len(self._lines)

    # What a trace did ------------------------------------------------------------------------

    def _effects(self, trace: Trace, results: list[Tensor]) -> None:
        """Find out what happened to the tensors that were there; new gradients are results, too."""
        tensors = trace.given.tensors
        places = {id(tensor): place for place, tensor in reversed(list(enumerate(tensors)))}
        self._bumps: dict[int, int] = {}
        self._grads: list[tuple[int, bool, int | None, int | None]] = []
        seen: set[int] = set()
        for place, (tensor, before) in enumerate(zip(tensors, trace.before, strict=True)):
            if (tensor._node, tensor._slot, tensor._requires_grad) != (before.node, before.slot, before.requires_grad):
                raise Unrepeatable("it changes the history of a tensor from outside")
            if tensor._cell is not before.cell or not same_spec(tensor._data, before.data):
                raise Unrepeatable("it gives a tensor from outside other memory or another shape")
            if tensor._hooks is not None or tensor._grad_history is not None:
                raise Unrepeatable("a tensor from outside has a hook, or a gradient with a history")
            behind = list.__getitem__(before.cell, 0) - before.version
            if behind and tensor._base is not None:
                raise Unrepeatable("it writes to a view from outside")
            if behind and id(before.cell) not in seen:
                seen.add(id(before.cell))
                self._bumps[place] = behind
            if tensor._has_grad != before.has_grad or tensor._grad is not before.grad:
                grad = tensor._grad
                known = None if grad is None else places.get(id(grad))
                made = None
                if grad is not None and known is None:
                    if all(other is not grad for other in results):
                        results.append(grad)
                    made = next(i for i, other in enumerate(results) if other is grad)
                self._grads.append((place, tensor._has_grad, known, made))

    def _describe(self, trace: Trace, results: list[Tensor]) -> None:
        """What the handles on the results have to know."""
        before = trace.before
        cells = [*[b.cell for b in before], *[r._cell for r in results]]
        places = {
            (id(t if b.node is None else b.node), b.slot): place
            for place, (t, b) in reversed(list(enumerate(zip(trace.given.tensors, before, strict=True))))
        }
        condenser = Condenser(results, places, cells, trace.start)
        self._nodes = condenser.templates
        given, made = {id(t) for t in trace.given.tensors}, {id(r) for r in results}
        first: dict[int, int] = {}
        for place, cell in enumerate(cells):
            first.setdefault(id(cell), place)
        self._outputs = []
        for place, result in enumerate(results, len(before)):
            if type(result) is not Tensor:
                raise Unrepeatable(f"it makes a {type(result).__name__}")
            if result._id not in trace.capture.made:
                raise Unrepeatable("it gives back a tensor that it finds where the guards do not look")
            if result._base is not None and (id(result._base) in given or id(result._base) in made):
                raise Unrepeatable("it gives back a view of an argument or of another result")
            if result._hooks is not None or result._has_grad:
                raise Unrepeatable("a result has a hook or a gradient")
            shared = first[id(result._cell)]
            version = list.__getitem__(result._cell, 0)
            node = condenser.node_of(result)
            marked = inference.is_marked(result)
            at = shared if shared != place else None
            self._outputs.append(Output(result._data, result._requires_grad, node, result._slot, at, version, marked))

    # As a procedure --------------------------------------------------------------------------

    def _define(self, trace: Trace, outputs: Sequence[str]) -> None:
        """The procedure's definition, and which tensors it takes."""
        tensors, capture = trace.given.tensors, trace.capture
        places = {tensor._id: place for place, tensor in reversed(list(enumerate(tensors)))}
        names: dict[str, str] = {}
        self._takes: list[int] = []
        inputs: list[str] = []

        def named(values: Sequence[Any]) -> list[Any]:
            return [
                rename(x) if isinstance(x, str) else named(x) if isinstance(x, (tuple, list)) else x for x in values
            ]

        def rename(name: str) -> str:
            if name not in names:
                names[name] = f"_{len(names)}"
                if name not in capture.made:
                    if name not in places:
                        raise Unrepeatable("it uses a tensor that it finds where the guards do not look")
                    self._takes.append(places[name])
                    inputs.append(names[name])
            return names[name]

        of_step = dict(trace.settings)
        numbers: list[str] = []
        instructions = []
        for index, i in enumerate(capture.instructions):
            attrs = i.attrs
            if i.op == STEP and index in of_step:
                settings = dict(attrs["settings"])
                for key in of_step[index].numbers:
                    numbers.append(f"n{len(numbers)}")
                    settings[key] = numbers[-1]
                attrs = {**attrs, "settings": settings}
            mode = i.grad_mode or (None if state.grad_enabled else "enable_grad")
            instructions.append(Instruction(i.op, named(i.inputs), named(i.outputs), attrs, mode))
        out = [rename(name) for name in outputs]
        program = program_data(instructions, None)["instructions"]
        self._definition = {"in": [*inputs, *numbers], "instructions": program, "out": out}
        try:
            self._size = Procedure(self._definition).size
        except (TelegradError, ValueError) as error:
            raise Unrepeatable(f"it cannot be a procedure: {error}") from None

    # Calling ---------------------------------------------------------------------------------

    def numbers(self, given: Given) -> list[float] | None:
        """The numbers of a call on these tensors; None if the trace is not good for it."""
        tensors = given.tensors
        if len(tensors) != len(self._likes) or given.pattern() != self._pattern:
            return None
        if [*map(like, tensors)] != self._likes:
            return None
        if self.around.changed() is not None:
            return None
        found: list[float] = []
        for settings in self._settings:
            now = settings.now()
            if now is None:
                return None
            found += now
        return found

    def is_defined(self) -> bool:
        """See to it that the session has the procedure; False if there is no room for more of them."""
        known = self.recorder.procedures
        if self.name not in known:
            if len(known) >= MOST_PROCEDURES or sum(p.size for p in known.values()) + self._size > MOST_BYTES:
                return False
            self.recorder.emit("define", (), (), {"name": self.name, "program": self._definition})
            known[self.name] = Defined(self._lines, self._size)
        return True

    def run(self, given: Given, numbers: Sequence[float]) -> Any:
        """One call: one instruction, and what it does to the handles."""
        recorder, tensors = self.recorder, given.tensors
        results = [handle(recorder, output.data) for output in self._outputs]
        names = [result._id for result in results]
        inputs = (*[tensors[place]._id for place in self._takes], *numbers)
        with recorder.lock:
            try:
                recorder.emit("call", [inputs], names, self._attrs)
            except TelegradError as error:
                recorder.refuse(names, error)
                raise
            if self._steps:
                recorder.note_step()
        self.calls += 1
        self._repeat(tensors, results)
        return self._rebuild(tensors, results)

    def _repeat(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Do to the handles what the trace did to those of its day."""
        for place, behind in self._bumps.items():
            tensors[place]._cell[0] += behind
        for result, output in zip(results, self._outputs, strict=True):
            if output.place is not None:
                result._cell = _at(output.place, tensors, results)._cell
            elif output.inference:
                inference.mark([result])
            else:
                result._cell[0] = output.version
            result._requires_grad = output.requires_grad
        if self._nodes:
            nodes = instantiate(self._nodes, tensors, results, lambda place: _at(place, tensors, results)._cell)
            for result, output in zip(results, self._outputs, strict=True):
                if output.node is not None:
                    result._node, result._slot = nodes[output.node], output.slot
        for place, has_grad, known, made in self._grads:
            tensor = tensors[place]
            tensor._has_grad = has_grad
            tensor._grad = results[made] if made is not None else None if known is None else tensors[known]


def _at(place: int, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> Tensor:
    """The tensor at a place among those that were given and the results behind them."""
    return tensors[place] if place < len(tensors) else results[place - len(tensors)]


def _forget(recorder: weakref.ref[Recorder], name: str) -> None:
    found = recorder()
    if found is not None:
        found.forgotten.append(name)
