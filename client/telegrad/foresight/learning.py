"""How paths come about: from what is noted while a message is recorded that was sent twice before."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from telegrad_engine.dtypes import DType
from telegrad_engine.functions import Resolve
from telegrad_engine.modes import state
from telegrad_engine.program import Instruction
from telegrad_engine.program.canonical import stand_in
from telegrad_engine.program.data import TAKES_DATA
from telegrad_engine.registry import CATALOGUE
from telegrad_engine.repeated import Prepare

from ..effects import bare
from ..elision import free
from ..lines import Line, depth_of_user
from ..packing import Remembered
from .calls import CONSTANT, Call, Kind, Results, kind_of, placed
from .drawing import Sketch
from .rounds import Round
from .steps import Ending, Step, places_of

MOST_STEPS, MOST_WAYS = 20_000, 8
"""How many steps a session keeps before it begins anew, and how many that came in one another's place."""
PATIENCE, SELDOM = 32, 16
"""How many messages are learned, one after the other, though none of them comes again; then it is one in so many."""
HARMLESS = frozenset({"alias", "apply", "backward", "detach", "grad", "grad_of", "set_grad", "tensor", "zero_grad"})
"""The verbs after which all tensors are of the kinds that they were before."""
PLAIN = (int, float, str, type(None), type(Ellipsis), DType)


class Noted(NamedTuple):
    """A call that recorded one instruction."""

    front: Callable[..., Any]
    names: tuple[str, ...]
    args: tuple[Any, ...]
    """Its arguments; of tensors the ids."""
    known: tuple[Kind | None, ...]
    """Of those that are tensors what kind; None for the others."""
    results: Results
    resolve: Resolve
    depth: int
    kinds: Container[type[Any]]

    def as_call(self, grad: bool, places: dict[str, int], sure: set[int]) -> Call:
        """The call with places for ids; ``sure`` are those of which the kind is known."""
        width, pairs = len(places), [*zip(self.args, self.known, strict=True)]
        own = tuple([CONSTANT if kind is None else placed(x, places) for x, kind in pairs])
        constants = tuple([x if kind is None else None for x, kind in pairs])
        checks = tuple([(i, kind) for i, kind in enumerate(self.known) if kind is not None and own[i] not in sure])
        return Call(
            self.front,
            self.names,
            own,
            constants,
            checks,
            grad,
            self.results,
            self.resolve,
            self.depth,
            width,
            self.kinds,
        )


class Notes:
    """The calls that recorded a message, by how many instructions there were before."""

    def __init__(self, start: Step, names: Sequence[str]) -> None:
        """From a step on, up to which there are these ids."""
        self.start, self.names = start, names
        self.calls: dict[int, Noted] = {}
        self.program: list[Instruction] = []
        """All that was recorded, once it is finished; then ``lines`` and ``dead`` are known as well."""

    def finished(
        self, program: Sequence[Instruction], lines: Sequence[Line | None], dead: Sequence[str]
    ) -> Notes | None:
        """The notes of a message that is about to be sent, and free these tensors; None if it was so before."""
        if self.program:
            return None
        self.program, self.lines, self.dead = [*program], [*lines], dead
        return self


