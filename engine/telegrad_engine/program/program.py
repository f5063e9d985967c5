"""Programs: steps that are read and checked once, and run again on other tensors with other numbers.

Everything that recurs in a session is a :class:`Program`: a template that a client sent (:mod:`.template`), with the
fetches and frees at its end, and a procedure (:mod:`.procedures`). :class:`ProgramCache` keeps them. A program is bound
to the ids, arrays and operands of a message, and then runs one instruction at a time (:mod:`..session.session`) or as a
plan (:mod:`..compile`).

The engine caches the calls of ops for all programs (tensor/call_cache.py), so a new program of known ops is fast
from its first run.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import InvalidValue, MalformedRequest, TelegradError, UnknownProgram
from ..lru import LRU
from ..schema.op import Op
from ..tensor.eager import apply
from . import json_codec
from .instructions import Instruction, OperandRef, fill, names_in, parse_program, refs_in
from .overloads import find_op
from .template import TAKES_DATA, Ending, digest, slot_of, stand_in, stand_ins
from .verb_params import IdKind
from .verbs import VERBS

NUMBERS = frozenset({int, float})
STEP_BYTES, TEXT_FACTOR = 2560, 4
"""The estimated memory of a program: bytes for each instruction, and for each character of its text."""
CHECKED, MAX_ATTRS = 512, 1024
"""The number of checked ops with attributes that are cached for all programs of the process, most recently used, and
the maximum length of their attributes in characters."""
ENDINGS = 16
"""The number of endings, most recently used, with which a program is cached."""


class Step(NamedTuple):
    """One instruction of a program, with placeholder ids."""

    instruction: Instruction
    call: Any = None
    """The op as a function of its inputs; None for verbs, in-place ops and unchecked instructions."""
    data: str | None = None
    """The name of the array that it uploads, if any."""
    refs: Sequence[OperandRef] = ()
    """The references to its operands."""
    fills_attrs: bool = False
    """Whether any of them are in the attributes, which are not checked before they are filled."""

    def with_operands(self, operands: Sequence[Any]) -> Step:
        """Return the step with its operands inserted. Raises MalformedRequest if there are too few."""
        if not self.refs:
            return self
        own = self.instruction
        attrs = fill(own.attrs, operands) if self.fills_attrs else own.attrs
        filled = Instruction(own.op, fill(own.inputs, operands), own.outputs, attrs, own.grad_mode, own.checked)
        return checked_step(filled, _filled) if self.fills_attrs else self._replace(instruction=filled)


class Program:
    """The steps of a program of a tenant, and the text from which they were made.

    ``slots`` are the positions in the list of ids of a message, for which the steps have placeholders.
    """

    def __init__(self, steps: Sequence[Step], text: str, known_by: str, tenant: str) -> None:
        self.steps, self.text, self.tenant = steps, text, tenant
        self.digest = self.template = known_by
        """The digest of the program with its ending, and that of the template alone."""
        self.is_new = True
        """Whether it was never found in the cache: then it runs only once."""
        self.families: Mapping[str, int] | None = None
        """The number of its instructions by family, once ``session.statistics`` has counted them."""
        self.size = STEP_BYTES * (len(steps) + 2) + TEXT_FACTOR * len(text)
        """The estimated memory in bytes, with the two instructions that an ending may have."""
        self.operands = max((ref.operand + 1 for step in steps for ref in step.refs), default=0)
        """The number of operands that it takes."""
        self.uploads = [(step.data, step.instruction.attrs.get("dtype")) for step in steps if step.data is not None]
        """The names of the arrays that it uploads, each with the requested dtype."""
        self._endings: LRU[Ending, Program] = LRU(ENDINGS)

    def with_ending(self, ending: Ending) -> Program:
        """Return the program with the fetch and the free of an ending added."""
        fetch, values, free = ending
        if not fetch and not free:
            return self
        program: Program | None = self._endings.get(ending)
        if program is None:
            ends = [("fetch", fetch, {"values": values})] * bool(fetch) + [("free", free, {})] * bool(free)
            steps = [Step(Instruction(op, [tuple(map(stand_in, slots))], (), attrs)) for op, slots, attrs in ends]
            program = Program([*self.steps, *steps], self.text, digest(f"{self.digest} {ending}"), self.tenant)
            program.template, program.is_new = self.template, self.is_new
            self._endings[ending] = program
        return program

    def bind(self, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any] = ()) -> BoundProgram:
        """Bind the program to these tensors. Raises MalformedRequest if an id, an array or an operand is missing."""
        if len(operands) != self.operands:
            raise MalformedRequest(f"the program takes {self.operands} operands, but {len(operands)} were given")
        bound = BoundProgram(self, ids, arrays, operands)
        if self.is_new or len(ids) < self._ids or not all(name in arrays for name, _ in self.uploads):
            bound.instructions  # noqa: B018  (raises)
        return bound

    def check_ids(self, operands: Sequence[Any]) -> None:
        """Raise MalformedRequest unless each operand is a number, or an id where a verb takes one."""
        verbs = [s.instruction for s in self.steps if s.fills_attrs and s.instruction.op in VERBS]
        refs = [i.attrs.get(p.name) for i in verbs for p in VERBS[i.op].attr_params if isinstance(p.kind, IdKind)]
        ids = {ref.operand for ref in refs if type(ref) is OperandRef and not ref.plus}
        if not all(type(x) in NUMBERS or (type(x) is str and i in ids) for i, x in enumerate(operands)):
            raise MalformedRequest("operands is a list of numbers, and of ids where a verb takes one")

    # Its tensors -------------------------------------------------------------------------

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions with placeholder ids."""
        return [step.instruction for step in self.steps]

    @cached_property
    def _ids(self) -> int:
        """The number of ids that it needs."""
        names = [name for i in self.instructions for name in i.names]
        return max((slot_of(name) + 1 for name in names), default=0)

    @cached_property
    def taken(self) -> list[int]:
        """The slots of the existing tensors that it uses, in the order of their first use."""
        return self._existing(freed=False)

    @cached_property
    def freed(self) -> list[int]:
        """The slots of the existing tensors that it frees."""
        return self._existing(freed=True)

    @cached_property
    def made(self) -> list[int]:
        """The slots of the tensors that it makes."""
        return [slot_of(name) for i in self.instructions for name in i.outputs or ()]

    def _existing(self, freed: bool) -> list[int]:
        made: set[str] = set()
        found: dict[str, None] = {}
        for i in self.instructions:
            if (i.op == "free") is freed:
                found.update(dict.fromkeys([name for name in names_in(i.inputs) if name not in made]))
            made.update(i.outputs or ())
        return [*map(slot_of, found)]

    # Whether it can be planned -----------------------------------------------------------

    @cached_property
    def functions(self) -> list[str]:
        """The names of the registered functions that it applies."""
        return [*dict.fromkeys([str(i.attrs.get("function")) for i in self.instructions if i.op == "apply"])]

    @cached_property
    def visits_graphs(self) -> bool:
        """Whether it may make a pass over the graph of tensors that it takes."""
        return any(i.op in VERBS and not VERBS[i.op].quiet for i in self.instructions)

    @cached_property
    def refusal(self) -> str | None:
        """Why the program runs one instruction at a time; None if it can be planned."""
        for index, i in enumerate(self.instructions):
            reason = _refusal(i)
            if reason is not None:
                return f"instruction {index}, {i.op}: {reason}"
        if not {*self.made}.isdisjoint([*self.taken, *self.freed]) or len({*self.made}) < len(self.made):
            return "one id is that of two tensors"
        return None


