"""The cache of programs, which are read and checked once and run again with other ids and numbers.

Every op of a cached program is a function that caches its calls (tensor/call_cache.py). Programs share these functions,
so a new program of known ops is fast from its first run.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple, Protocol

from ..errors import InvalidValue, MalformedRequest, TelegradError, UnknownProgram
from ..lru import LRU
from ..tensor.call_cache import calling
from ..tensor.eager import apply
from ..tensor.fast_paths import KINDS, prepare
from . import json_codec
from .analysis import Analysis
from .instructions import Instruction, names_in, parse_program
from .operands import Hole, fill, holes_in
from .overloads import find_op
from .template import TAKES_DATA, Ending, digest, stand_in, stand_ins
from .uploads import keep_apart
from .verb_params import IdKind
from .verbs import VERBS

NUMBERS = frozenset({int, float})
MAX_PROGRAMS, MAX_BYTES = 512, 256 * 2**20
"""The maximum number and total bytes of cached programs; the least recently used are evicted."""
STEP_BYTES, TEXT_FACTOR = 2560, 4
"""The estimated memory of a program: bytes for each instruction, and for each character of its text."""
CHECKED, MAX_ATTRS = 512, 1024
"""The number of checked ops with attributes that are cached for all programs of the process, most recently used, and
the maximum length of their attributes in characters."""
STEP_CALLS = 32
"""The number of calls that each of them caches: one for each combination of kinds of tensors, such as a batch size."""
ENDINGS = 16
"""The number of endings, most recently used, with which a template is cached."""


class Step(NamedTuple):
    """One instruction of a cached program, with placeholder ids."""

    instruction: Instruction
    call: Any
    """The op as a function of its inputs; None for verbs, in-place ops and unchecked instructions."""
    data: str | None
    """The name of the array that it uploads, if any."""
    holes: Sequence[Hole] = ()
    """The holes for its operands."""
    fills_attrs: bool = False
    """Whether any of them are in the attributes, which are not checked before they are filled."""

    def with_operands(self, operands: Sequence[Any]) -> Step:
        """Return the step with its operands inserted. Raises MalformedRequest if there are too few."""
        if not self.holes:
            return self
        own = self.instruction
        attrs = fill(own.attrs, operands) if self.fills_attrs else own.attrs
        filled = Instruction(own.op, fill(own.inputs, operands), own.outputs, attrs, own.grad_mode, own.checked)
        return checked_step(filled, _filled) if self.fills_attrs else self._replace(instruction=filled)


class Remembered:
    """A program of a tenant: its checked steps, and the text from which they were made."""

    def __init__(self, steps: list[Step], text: str, known_by: str, tenant: str) -> None:
        self.steps, self.text, self.tenant = steps, text, tenant
        self.digest = self.template = known_by
        """The digest of the program with its ending, and that of the template alone."""
        self.is_new = True
        """Whether it was never found in the cache: then it runs only once."""
        self.mix: Any = None
        """The families of its instructions, once ``session.statistics`` has counted them."""
        self.size = STEP_BYTES * (len(steps) + 2) + TEXT_FACTOR * len(text)
        """The estimated memory in bytes, with the two instructions that an ending may have."""
        self._endings: LRU[Ending, Remembered] = LRU(ENDINGS)
        self._uploads = {step.data for step in steps if step.data is not None}
        self._operands = max((hole.operand + 1 for step in steps for hole in step.holes), default=0)

    @cached_property
    def _ids(self) -> float:
        """The number of ids that it needs."""
        names = [x for s in self.steps for x in names_in((s.instruction.inputs, s.instruction.outputs))]
        return max((_number(name) + 1 for name in names), default=0)

    @cached_property
    def analysis(self) -> Analysis:
        """The tensors that it takes, makes and frees."""
        return Analysis(self.steps)

    def with_ending(self, ending: Ending) -> Remembered:
        """Return the program with the fetch and the free of an ending added."""
        fetch, values, free = ending
        if not fetch and not free:
            return self
        program: Remembered | None = self._endings.get(ending)
        if program is None:
            program = copy(self)
            self._endings[ending] = program
            program.digest, program.mix = digest(f"{self.digest} {ending}"), None
            for derived in ("_ids", "analysis"):
                if derived in vars(program):
                    delattr(program, derived)
            steps = [*self.steps]
            for name, slots, attrs in (("fetch", fetch, {"values": values}), ("free", free, {})):
                if slots:
                    steps.append(Step(Instruction(name, [tuple(map(stand_in, slots))], (), attrs), None, None))
            program.steps = steps
        return program

    def with_ids(self, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()) -> Bound:
        """Bind the program to these tensors. Raises MalformedRequest if an id, an array or an operand is missing."""
        return Bound(self, ids, arrays, operands)

    def bind(self, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()) -> list[Instruction]:
        """Return the instructions on these tensors. Raises MalformedRequest as ``with_ids``."""
        names = dict(zip(stand_ins(len(ids)), ids, strict=False))
        program = []
        try:
            for template_step in self.steps:
                step = template_step.with_operands(operands)
                template, attrs = step.instruction, step.instruction.attrs
                if step.data is not None:
                    attrs = {**attrs, "data": arrays[step.data]}
                inputs, outputs = renamed(template.inputs, names), renamed(template.outputs, names)
                if self.is_new:  # nothing else uses the instruction
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
        """Return whether this number of ids and these arrays are enough."""
        return ids >= self._ids and self._uploads <= arrays.keys()

    def check_ids(self, operands: Sequence[Any]) -> None:
        """Raise MalformedRequest unless each operand is a number, or an id where a verb takes one."""
        verbs = [s.instruction for s in self.steps if s.fills_attrs and s.instruction.op in VERBS]
        holes = [i.attrs.get(p.name) for i in verbs for p in VERBS[i.op].attr_params if isinstance(p.kind, IdKind)]
        ids = {hole.operand for hole in holes if type(hole) is Hole and not hole.plus}
        if not all(type(x) in NUMBERS or (type(x) is str and i in ids) for i, x in enumerate(operands)):
            raise MalformedRequest("operands is a list of numbers, and of ids where a verb takes one")

    def check_operands(self, count: int) -> None:
        """Raise MalformedRequest unless it takes this number of operands."""
        if count != self._operands:
            raise MalformedRequest(f"the program takes {self._operands} operands, but {count} were given")


class Bound(Sequence[Instruction]):
    """A cached program bound to the tensors of one message. Its instructions are made on first access."""

    def __init__(
        self, remembered: Remembered, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()
    ) -> None:
        self.remembered, self.ids, self.arrays, self.operands = remembered, ids, arrays, operands
        remembered.check_operands(len(operands))
        if remembered.is_new or not remembered.fits(len(ids), arrays):
            self.instructions  # noqa: B018  (raises)

    @property
    def digest(self) -> str:
        """The digest of the program with its ending."""
        return self.remembered.digest

    @property
    def distinct(self) -> bool:
        """Whether the ids of the message are all different."""
        return len({*self.ids}) == len(self.ids)

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions. Raises MalformedRequest if one needs an id or an array that is missing."""
        return self.remembered.bind(self.ids, self.arrays, self.operands)

    def __len__(self) -> int:
        return len(self.remembered.steps)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, index: Any) -> Any:
        return self.instructions[index]


