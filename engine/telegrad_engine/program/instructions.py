"""Instructions: a program is a list of ``{op, inputs, outputs, attrs, grad_mode?}``.

In ``inputs`` a string is a tensor's id, a number, bool or null is a literal, and a list contains these.
The client chooses the ids.

An operand is what may differ each time a program runs, and is not part of its template: a number that affects no shape,
or the id of what is no tensor, such as a hook. In a template ``{"operand": 3}`` stands for the fourth operand, and
``{"operand": 3, "plus": 64}`` for that operand plus 64: the stop of a slice, whose length is part of the template.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from ..errors import MalformedRequest, TelegradError

GRAD_MODES = ("enable_grad", "no_grad")
ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$"
ID_RULE = "an id has letters, digits and _ . : -, begins with none of . : -, and has at most 128 characters"
_ID = re.compile(ID_PATTERN)
_IDS = re.compile(rf"{ID_PATTERN[1:-1]}(?:\n{ID_PATTERN[1:-1]})*+")
MAX_INSTRUCTIONS = 100_000
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The strings for numbers that JSON lacks; none of them is a valid id."""
BOUNDS: dict[type, tuple[float, float]] = {
    int: (-(2**63), 2**64 - 1),
    float: (-sys.float_info.max, sys.float_info.max),
}
"""The smallest and the largest operand of each type: numbers outside are read as strings, or as floats."""
DEPRECATED = {"in": "inputs", "out": "outputs"}
"""The deprecated names in instructions and procedures."""
SYNONYMS = {
    **DEPRECATED,
    "args": "inputs",
    "kwargs": "attrs",
    "param": "attr",
    "params": "attrs",
    "parameters": "attrs",
}
"""What members with names from elsewhere are called here."""


class Members:
    """The members that one kind of object may have; ``deprecated`` maps old names of some of them to the current."""

    def __init__(self, kind: str, names: Iterable[str], deprecated: Mapping[str, str] = DEPRECATED) -> None:
        self.kind, self.names, self.deprecated = kind, tuple(names), deprecated
        self._known = frozenset(self.names)

    def of(self, data: Mapping[str, Any], error: type[TelegradError] = MalformedRequest) -> Mapping[str, Any]:
        """Return an object with current names. Raises ``error`` for an unknown member, and for one with both names."""
        if self._known.issuperset(data):
            return data
        found: dict[str, Any] = {}
        for name, value in data.items():
            current = self.deprecated.get(name, name)
            if current not in self._known:
                raise error(f"{self.kind} has {no_member(name, self.names)}")
            if current != name and current in data:
                raise error(f"{self.kind} has {current!r} and also {name!r}, its deprecated name; give one of them")
            found[current] = value
        return found


def no_member(name: Any, names: Iterable[str], what: str = "member") -> str:
    """Say that there is no member of this name, which one is probably meant, and which ones there are."""
    known = [*names]
    near = [SYNONYMS[name]] if SYNONYMS.get(name) in known else get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    there = f"The {what}s are {', '.join(known)}" if known else "There are none"
    return f"no {what} {name!r:.60}{hint} {there}"


INSTRUCTION = Members("an instruction", ("op", "inputs", "outputs", "attrs", "grad_mode"))
PROGRAM = Members("a program", ("instructions", "rollback"), {})
A_PROGRAM = 'a program is {"instructions": [{"op": …, "inputs": […], "outputs": […], "attrs": {…}}, …]}'


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
    """Return a tensor id, as ``ID_RULE`` says. Raises MalformedRequest for anything else."""
    if not isinstance(value, str) or not _ID.fullmatch(value) or value in NUMBERS:
        raise MalformedRequest(f"not a tensor id: {value!r:.60}; {ID_RULE}")
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


# Operands -----------------------------------------------------------------------------------------


class OperandRef(NamedTuple):
    """A reference to an operand, which stands where the operand is inserted."""

    operand: int
    plus: int

    def value(self, operands: Sequence[Any]) -> Any:
        """Return the number to insert. Raises MalformedRequest if there are too few operands."""
        try:
            number = operands[self.operand]
        except IndexError:
            raise MalformedRequest(
                f"the program takes operand {self.operand}, but {len(operands)} were given"
            ) from None
        return number + self.plus if self.plus else number


class Operands:
    """Collects the operands of an instruction that is being written as part of a template.

    ``first`` is the number of operands of the instructions before it.
    """

    def __init__(self, first: int = 0) -> None:
        self.values: list[Any] = []
        self._first = first

    def take(self, value: Any) -> Any:
        """Add a number or an id and return its reference as JSON data; for NaN and infinities return their string."""
        if type(value) is not str and not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        self.values.append(value)
        return {"operand": self._first + len(self.values) - 1}


def read_refs(data: Any) -> Any:
    """Return JSON data with references in place of its operands. Raises MalformedRequest for a malformed operand."""
    if isinstance(data, list):
        return [read_refs(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "operand" not in data:
        return {key: read_refs(item) for key, item in data.items()}
    number, plus = data["operand"], data.get("plus", 0)
    if not data.keys() <= {"operand", "plus"} or type(number) is not int or number < 0 or type(plus) is not int:
        raise MalformedRequest(f"an operand is {{operand: number, plus?: number}}, not {data!r:.80}")
    return OperandRef(number, plus)


def refs_in(data: Any) -> list[OperandRef]:
    """Return the references in nested lists, tuples and dicts."""
    kind = type(data)
    if kind is OperandRef:
        return [data]
    items = data.values() if kind is dict else data if kind is list or kind is tuple else ()
    return [ref for item in items if type(item) is not str for ref in refs_in(item)]


def fill(data: Any, operands: Sequence[Any]) -> Any:
    """Return a copy of nested lists, tuples and dicts with operands in place of references."""
    kind = type(data)
    if kind is OperandRef:
        return data.value(operands)
    if kind is dict:
        return {key: fill(item, operands) for key, item in data.items()}
    return kind([fill(item, operands) for item in data]) if kind is list or kind is tuple else data
