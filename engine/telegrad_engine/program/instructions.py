"""Instructions: a program is a list of ``{op, inputs, outputs, attrs, grad_mode?}``.

In ``inputs`` a string is a tensor's id, a number, bool or null is a literal, and a list contains these.
The client chooses the ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import MalformedRequest
from .members import Members
from .operands import OperandRef, read_refs

GRAD_MODES = ("enable_grad", "no_grad")
ID_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$"
_ID = re.compile(ID_PATTERN)
_IDS = re.compile(rf"{ID_PATTERN[1:-1]}(?:\n{ID_PATTERN[1:-1]})*+")
INSTRUCTION = Members("an instruction", ("op", "inputs", "outputs", "attrs", "grad_mode"))
PROGRAM = Members("a program", ("instructions", "rollback"), {})
A_PROGRAM = 'a program is {"instructions": [{"op": …, "inputs": […], "outputs": […], "attrs": {…}}, …]}'
MAX_INSTRUCTIONS = 100_000
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The strings for numbers that JSON lacks; none of them is a valid id."""


class Instruction:
    """One step of a program.

    ``checked`` is true if the attributes are already canonical, as the SDK's recorder leaves them.
    ``call`` is the op as a function of its inputs, if a cached program has one.
    If ``outputs`` is None, the session chooses an id for each output and stores the ids here.
    """

    __slots__ = ("attrs", "call", "checked", "grad_mode", "inputs", "op", "outputs")

    def __init__(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] | None = (),
        attrs: Mapping[str, Any] | None = None,
        grad_mode: str | None = None,
        checked: bool = False,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.outputs: Any = outputs
        self.attrs: Mapping[str, Any] = attrs or {}
        self.grad_mode = grad_mode
        self.checked = checked
        self.call: Any = None

    @property
    def names(self) -> set[str]:
        """The ids of the tensors that it takes and makes."""
        return {*names_in((self.inputs, self.outputs or ()))}

    def __repr__(self) -> str:
        outputs = ", ".join(map(str, self.outputs or ()))
        arguments = ", ".join([*map(str, self.inputs), *(f"{k}={v!r}" for k, v in self.attrs.items())])
        return f"{outputs + ' = ' if outputs else ''}{self.op}({arguments})"


def check_id(value: Any) -> str:
    """Return a tensor id: a letter or ``_``, then letters, digits and ``_ . : -``, at most 128 characters in all.

    Raises MalformedRequest for anything else.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value) or value in NUMBERS:
        raise MalformedRequest(f"not a tensor id: {value!r:.60}; an id matches {ID_PATTERN}")
    return value


def check_all(values: list[Any]) -> list[str]:
    """Apply :func:`check_id` to each value, with one match for all if they are valid: a program may have thousands."""
    try:
        text = "\n".join(values)
    except TypeError:
        text = ""
    if len(values) != text.count("\n") + 1 or not _IDS.fullmatch(text) or not NUMBERS.keys().isdisjoint(values):
        for value in values:
            check_id(value)
    return values


def parse_program(data: Any, has_operands: bool = False) -> list[Instruction]:
    """Return the instructions of a decoded program: a list of them, or ``{"instructions": [...]}``.

    If it ``has_operands``, the instructions have references to them. Raises MalformedRequest, with the
    instruction's index, for anything else.
    """
    if isinstance(data, dict):
        data = data.get("instructions")
    if not isinstance(data, list):
        raise MalformedRequest(A_PROGRAM)
    if len(data) > MAX_INSTRUCTIONS:
        raise MalformedRequest(f"a program has at most {MAX_INSTRUCTIONS} instructions, this one has {len(data)}")
    return [_parse_instruction(item, index, has_operands) for index, item in enumerate(data)]


def program_of(data: Any) -> tuple[list[Instruction], bool]:
    """Return the instructions of ``{"instructions": [...], "rollback": false}``, and whether a failure is undone."""
    if not isinstance(data, dict):
        raise MalformedRequest(A_PROGRAM)
    data = PROGRAM.of(data)
    rollback = data.get("rollback", False)
    if type(rollback) is not bool:
        raise MalformedRequest("rollback is true or false")
    return parse_program(data), rollback


def _parse_instruction(data: Any, index: int, has_operands: bool) -> Instruction:
    try:
        if not isinstance(data, dict):
            raise MalformedRequest(f"an instruction is an object, not {type(data).__name__}")
        data = INSTRUCTION.of(data)
        op, inputs, outputs = data.get("op"), data.get("inputs", []), data.get("outputs", [])
        attrs, grad_mode = data.get("attrs", {}), data.get("grad_mode")
        if has_operands:
            inputs, attrs = read_refs(inputs), read_refs(attrs)
        if not isinstance(op, str):
            raise MalformedRequest("an instruction needs op, the name of an op or a verb")
        if not isinstance(inputs, list):
            raise MalformedRequest("inputs is a list of tensor ids, literals and lists of these")
        if not isinstance(outputs, list):
            raise MalformedRequest("outputs is a list of tensor ids")
        if attrs is None:
            attrs = {}
        if not isinstance(attrs, dict):
            raise MalformedRequest("attrs is an object")
        if grad_mode is not None and grad_mode not in GRAD_MODES:
            raise MalformedRequest(f"grad_mode is one of {', '.join(GRAD_MODES)}")
        return Instruction(op, parse_inputs(inputs), [check_id(x) for x in outputs], attrs, grad_mode)
    except MalformedRequest as error:
        error.context.setdefault("instruction", index)
        raise


def names_in(inputs: Sequence[Any]) -> Iterator[str]:
    """Yield the tensor ids among an instruction's inputs, including nested ones."""
    for x in inputs:
        if isinstance(x, (tuple, list)):
            yield from names_in(x)
        elif isinstance(x, str):
            yield x


def last_uses(used: Sequence[set[str]]) -> list[set[str]]:
    """Return for each step, of the names that it uses, those that no later step uses."""
    later: set[str] = set()
    found = []
    for names in reversed(used):
        found.append(names - later)
        later |= names
    return found[::-1]


def parse_inputs(values: Sequence[Any]) -> list[Any]:
    """Convert an instruction's inputs from JSON data. Raises MalformedRequest."""
    # Names are not matched against the pattern: an unknown name fails when it is looked up.
    return [NUMBERS.get(value, value) if type(value) is str else _parse_input(value) for value in values]


def _parse_input(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return NUMBERS.get(value, value)
    if isinstance(value, list):
        if depth > 1:
            raise MalformedRequest("inputs nest at most two lists deep")
        return tuple(_parse_input(v, depth + 1) for v in value)
    if value is None or isinstance(value, (bool, int, float, OperandRef)):
        return value
    raise MalformedRequest(f"an input is a tensor id, a number, a bool, null or a list, not {type(value).__name__}")