def _read(text: str, max_depth: int, tenant: str) -> Remembered:
    """Read a program. Raises MalformedRequest."""
    has_operands = '"operand"' in text
    program = parse_program(json_codec.loads_program(text.encode(), max_depth), has_operands)
    steps = [*map(step_with_holes if has_operands else checked_step, program)]
    return Remembered(steps, text, digest(text), tenant)


def _number(name: str) -> float:
    """Return the slot of a placeholder id; infinity if the name is not one."""
    digits = name.removeprefix("_")
    return int(digits) if digits.isdecimal() and name == stand_in(int(digits)) else math.inf


def renamed(values: Sequence[Any], names: Mapping[str, Any]) -> list[Any]:
    """Return an instruction's inputs or outputs with other names, or holes and numbers in place of names."""
    return [names[x] if type(x) is str else tuple(renamed(x, names)) if type(x) is tuple else x for x in values]


class Checked(NamedTuple):
    """The checked parts that instructions of one op with the same attributes share."""

    op: str
    attrs: Mapping[str, Any]
    call: Any


_known: LRU[Any, Checked] = LRU(CHECKED)
_filled: LRU[Any, Checked] = LRU(CHECKED)
"""The same for instructions with operands in their attributes, which may differ every time."""


def checked_step(instruction: Instruction, known: LRU[Any, Checked] = _known) -> Step:
    """Check an instruction, which is modified, and return it as a step that can run many times.

    An invalid instruction is left unchanged and fails when it runs.
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
            return Step(i, None, None)  # the error is raised when it runs, after the instructions before it
        call = None if in_place else calling(op, attrs, apply, prepare, KINDS, STEP_CALLS)
        checked = Checked(f"{op.key}_" if in_place else op.key, attrs, call)
        if len(key[2]) <= MAX_ATTRS:
            known[key] = checked
    i.op, i.attrs, i.checked = checked.op, checked.attrs, True
    return Step(i, checked.call, None)


def step_with_holes(instruction: Instruction) -> Step:
    """Return an instruction that may have holes as a step, as :func:`checked_step`."""
    own, in_attrs = holes_in(instruction.inputs), holes_in(instruction.attrs)
    if in_attrs:
        return Step(instruction, None, None, own + in_attrs, True)
    step = checked_step(instruction)
    return step._replace(holes=own) if own else step


Make = Callable[[str], Remembered]
"""Makes a program for a tenant."""


class Programs(Protocol):
    """A cache of templates, as sessions use it."""

    def read(self, text: str, claimed: str | None, max_depth: int, /) -> Remembered:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""

    def find(self, known_by: Any, make: Make | None = None, /) -> Remembered:
        """Return the program with this digest. Raises UnknownProgram if it was never read here, or was evicted.

        With ``make``, it is made in these cases; then ``known_by`` is no string, so that no client can name it.
        """


class Memory:
    """The cache of templates for all sessions of a process; thread-safe.

    A program that was used once is not kept, because most of these are not used again; the text is, if it was read.
    Tenants share the limits, but do not find each other's programs: otherwise a digest would tell what another tenant
    has sent.
    """

    def __init__(self, most: int = MAX_PROGRAMS, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[tuple[str, Any], Remembered | str] = OrderedDict()
        """The cached programs by tenant and digest."""
        self._bytes = 0
        """The total estimated memory of the cached programs."""
        self.hits = self.misses = 0
        """How often a program was found by its digest, and how often it was not."""
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._programs)

    @property
    def nbytes(self) -> int:
        """The estimated memory of the cached programs."""
        return self._bytes

    def of(self, tenant: str) -> TenantMemory:
        """Return the cache as a tenant sees it."""
        return TenantMemory(self, tenant)

    def read(self, text: str, claimed: str | None, max_depth: int, tenant: str = "") -> Remembered:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""
        program = _read(text, max_depth, tenant)
        if claimed is not None and claimed != program.digest:
            raise InvalidValue(f"the program's digest is {program.digest}, not {claimed:.80}")
        key = tenant, program.digest
        with self._lock:
            if key not in self._programs:
                self._keep(key, text)
        return program

    def find(self, known_by: Any, make: Make | None = None, tenant: str = "") -> Remembered:
        """Return the program with this digest, as :meth:`Programs.find`."""
        key = tenant, known_by
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                if isinstance(program, str):
                    program = _read(program, sys.maxsize, tenant) if make is None else make(tenant)
                    program.is_new = False
                    self._keep(key, program)
                else:
                    self._programs.move_to_end(key)
                self.hits += 1
                return program
            self.misses += 1
            if make is None:
                raise UnknownProgram(f"no program {known_by:.80} is remembered here; send its text")
            self._keep(key, "")
        return make(tenant)

    def _keep(self, key: tuple[str, Any], program: Remembered | str) -> None:
        self._bytes += _size(program) - _size(self._programs.pop(key, ""))
        self._programs[key] = program
        while self._programs and (len(self._programs) > self._most or self._bytes > self._most_bytes):
            self._bytes -= _size(self._programs.popitem(last=False)[1])


def _size(program: Remembered | str) -> int:
    return len(program) if isinstance(program, str) else program.size


class TenantMemory:
    """The part of a cache that one tenant finds programs in."""

    def __init__(self, memory: Memory, tenant: str) -> None:
        self._memory, self._tenant = memory, tenant

    def read(self, text: str, claimed: str | None, max_depth: int) -> Remembered:
        """Read and cache a program, as :meth:`Memory.read`."""
        return self._memory.read(text, claimed, max_depth, self._tenant)

    def find(self, known_by: Any, make: Make | None = None) -> Remembered:
        """Return a cached program of the tenant, as :meth:`Memory.find`."""
        return self._memory.find(known_by, make, self._tenant)


MEMORY = Memory()
"""The program cache of this process."""