def _refusal(instruction: Instruction) -> str | None:
    verb = VERBS.get(instruction.op)
    if verb is not None:
        if instruction.attrs.get("is_grads_batched"):
            return "its rows are computed together"
        return None if verb.repeatable or verb.name in ("fetch", "tensor") else "it does more than compute with tensors"
    try:
        find_op(instruction.op)
    except TelegradError:
        return "there is no such op"
    return None


class BoundProgram(Sequence[Instruction]):
    """A program with the tensors, arrays and operands of one message. Its instructions are made on first access."""

    def __init__(
        self, program: Program, ids: Sequence[str], arrays: Mapping[str, Any], operands: Sequence[Any]
    ) -> None:
        self.program, self.ids, self.arrays, self.operands = program, ids, arrays, operands

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions. Raises MalformedRequest if one needs an id or an array that is missing."""
        names, arrays = dict(zip(stand_ins(len(self.ids)), self.ids, strict=False)), self.arrays
        found: list[Instruction] = []
        try:
            for unfilled in self.program.steps:
                step = unfilled.with_operands(self.operands)
                template, attrs = step.instruction, step.instruction.attrs
                if step.data is not None:
                    attrs = {**attrs, "data": arrays[step.data]}
                inputs, outputs = renamed(template.inputs, names), renamed(template.outputs, names)
                if self.program.is_new:  # nothing else uses the instruction
                    instruction = template
                    instruction.inputs, instruction.outputs, instruction.attrs = inputs, outputs, attrs
                else:
                    instruction = Instruction(template.op, inputs, outputs, attrs, template.grad_mode, template.checked)
                instruction.call = step.call
                found.append(instruction)
        except KeyError as error:
            raise MalformedRequest(
                f"instruction {len(found)} is on {error.args[0]}, for which there is no id or array",
                instruction=len(found),
            ) from None
        keep_apart(arrays[name] for name, _ in self.program.uploads)
        return found

    def __len__(self) -> int:
        return len(self.program.steps)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, index: Any) -> Any:
        return self.instructions[index]


def keep_apart(uploads: Iterable[Any]) -> None:
    """Make arrays that several instructions upload read-only, so that each instruction copies them."""
    seen: set[int] = set()
    for array in uploads:
        if id(array) in seen and isinstance(array, np.ndarray):
            array.flags.writeable = False
        seen.add(id(array))


def renamed(values: Sequence[Any], names: Mapping[str, Any]) -> list[Any]:
    """Return an instruction's inputs or outputs with other names, or references and numbers in place of names."""
    return [names[x] if type(x) is str else tuple(renamed(x, names)) if type(x) is tuple else x for x in values]


