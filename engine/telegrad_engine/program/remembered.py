"""Programs that a server has seen: read and checked once, run again from a digest and the ids of the day.

Every op of what is remembered is a function that remembers its calls (repeated.py), so after some rounds a loop's
program is neither parsed nor checked nor planned again; other shapes or dtypes are other calls, and go the long way.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

from ..errors import InvalidValue, MalformedRequest, TelegradError, UnknownProgram
from ..lru import LRU
from ..overloads import find_op
from ..repeated import Prepare, calling
from ..shortcuts import KINDS, prepare
from ..tensor import apply
from . import json_codec
from .data import TAKES_DATA
from .instructions import Instruction, parse_program
from .operands import Hole, extract, fill
from .template import Ending, digest, stand_in
from .uploads import keep_apart
from .verbs import VERBS

MOST_PROGRAMS, MOST_BYTES = 512, 256 * 2**20
"""How many programs are remembered, and how many bytes they take together; the least recently used are forgotten."""
STEP_BYTES, CALL_BYTES, TEXT_FACTOR = 2560, 2048, 4
"""What a program takes: bytes for each instruction, for each call that an instruction remembers, and for each byte of
its text."""
STEP_CALLS = 32
"""How many calls an instruction remembers: one for each kinds of tensors, such as those of another batch size."""


ENDINGS = 32
"""With how many endings a template is remembered: those used last."""
MAX_FILLED = 16
"""For how many combinations of its operands an instruction is kept checked."""


class Step(NamedTuple):
    """One instruction of a remembered program, with stand-ins for ids."""

    instruction: Instruction
    call: Any
    """The op as a function of its inputs, for one that makes new tensors."""
    data: str | None
    """The name of the array that it uploads."""
    holes: tuple[Hole, ...] = ()
    """Where operands go. The instruction has 0 in these places, and its attributes are not checked."""
    prepare: Prepare = prepare
    """What prepares the calls of such an instruction."""
    filled: dict[Any, Step] = {}
    """The step with operands in its attributes, by these."""

    def with_operands(self, operands: Sequence[Any]) -> Step:
        """The step with its operands in their places. Raises MalformedRequest if there are not as many."""
        if not self.holes:
            return self
        inputs, attrs, key = list(self.instruction.inputs), self.instruction.attrs, []
        for hole in self.holes:
            value = hole.value(operands)
            if hole.path[0] == "in":
                inputs = fill(inputs, hole.path[1:], value)
            else:
                attrs = fill(attrs, hole.path[1:], value)
                key.append(repr(value))
        step = self.filled.get(tuple(key))
        if step is None:
            template = self.instruction
            instruction = Instruction(template.op, inputs, template.outputs, attrs, template.grad_mode)
            step = checked_step(instruction, self.prepare)
            if len(self.filled) >= MAX_FILLED:
                del self.filled[next(iter(self.filled))]
            self.filled[tuple(key)] = step
        checked = step.instruction
        own = Instruction(checked.op, inputs, checked.outputs, checked.attrs, checked.grad_mode, checked.checked)
        return step._replace(instruction=own)


class Remembered:
    """A program that was read and checked."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.digest = digest(text)
        self.outlines: dict[Any, Any] = {}
        """What each compiler knows of the program: it is forgotten with it."""
        self._prepared = 0
        """How many calls the instructions have remembered so far."""
        self.steps = _steps(json_codec.loads(text.encode(), max_depth), self._prepare)
        self._own_bytes = STEP_BYTES * len(self.steps) + TEXT_FACTOR * len(text)
        names = [x for s in self.steps for x in _names((s.instruction.inputs, s.instruction.outputs))]
        self._ids = max((_number(name) + 1 for name in names), default=0)
        self._endings: LRU[Ending, Remembered] = LRU(ENDINGS)
        self._uploads = {step.data for step in self.steps if step.data is not None}
        self._operands = max((hole.operand + 1 for step in self.steps for hole in step.holes), default=0)

    @property
    def size(self) -> int:
        """How many bytes it takes, with the calls that it remembers by now."""
        own = self._own_bytes + 2 * STEP_BYTES * len(self._endings)
        return own + CALL_BYTES * min(self._prepared, 2 * STEP_CALLS * len(self.steps))

    def _prepare(self, *call: Any) -> Any:
        self._prepared += 1
        return prepare(*call)

    @cached_property
    def calls(self) -> list[int]:
        """Which of the steps call a procedure."""
        return [i for i, step in enumerate(self.steps) if step.instruction.op == "call"]

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
            vars(program).pop("calls", None)
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
        names = {stand_in(i): name for i, name in enumerate(ids)}
        program = []
        try:
            for template_step in self.steps:
                step = template_step.with_operands(operands)
                template, attrs = step.instruction, step.instruction.attrs
                if step.data is not None:
                    attrs = {**attrs, "data": arrays[step.data]}
                inputs, outputs = _named(template.inputs, names), _named(template.outputs, names)
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
        if not remembered.fits(len(ids), arrays):
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


