"""Segments: the steps up to the end of a training step or a wait, as a flat list, with their effects.

Effects on the shadow graph can be undone for instructions that never ran. They reference tensors weakly, so that an
instruction in flight keeps no handle alive.

The templates of a session are those of the segments that it has recorded, by their steps and slots.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.template import TAKES_DATA, Ending, stand_ins, template_of
from telegrad_engine.program.wire import Call

from ..call_site import Line, Position
from .lazy_graph import LazyGraph
from .step import Block, Places, Single, is_quiet, step_of

FIELDS = 3
"""The number of items in ``recorded`` for each step or block."""
HISTORY = ("_data", "_node", "_output_nr", "_requires_grad", "_lazy", "_inverse_chain", "_seen_version")
"""The attributes of a tensor that an in-place change may replace, besides its version."""
Reference = weakref.ref[Any]
Received = tuple[Reference, bool, list[int] | None]
"""A tensor that gets a gradient in a pass, whether it had one before, and the version counter of that one's handle."""


class Effect:
    """The effect of one instruction on the shadow graph: new versions, other places in the graph, and gradients."""

    def __init__(
        self,
        versions: Sequence[tuple[list[int], int]] = (),
        places: Sequence[tuple[Reference, Mapping[str, Any]]] = (),
        received: Sequence[Received] = (),
    ) -> None:
        self.versions = versions
        """Version counters and their values before the instruction."""
        self._places = places
        """The tensors that it moves, and their attributes before it."""
        self.received = received

    def undo(self) -> None:
        """Restore the state before the instruction; all later effects on the same tensors were undone already."""
        for counter, version in self.versions:
            counter[0] = version
        for reference, before in self._places:
            tensor = reference()
            if tensor is not None:
                for name in HISTORY:
                    if name in before:
                        setattr(tensor, name, before[name])
                    elif name in vars(tensor):
                        delattr(tensor, name)
        for _, _, grad_counter in self.received:
            if grad_counter is not None:
                grad_counter[0] -= 1

    @property
    def receivers(self) -> list[tuple[Any, bool]]:
        """The tensors that get gradients and are still alive, each with whether it had a gradient before."""
        return [(tensor, had) for reference, had, _ in self.received if (tensor := reference()) is not None]


def change_of(tensor: Any) -> Effect:
    """The effect of an in-place change of a tensor, which also moves its base to another place in the graph."""
    counter = tensor._version_counter
    both = (tensor,) if tensor._base is None else (tensor, tensor._base)
    before = [(weakref.ref(x), {name: vars(x)[name] for name in HISTORY if name in vars(x)}) for x in both]
    return Effect([(counter, counter[0])], before)


class Recorded(NamedTuple):
    """An instruction, the user's line that recorded it, and its effect on the shadow graph."""

    instruction: Instruction
    line: Line | None = None
    effect: Effect | None = None


class Slots(dict[str, int]):
    """The slots of ids, in the order in which they first appear; a new id gets the next one."""

    def __missing__(self, name: str) -> int:
        slot = self[name] = len(self)
        return slot