def watch(
    recorder: Any,
    front: Callable[..., Any],
    call: Callable[..., Any],
    resolve: Resolve,
    prepare: Prepare,
    kinds: Container[type[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Make a call, and note it if it does no more than record an op on tensors; it may be where a path is left."""
    given = (*args, *kwargs.values())
    tensors = [x for x in given if type(x) in kinds]
    before = tuple([kind_of(x) if type(x) in kinds else None for x in given])
    length = recorder.waiting
    result = call(*args, **kwargs)
    notes = recorder.notes
    if notes is None or recorder.waiting != length + 1 or state.autocast is not None:
        return result
    if any(kind is None and not _is_plain(x) for x, kind in zip(given, before, strict=True)):
        return result
    instruction, resolved = recorder.pending[-1], resolve(args, kwargs)
    if resolved is None or resolved[0].composite or resolved[0].key != instruction.op:
        return result
    outputs = result if isinstance(result, tuple) else (result,)
    results: Any = prepare(*resolved, tensors)
    if results is not None and [getattr(x, "_id", None) for x in outputs] == list(instruction.outputs):
        named = tuple([x._id if type(x) in kinds else deepcopy(x) for x in given])  # a list may be another's next time
        depth = depth_of_user(watch.__code__)  # next time nobody watches, neither here nor around a composite
        notes.calls[length] = Noted(front, tuple(kwargs), named, before, results, resolve, depth, kinds)
    return result


def _is_plain(value: Any) -> bool:
    """Whether a constant tells all about itself when it is printed."""
    if isinstance(value, slice):
        return _is_plain((value.start, value.stop, value.step))
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


class Foresight:
    """The paths of a session's messages, and whether the next one's is to be learned."""

    def __init__(self) -> None:
        self.start = Step()
        self.learning = False
        """Whether a message was sent again of which it is not known how it is recorded."""
        self._count = self._sent = self._in_vain = 0

    def begin(self) -> Round | None:
        """A message of which nothing is recorded yet, where something is known of what may come."""
        return None if self.start.next is None else Round(self.start)

    def notes(self, ahead: Round | None = None) -> Notes | None:
        """Notes of a message from its beginning, or from where it left its path, unless it was about to be sent."""
        if ahead is None:
            return Notes(self.start, ())
        return Notes(ahead.last, [*ahead.places]) if ahead.ended is None else None

    def sent(self, notes: Notes | None, remembered: Remembered | None, foreseen: bool) -> None:
        """Learn from a message that is sent, and whether there is something to learn of the next."""
        if foreseen:
            self._in_vain = 0
        self._sent += 1
        willing = self._in_vain < PATIENCE or self._sent % SELDOM == 0
        self.learning = willing and not foreseen and remembered is not None
        if notes is not None and notes.program and remembered is not None:
            self._in_vain += 1
            self._learn(notes, remembered)

    def _learn(self, notes: Notes, remembered: Remembered) -> None:
        """Keep how a message was recorded that the server remembers."""
        if self._count > MOST_STEPS:
            self.start, self._count = Step(), 0
            return
        program, dead = notes.program, notes.dead
        steps: dict[int, Step] = {}
        step, places, sure = notes.start, {name: place for place, name in enumerate(notes.names)}, set[int]()
        sketch = Sketch()
        for instruction, earlier in zip(program, step.path(), strict=False):
            steps[id(instruction)] = earlier
            _settle(earlier, sure)
            sketch.follow(earlier)
        for index in range(step.index, len(program)):
            instruction, noted = program[index], notes.calls.get(index)
            call = noted and noted.as_call(instruction.grad_mode is None, places, sure)
            step = steps[id(instruction)] = self._kept(step, Step.of(step, instruction, call, places))
            step.line = bare(notes.lines[index])
            step.opening = sketch.follow(step)
            _settle(step, sure)
        found = places_of(dead, places)
        there = {**places, **dict(zip(dead, found, strict=True))}
        ids = tuple([there[name] for name in remembered.ids])
        step.endings = [ending for ending in step.endings if ending.dead != found][-MOST_WAYS:]
        uploads = _uploads(program, remembered.ids)
        sent = [*program]
        free(sent, [*notes.lines], dead)
        numbered = [steps[id(each)] for each in sent if id(each) in steps]
        numbered = [each for each in numbered if each.numbers.operands]
        step.endings.append(Ending(found, remembered.known, ids, uploads, tuple(numbered)))

    def _kept(self, before: Step, grown: Step) -> Step:
        """The step, or the one like it that there is already."""
        known = [*before.following]
        for step in known:
            if step.is_like(grown):
                return step
        if len(known) >= MOST_WAYS:
            known[-2].sibling = None
        grown.sibling, before.next = before.next, grown
        self._count += 1
        return grown


def _uploads(program: Sequence[Instruction], ids: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """What a program of these ids calls its arrays, and the indices of the steps that upload them."""
    stand_ins = {name: stand_in(number) for number, name in enumerate(ids)}
    takers = [(index, i) for index, i in enumerate(program, 1) if i.op in TAKES_DATA]
    owners = [(i.outputs[0] if i.outputs else i.inputs[0], index) for index, i in takers]
    return tuple([(stand_ins[name], index) for name, index in owners if name in stand_ins])


def _settle(step: Step, sure: set[int]) -> None:
    """Note of which tensors the kinds are known behind a step, if they are known before it."""
    if step.call is not None:
        sure.update(place for place in step.call.places if place != CONSTANT)
        sure.update(step.outputs)
    elif step.op not in HARMLESS and step.op not in CATALOGUE.ops:
        sure.clear()
