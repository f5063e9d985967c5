"""Programs that a server has seen: read and checked once, and run again with other ids and numbers.

Every op of a remembered program is a function that remembers its calls (tensor/call_cache.py). Programs share these
functions, so a new program of known ops is quick from its first run.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

from ..errors import InvalidValue, MalformedRequest, TelegradError, UnknownProgram
from ..lru import LRU
from ..tensor.call_cache import calling
from ..tensor.eager import apply
from ..tensor.fast_paths import KINDS, prepare
from . import json_codec
from .instructions import Instruction, names_in, parse_program
from .operands import Hole, extract, fill
from .overloads import find_op
from .template import TAKES_DATA, Ending, digest, stand_in, stand_ins
from .uploads import keep_apart
from .verbs import VERBS

MAX_PROGRAMS, MAX_BYTES = 512, 256 * 2**20
"""How many programs are remembered, and how many bytes they take together; the least recently used are forgotten."""
STEP_BYTES, TEXT_FACTOR = 2560, 4
"""What a program takes: bytes for each instruction, and for each byte of its text."""
CHECKED, MAX_ATTRS = 512, 1024
"""How many ops with their attributes are kept checked, for all programs of the process: those used last, of which the
attributes take so many characters at most."""
STEP_CALLS = 32
"""How many calls each of them remembers: one for each kinds of tensors, such as those of another batch size."""
ENDINGS = 16
"""With how many endings a template is remembered: those used last."""


class Step(NamedTuple):
    """One instruction of a remembered program, with stand-ins for ids."""

    instruction: Instruction
    call: Any
    """The op as a function of its inputs, for one that makes new tensors."""
    data: str | None
    """The name of the array that it uploads."""
    holes: tuple[Hole, ...] = ()
    """Where operands go. The instruction has 0 in these places; if some are in its attributes, these are unchecked."""

    def with_operands(self, operands: Sequence[Any]) -> Step:
        """The step with its operands in their places. Raises MalformedRequest if there are not as many."""
        if not self.holes:
            return self
        own = self.instruction
        inputs, attrs = list(own.inputs), own.attrs
        for hole in self.holes:
            value = hole.value(operands)
            if hole.path[0] == "in":
                inputs = fill(inputs, hole.path[1:], value)
            else:
                attrs = fill(attrs, hole.path[1:], value)
        filled = Instruction(own.op, inputs, own.outputs, attrs, own.grad_mode, own.checked)
        return self._replace(instruction=filled) if attrs is own.attrs else checked_step(filled, _filled)


class Remembered:
    """A program that was read and checked."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.digest = self.template = digest(text)
        """What it is known by, and what its template is."""
        self.outlines: dict[Any, Any] = {}
        """What each compiler knows of the program: it is forgotten with it."""
        self.is_new = True
        """Whether it was never looked up: then it runs once."""
        self.steps = _steps(json_codec.loads_program(text.encode(), max_depth), '"operand"' in text)
        self.size = STEP_BYTES * (len(self.steps) + 2) + TEXT_FACTOR * len(text)
        """How many bytes it takes, with the two instructions that an ending may have."""
        self._endings: LRU[Ending, Remembered] = LRU(ENDINGS)
        self._uploads = {step.data for step in self.steps if step.data is not None}
        self._operands = max((hole.operand + 1 for step in self.steps for hole in step.holes), default=0)

    @cached_property
    def _ids(self) -> float:
        """How many ids it needs."""
        names = [x for s in self.steps for x in names_in((s.instruction.inputs, s.instruction.outputs))]
        return max((_number(name) + 1 for name in names), default=0)

    def with_ending(self, ending: Ending) -> Remembered:
        """The program with its results fetched and freed at the end."""
        fetch, values, free = ending
        if not fetch and not free:
            return self
        program: Remembered | None = self._endings.get(ending)
        if program is None:
            program = copy(self)
            self._endings[ending] = program
            program.digest, program.outlines = digest(f"{self.digest} {ending}"), {}
            vars(program).pop("_ids", None)
            steps = [*self.steps]
            for name, slots, attrs in (("fetch", fetch, {"values": values}), ("free", free, {})):
                if slots:
                    steps.append(Step(Instruction(name, [tuple(map(stand_in, slots))], (), attrs), None, None))
            program.steps = steps
        return program

    def with_ids(self, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()) -> Bound:
        """The program on these tensors. Raises MalformedRequest where an id, an array or an operand is missing."""
        return Bound(self, ids, arrays, operands)

    def bind(self, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()) -> list[Instruction]:
        """The instructions on these tensors. Raises MalformedRequest as ``with_ids``."""
        names = dict(zip(stand_ins(len(ids)), ids, strict=False))
        program = []
        try:
            for template_step in self.steps:
                step = template_step.with_operands(operands)
                template, attrs = step.instruction, step.instruction.attrs
                if step.data is not None:
                    attrs = {**attrs, "data": arrays[step.data]}
                inputs, outputs = _named(template.inputs, names), _named(template.outputs, names)
                if self.is_new:  # nothing else has it
                    instruction = template
                    instruction.inputs, instruction.outputs, instruction.attrs = inputs, outputs, attrs
                else:
                    instruction = Instruction(template.op, inputs, outputs, attrs, template.grad_mode, template.checked)
                instruction.call = step.call
                program.append(instruction)
        except KeyError as error:
            raise MalformedRequest(
                f"instruction {len(program)} is on {error.args[0]}, for which there is no id or array",
                instruction=len(program),
            ) from None
        keep_apart(arrays[step.data] for step in self.steps if step.data is not None)
        return program

    def fits(self, ids: int, arrays: Mapping[str, Any]) -> bool:
        """Whether so many ids, and these arrays, are all that it needs."""
        return ids >= self._ids and self._uploads <= arrays.keys()

    def check_operands(self, count: int) -> None:
        """Raise MalformedRequest unless it takes so many operands."""
        if count != self._operands:
            raise MalformedRequest(f"the program takes {self._operands} operands, but {count} were given")