class Segment:
    """A list of steps on slots, with the arrays that they upload and their effects on the shadow graph."""

    def __init__(self, watched: bool = False) -> None:
        self.watched = watched
        """Whether each instruction must be recorded by :meth:`add`."""
        self.slots = Slots()
        self.recorded: list[Any] = []
        """The steps and blocks, each with its slots and the user's line that recorded it, as FIELDS items of the list.

        A block has lines of its own. An interrupt never finds a part of them in the list."""
        self.next_check = 0
        """How long ``recorded`` is when the recorder checks again whether it is time to send."""
        self._more = 0
        """The number of instructions of the blocks that are more than one for each block."""
        self.arrays: dict[int, Any] = {}
        """The arrays that it uploads, by the instruction's index."""
        self.nbytes = 0
        """Their size in bytes."""
        self.effects: dict[int, Effect] = {}
        """The effects on the shadow graph, by the instruction's index."""
        self.marks: list[tuple[int, str | None]] | None = None
        """Where modules were entered and left, if that is tracked (:mod:`.origins`)."""
        self.training_steps = 0
        """The number of training steps that have ended in it."""
        self.lazy: LazyGraph | None = None
        """The lazy graph of the last calls, as long as more calls may join it."""
        self.ending = Ending()
        self.template: SentTemplate
        """The segment's template, once it has ended."""

    def __len__(self) -> int:
        return len(self.recorded) // FIELDS + self._more

    def add(
        self,
        op: str,
        inputs: Sequence[Any],
        outputs: Sequence[str],
        attrs: Mapping[str, Any],
        mode: str | None,
        position: Position | None,
        effect: Effect | None = None,
    ) -> None:
        """Add an instruction, recorded by this line of the user's, with its effect on the shadow graph."""
        step = step_of(op, inputs, len(outputs), attrs, mode)
        if op in TAKES_DATA:
            self.arrays[len(self)] = attrs["data"]
            self.nbytes += attrs["data"].nbytes
        if effect is not None:
            self.effects[len(self)] = effect
        if not is_quiet(op, attrs):
            self.lazy = None
        slots = self.slots
        self.recorded.extend((step, tuple([slots[name] for name in (*names_in(inputs), *outputs)]), position))

    def add_block(self, block: Block, ids: Sequence[str], effects: Mapping[int, Effect]) -> None:
        """Add a block on these ids, with the effects of its steps on the shadow graph, by index."""
        start = len(self)
        for index, effect in effects.items():
            self.effects[start + index] = effect
        if not block.keeps_graph:
            self.lazy = None
        self._more += len(block) - 1
        self.recorded.extend((block, tuple([self.slots[name] for name in ids]), None))

    def watch(self, watched: bool) -> None:
        """Set whether each instruction must be recorded by :meth:`add` from now on."""
        self.watched, self.lazy = watched, None

    @property
    def block(self) -> Block:
        """The segment, whose entries are steps, as one entry of another segment."""
        steps, places, positions = [self.recorded[i::FIELDS] for i in range(FIELDS)]
        return Block(steps, places, positions)

    # Ending ---------------------------------------------------------------------------------------

    @property
    def steps(self) -> list[Any]:
        """The steps and blocks."""
        return self.recorded[::FIELDS]

    @property
    def positions(self) -> list[Position | None]:
        """The user's line that recorded each instruction, without those of the ending."""
        entries = zip(self.steps, self.recorded[1::FIELDS], self.recorded[2::FIELDS], strict=True)
        return [position for step, places, own in entries for _, _, position in step.expanded(places, own)]

    @property
    def key(self) -> Key:
        """What tells its template from others: the kinds of its steps, and their slots."""
        return tuple([step.kind for step in self.steps]), tuple(self.recorded[1::FIELDS])

    def end(
        self, templates: Templates, dead: Sequence[str], fetch: Sequence[str] = (), values: bool = True
    ) -> list[str]:
        """End the segment: fetch tensors and free the dead ones. Return the dead ids that the segment does not have."""
        self.lazy = None
        self.template = templates.of(self.key, len(self.slots))
        slots = self.slots
        fetched = tuple([slots.setdefault(name, len(slots)) for name in fetch])
        freed = sorted([slots[name] for name in dead if name in slots])
        self.ending = Ending(fetched, values, tuple(freed))
        return [name for name in dead if name not in slots]

    def call(self) -> Call:
        """The segment as a message carries it."""
        operands = [x for step in self.steps if step.operands for x in step.operands]
        arrays = {name: self.arrays[index] for name, index in self.template.uploads}
        return Call(self.template.template, [*self.slots], operands, arrays, self.ending)

    def program(self) -> list[Recorded]:
        """The instructions, including the final fetch and free."""
        found, names = list[Recorded](), [*self.slots]
        entries = zip(self.steps, self.recorded[1::FIELDS], self.recorded[2::FIELDS], strict=True)
        for step_or_block, entry_places, entry_position in entries:
            for step, places, position in step_or_block.expanded(entry_places, entry_position):
                index = len(found)
                instruction = step.instruction([names[slot] for slot in places], self.arrays.get(index))
                found.append(Recorded(instruction, position and Line(*position), self.effects.get(index)))
        fetch, values, free = self.ending
        for op, slots, attrs in (("fetch", fetch, {"values": values}), ("free", free, {})):
            if slots:
                ids = tuple([names[slot] for slot in slots])
                found.append(Recorded(Instruction(op, [ids], (), attrs, None, True)))
        return found