def _steps(data: Any, prepare: Prepare) -> list[Step]:
    """The steps of a program, from JSON data. Raises MalformedRequest for what is none."""
    instructions = data.get("instructions") if isinstance(data, dict) else data
    if not isinstance(instructions, list):
        return [checked_step(i, prepare) for i in parse_program(data)]  # which says what is wrong
    extracted = [extract(item, index) for index, item in enumerate(instructions)]
    program = parse_program([item for item, _ in extracted])
    return [
        checked_step(i, prepare) if not holes else Step(i, None, None, holes, prepare, {})
        for i, (_, holes) in zip(program, extracted, strict=True)
    ]


def _names(values: Sequence[Any]) -> Iterator[str]:
    for x in values:
        if isinstance(x, (tuple, list)):
            yield from _names(x)
        elif isinstance(x, str):
            yield x


def _number(name: str) -> float:
    """Which id a name stands for; infinity where it is no stand-in."""
    digits = name.removeprefix("_")
    return int(digits) if digits.isdecimal() and name == stand_in(int(digits)) else math.inf


def _named(values: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [names[x] if type(x) is str else tuple(_named(x, names)) if type(x) is tuple else x for x in values]


def checked_step(instruction: Instruction, prepare: Prepare = prepare) -> Step:
    """An instruction as it runs again and again; one that is wrong stays as it is, and fails when it is its turn."""
    verb = VERBS.get(instruction.op)
    if verb is not None:
        takes_data = instruction.op in TAKES_DATA and "data" not in instruction.attrs
        own = [x for x in (*instruction.outputs, *instruction.inputs) if isinstance(x, str)]
        return Step(instruction, None, own[0] if takes_data and own else None)
    try:
        op, in_place = find_op(instruction.op, len(instruction.inputs), instruction.attrs)
        attrs = op.check_attrs(instruction.attrs)
    except TelegradError:
        return Step(instruction, None, None)  # said when it is its turn: what is before it runs
    key = f"{op.key}_" if in_place else op.key
    checked = Instruction(key, instruction.inputs, instruction.outputs, attrs, instruction.grad_mode, True)
    return Step(checked, None if in_place else calling(op, attrs, apply, prepare, KINDS, STEP_CALLS), None)


class Memory:
    """The programs that a process remembers, for all its sessions; safe to use from many threads."""

    def __init__(self, most: int = MOST_PROGRAMS, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[str, Remembered] = OrderedDict()
        self._lock = Lock()

    def read(self, text: str, claimed: str | None, max_depth: int) -> Remembered:
        """The program of this text, which is remembered. Raises InvalidValue if its digest is not the claimed one."""
        found = digest(text)
        if claimed is not None and claimed != found:
            raise InvalidValue(f"the program's digest is {found}, not {claimed:.80}")
        program = Remembered(text, max_depth)
        with self._lock:
            if found not in self._programs:
                self._programs[found] = program
                total = sum(each.size for each in self._programs.values())  # they grow while they run
                while self._programs and (len(self._programs) > self._most or total > self._most_bytes):
                    total -= self._programs.popitem(last=False)[1].size
        return program

    def find(self, known_by: str) -> Remembered:
        """The program with this digest. Raises UnknownProgram if it was never read here, or is forgotten."""
        with self._lock:
            program = self._programs.get(known_by)
            if program is None:
                raise UnknownProgram(f"no program {known_by:.80} is remembered here; send its text")
            self._programs.move_to_end(known_by)
            return program


MEMORY = Memory()
"""What this process remembers."""