class Bound(Sequence[Instruction]):
    """A remembered program on the tensors of one message; its instructions are there once they are asked for."""

    def __init__(
        self, remembered: Remembered, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()
    ) -> None:
        self.remembered, self.ids, self.arrays, self.operands = remembered, ids, arrays, operands
        remembered.check_operands(len(operands))
        if remembered.is_new or not remembered.fits(len(ids), arrays):
            self.instructions  # noqa: B018  (raises)

    @property
    def digest(self) -> str:
        """What the program is known by."""
        return self.remembered.digest

    @property
    def distinct(self) -> bool:
        """Whether no id stands twice in the message."""
        return len({*self.ids}) == len(self.ids)

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions. Raises MalformedRequest if one needs an id or an array that is not there."""
        return self.remembered.bind(self.ids, self.arrays, self.operands)

    def __len__(self) -> int:
        return len(self.remembered.steps)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, index: Any) -> Any:
        return self.instructions[index]


def _steps(data: Any, operands: bool) -> list[Step]:
    """The steps of a program, which may have ``operands``, from JSON data. Raises MalformedRequest for what is none."""
    instructions = data.get("instructions") if isinstance(data, dict) else data
    if not operands or not isinstance(instructions, list):
        return [checked_step(i) for i in parse_program(data)]
    extracted = [extract(item, index) for index, item in enumerate(instructions)]
    program = parse_program([item for item, _ in extracted])
    return [_step(i, holes) for i, (_, holes) in zip(program, extracted, strict=True)]


def _step(instruction: Instruction, holes: tuple[Hole, ...]) -> Step:
    if any(hole.path[0] != "in" for hole in holes):
        return Step(instruction, None, None, holes)
    return checked_step(instruction)._replace(holes=holes) if holes else checked_step(instruction)


def _number(name: str) -> float:
    """Which id a name stands for; infinity where it is no stand-in."""
    digits = name.removeprefix("_")
    return int(digits) if digits.isdecimal() and name == stand_in(int(digits)) else math.inf


def _named(values: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [names[x] if type(x) is str else tuple(_named(x, names)) if type(x) is tuple else x for x in values]


class Checked(NamedTuple):
    """What instructions of one op with the same attributes have in common."""

    op: str
    attrs: Mapping[str, Any]
    call: Any


_known: LRU[Any, Checked] = LRU(CHECKED)
_filled: LRU[Any, Checked] = LRU(CHECKED)
"""Likewise of instructions with operands in their attributes, which may be others every time."""


def checked_step(instruction: Instruction, known: LRU[Any, Checked] = _known) -> Step:
    """An instruction of one's own, made ready to run again and again.

    One that is wrong stays as it is, and fails when it is its turn.
    """
    i = instruction
    verb = VERBS.get(i.op)
    if verb is not None:
        takes_data = i.op in TAKES_DATA and "data" not in i.attrs
        own = [x for x in (*i.outputs, *i.inputs) if isinstance(x, str)]
        return Step(i, None, own[0] if takes_data and own else None)
    key = i.op, len(i.inputs), repr(i.attrs) if i.attrs else ""
    checked = known.get(key)
    if checked is None:
        try:
            op, in_place = find_op(i.op, len(i.inputs), i.attrs)
            attrs = op.check_attrs(i.attrs)
        except TelegradError:
            return Step(i, None, None)  # said when it is its turn: what is before it runs
        call = None if in_place else calling(op, attrs, apply, prepare, KINDS, STEP_CALLS)
        checked = Checked(f"{op.key}_" if in_place else op.key, attrs, call)
        if len(key[2]) <= MAX_ATTRS:
            known[key] = checked
    i.op, i.attrs, i.checked = checked.op, checked.attrs, True
    return Step(i, checked.call, None)


class Memory:
    """The templates that a process remembers, for all its sessions; safe to use from many threads.

    Of one that was read once only the text is kept: most of what is sent once never comes again.
    """

    def __init__(self, most: int = MAX_PROGRAMS, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[str, Remembered | str] = OrderedDict()
        self._bytes = 0
        """What they took when they were read, or used for the first time after."""
        self._lock = Lock()

    def read(self, text: str, claimed: str | None, max_depth: int) -> Remembered:
        """The program of this text, which is remembered. Raises InvalidValue if its digest is not the claimed one."""
        program = Remembered(text, max_depth)
        if claimed is not None and claimed != program.digest:
            raise InvalidValue(f"the program's digest is {program.digest}, not {claimed:.80}")
        with self._lock:
            if program.digest not in self._programs:
                self._keep(program.digest, text)
        return program

    def find(self, known_by: str) -> Remembered:
        """The program with this digest. Raises UnknownProgram if it was never read here, or is forgotten."""
        with self._lock:
            program = self._programs.get(known_by)
            if program is None:
                raise UnknownProgram(f"no program {known_by:.80} is remembered here; send its text")
            if isinstance(program, str):
                program = Remembered(program, sys.maxsize)
                program.is_new = False
                self._keep(known_by, program)
            self._programs.move_to_end(known_by)
            return program

    def _keep(self, known_by: str, program: Remembered | str) -> None:
        self._forget(self._programs.pop(known_by, ""))
        self._programs[known_by] = program
        self._bytes += _size(program)
        while self._programs and (len(self._programs) > self._most or self._bytes > self._most_bytes):
            self._forget(self._programs.popitem(last=False)[1])

    def _forget(self, program: Remembered | str) -> None:
        self._bytes -= _size(program)


def _size(program: Remembered | str) -> int:
    return len(program) if isinstance(program, str) else program.size


MEMORY = Memory()
"""What this process remembers."""