MAX_STEPS = 100_000
"""How many steps the remembered templates have together; those used last are remembered."""
DIGITS = 12
"""How many digits of a digest are shown in reports."""
Key = tuple[tuple[Any, ...], tuple[Places, ...]]
"""The kinds of a segment's steps, and their places."""


class SentTemplate:
    """A template, and where its segments have uploads.

    It refers to few objects besides its key, because most segments never recur.
    """

    def __init__(self, key: Key, slots: int) -> None:
        names = stand_ins(slots)
        self._key = key
        self.sent = self.recurs = False
        """Whether it has been sent to the server, and whether it was recorded more than once."""
        texts, operands, steps = [], 0, self.steps
        for step, places, _ in steps:
            texts.append(step.text([names[slot] for slot in places], operands))
            operands += len(step.operands)
        self.length = len(steps)
        self.template = template_of(texts)
        self.uploads = [
            (names[places[0]], index) for index, (step, places, _) in enumerate(steps) if step.op in TAKES_DATA
        ]
        """The placeholders of the uploaded arrays, and the indices of the instructions that upload them."""

    @property
    def steps(self) -> list[Single]:
        """The single steps, with their places."""
        return [single for step, places in zip(*self._key, strict=True) for single in step.expanded(places)]


class Templates:
    """The templates of one session."""

    def __init__(self) -> None:
        self._known: dict[Key, SentTemplate] = {}
        """By key, that used last at the end."""
        self._steps = 0
        self._newest: SentTemplate | None = None

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Key, slots: int) -> SentTemplate:
        """The template with this key, of a segment with that many slots."""
        found = self._known.pop(key, None)
        if found is not None:
            found.recurs = True
        else:
            found = self._newest = SentTemplate(key, slots)
            self._steps += found.length
            while self._steps > MAX_STEPS and self._known:
                self._steps -= self._known.pop(next(iter(self._known))).length
        self._known[key] = found
        return found

    def unsent(self, templates: Sequence[SentTemplate]) -> set[str]:
        """Return the digests of those that are sent for the first time, and mark them as sent."""
        new = [each for each in templates if not each.sent]
        for each in new:
            each.sent = True
        return {each.template.digest for each in new}

    def misses(self) -> list[dict[str, Any]]:
        """A report on the newest template, with the instruction by which it differs from the most similar one."""
        new = self._newest
        if new is None:
            return []
        others = [each for each in self._known.values() if each is not new]
        others = [each for each in others if each.recurs] or others
        reason = "it was sent for the first time"
        if others:
            same, _, other = max([(_alike(new, each), index, each) for index, each in enumerate(others)])
            reason += "; " + _difference(new, other, same)
        return [{"digest": None, "instructions": new.length, "runs": 1, "planned_runs": 0, "reason": reason}]


def _alike(one: SentTemplate, other: SentTemplate) -> int:
    """How many instructions two templates begin with alike."""
    for index, (a, b) in enumerate(zip(one.steps, other.steps, strict=False)):
        if a[0].kind is not b[0].kind or a[1] != b[1]:
            return index
    return min(len(one.steps), len(other.steps))


def _difference(new: SentTemplate, other: SentTemplate, index: int) -> str:
    """Describe the difference at the first instruction that is not alike."""
    name = f"program {other.template.digest[:DIGITS]}"
    if index == len(other.steps) < len(new.steps):
        return f"{name} ends before instruction {index}, {new.steps[index][0].op}"
    if index == len(new.steps):
        longer = other.steps[index][0].op if index < len(other.steps) else "the end"
        return f"unlike {name}, it ends before instruction {index}, {longer}"
    step, old = new.steps[index][0], other.steps[index][0]
    where = f"unlike {name}, instruction {index}"
    if step.op != old.op:
        return f"{where} is {step.op}, and not {old.op}"
    if step.settings != old.settings:
        return f"{where}, {step.op}, has {step.settings or 'no settings'}, and not {old.settings or 'none'}"
    if step.mode != old.mode:
        return f"{where}, {step.op}, is recorded in another grad mode"
    return f"{where}, {step.op}, takes other tensors"