# Reading -------------------------------------------------------------------------------------


def read_program(text: str, max_depth: int, tenant: str) -> Program:
    """Read the text of a template. Raises MalformedRequest."""
    has_operands = '"operand"' in text
    program = parse_program(json_codec.loads_program(text.encode(), max_depth), has_operands)
    steps = [*map(step_with_refs if has_operands else checked_step, program)]
    return Program(steps, text, digest(text), tenant)


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
        return Step(i, data=own[0] if takes_data and own else None)
    key = i.op, len(i.inputs), repr(i.attrs) if i.attrs else ""
    checked = known.get(key)
    if checked is None:
        try:
            op, in_place = find_op(i.op, len(i.inputs), i.attrs)
            attrs = op.check_attrs(i.attrs)
        except TelegradError:
            return Step(i)  # the error is raised when it runs, after the instructions before it
        call = None if in_place else partial(_call, op, attrs)
        checked = Checked(f"{op.key}_" if in_place else op.key, attrs, call)
        if len(key[2]) <= MAX_ATTRS:
            known[key] = checked
    i.op, i.attrs, i.checked = checked.op, checked.attrs, True
    return Step(i, checked.call)


def _call(op: Op, attrs: Mapping[str, Any], *inputs: Any) -> Any:
    """Apply an op with checked attributes."""
    return apply(op, op.check_inputs(inputs), attrs)


def step_with_refs(instruction: Instruction) -> Step:
    """Return an instruction that may refer to operands as a step, as :func:`checked_step`."""
    own, in_attrs = refs_in(instruction.inputs), refs_in(instruction.attrs)
    if in_attrs:
        return Step(instruction, refs=own + in_attrs, fills_attrs=True)
    step = checked_step(instruction)
    return step._replace(refs=own) if own else step


MAX_PROGRAMS, MAX_BYTES = 512, 256 * 2**20
"""The maximum number and total bytes of cached programs; the least recently used are evicted."""

Make = Callable[[str], Program]
"""Makes a program for a tenant."""


class Programs(Protocol):
    """A cache of templates, as sessions use it."""

    def read(self, text: str, claimed: str | None, max_depth: int, /) -> Program:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""

    def find(self, known_by: Any, make: Make | None = None, /) -> Program:
        """Return the program with this digest. Raises UnknownProgram if it was never read here, or was evicted.

        With ``make``, it is made in these cases; then ``known_by`` is no string, so that no client can name it.
        """


class ProgramCache:
    """The cache of templates for all sessions of a process; thread-safe.

    A program that was used once is not kept, because most of these are not used again; the text is, if it was read.
    Tenants share the limits, but do not find each other's programs: otherwise a digest would tell what another tenant
    has sent.
    """

    def __init__(self, most: int = MAX_PROGRAMS, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[tuple[str, Any], Program | str] = OrderedDict()
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

    def of(self, tenant: str) -> TenantPrograms:
        """Return the cache as a tenant sees it."""
        return TenantPrograms(partial(self.read, tenant=tenant), partial(self.find, tenant=tenant))

    def read(self, text: str, claimed: str | None, max_depth: int, tenant: str = "") -> Program:
        """Read and cache the program of this text. Raises InvalidValue if its digest is not the claimed one."""
        program = read_program(text, max_depth, tenant)
        if claimed is not None and claimed != program.digest:
            raise InvalidValue(f"the program's digest is {program.digest}, not {claimed:.80}")
        key = tenant, program.digest
        with self._lock:
            if key not in self._programs:
                self._keep(key, text)
        return program

    def find(self, known_by: Any, make: Make | None = None, tenant: str = "") -> Program:
        """Return the program with this digest, as :meth:`Programs.find`."""
        key = tenant, known_by
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                if isinstance(program, str):
                    program = read_program(program, sys.maxsize, tenant) if make is None else make(tenant)
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

    def _keep(self, key: tuple[str, Any], program: Program | str) -> None:
        self._bytes += _size(program) - _size(self._programs.pop(key, ""))
        self._programs[key] = program
        while self._programs and (len(self._programs) > self._most or self._bytes > self._most_bytes):
            self._bytes -= _size(self._programs.popitem(last=False)[1])


def _size(program: Program | str) -> int:
    return len(program) if isinstance(program, str) else program.size


class TenantPrograms(NamedTuple):
    """The methods of a cache, for the programs of one tenant."""

    read: Callable[[str, str | None, int], Program]
    find: Callable[..., Program]


MEMORY = ProgramCache()
"""The program cache of this process."""
