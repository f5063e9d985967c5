"""Programs that a server has seen: read and checked once, run again from a digest and the ids of the day.

Every op of what is remembered is a function that remembers its calls (repeated.py), so after some rounds a loop's
program is neither parsed nor checked nor planned again; other shapes or dtypes are other calls, and go the long way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from ..errors import InvalidValue, MalformedRequest, TelegradError, UnknownProgram
from ..overloads import find_op
from ..registry import Op
from ..repeated import remembering
from ..shortcuts import KINDS, prepare
from ..tensor import apply
from . import json_codec
from .canonical import digest, stand_in
from .data import TAKES_DATA
from .instructions import Instruction, check_id, parse_program
from .verbs import VERBS

MOST_PROGRAMS, MOST_BYTES = 512, 32 * 2**20
"""How many programs are remembered, and how long their texts are together; the least recently used are forgotten."""


class Step(NamedTuple):
    """One instruction of a remembered program, with stand-ins for ids."""

    instruction: Instruction
    call: Any
    """The op as a function of its inputs, for one that makes new tensors."""
    data: str | None
    """The name of the array that it uploads."""


class Remembered:
    """A program that was read and checked."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.size = len(text)
        self.steps = [_step(i) for i in parse_program(json_codec.loads(text.encode(), max_depth))]

    def with_ids(self, ids: Sequence[str], arrays: Mapping[str, Any]) -> list[Instruction]:
        """The program on these tensors. Raises MalformedRequest if it needs more ids, or an array that is not there."""
        names = {stand_in(i): name for i, name in enumerate(ids)}
        program = []
        try:
            for step in self.steps:
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
        return program


def _named(values: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [names[x] if type(x) is str else tuple(_named(x, names)) if type(x) is tuple else x for x in values]


def _step(instruction: Instruction) -> Step:
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
    return Step(checked, None if in_place else _calling(op, attrs), None)


def _calling(op: Op, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    """The op with these attributes as a function that remembers its calls."""

    def resolve(inputs: Sequence[Any], _: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, op.check_inputs(inputs), attrs

    def call(*inputs: Any) -> Any:
        return apply(op, op.check_inputs(inputs), attrs)

    return remembering(call, resolve, prepare, KINDS)


class Memory:
    """The programs that a process remembers, for all its sessions; safe to use from many threads."""

    def __init__(self, most: int = MOST_PROGRAMS, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._programs: OrderedDict[str, Remembered] = OrderedDict()
        self._bytes = 0
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
                self._bytes += program.size
                while len(self._programs) > self._most or self._bytes > self._most_bytes:
                    self._bytes -= self._programs.popitem(last=False)[1].size
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


def check_ids(data: Any) -> list[str]:
    """The ids of a remembered program's message."""
    if not isinstance(data, list):
        raise MalformedRequest("ids is a list of tensor ids")
    return [check_id(name) for name in data]
