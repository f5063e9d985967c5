"""Read the programs of a definition: resolve ids, measure its size, and report which instruction is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeGuard

from ...errors import InvalidFunction, LimitExceeded, TelegradError
from ..instructions import NUMBERS
from ..members import Members
from . import expressions
from .blocks import Block, Step
from .expressions import Expression, Known
from .limits import MAX_DEPTH, MAX_EXPANDED, MAX_INSTRUCTIONS, MAX_LEVELS, MAX_TENSORS
from .parameters import name_of

Find = Callable[[str], Any]
"""Finds a registered function, ``function.Applicable``, by its name."""
Parse = Callable[["Reader", "Item"], Step]
INSTRUCTION = Members("an instruction", ("op", "inputs", "outputs", "attrs"))
STEPS: dict[str, Parse] = {}
"""The readers of instructions by name, with "op" for all ops; filled by steps.py and control.py."""


def step(name: str) -> Callable[[Parse], Parse]:
    """Register the reader of the instruction of this name."""

    def declare(parse: Parse) -> Parse:
        STEPS[name] = parse
        return parse

    return declare


class Item:
    """One instruction of a definition, with its inputs parsed."""

    __slots__ = ("attrs", "inputs", "known", "op", "outputs", "path")

    def __init__(self, data: Any, path: str, known: Known) -> None:
        if not isinstance(data, Mapping) or not isinstance(data.get("op"), str):
            raise InvalidFunction('an instruction is {"op": …, "inputs": […], "outputs": […], "attrs": {…}}')
        data = INSTRUCTION.of(data, InvalidFunction)
        self.op: str = data["op"]
        self.path = path
        self.known = known
        inputs, outputs, attrs = data.get("inputs", []), data.get("outputs", []), data.get("attrs", {})
        if not is_list(inputs) or not is_list(outputs) or not isinstance(attrs, Mapping):
            raise InvalidFunction("inputs and outputs are lists, attrs is an object")
        self.inputs = tuple([self._input(x) for x in inputs])
        self.outputs = [name_of(x) for x in outputs]
        self.attrs: Mapping[str, Any] = attrs

    def _input(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            if value in NUMBERS:
                return NUMBERS[value]
            if value not in self.known.tensors:
                raise InvalidFunction(f"there is no tensor {value!r:.60} before this instruction")
            return value
        if is_list(value):
            if depth > 1:
                raise InvalidFunction("inputs nest at most two lists deep")
            if len(value) > MAX_TENSORS:
                raise LimitExceeded(f"a list has {len(value)} tensors, {MAX_TENSORS} are possible")
            return tuple([self._input(v, depth + 1) for v in value])
        if depth and value is not None:
            raise InvalidFunction(f"a list in inputs has tensors and nulls, not {type(value).__name__}")
        return expressions.parse(value, self.known)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute with its expressions parsed."""
        return expressions.parse(self.attrs[name], self.known) if name in self.attrs else default

    def expect(self, inputs: Collection[int], attrs: Collection[str] = (), outputs: Collection[int] = (1,)) -> None:
        """Check the numbers of inputs and outputs, and that no attribute is unknown."""
        for what, given, allowed in (("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)):
            if len(given) not in allowed:
                raise InvalidFunction(f"{self.op} has {' or '.join(map(str, allowed))} {what}, not {len(given)}")
        if unknown := self.attrs.keys() - set(attrs):
            raise InvalidFunction(f"{self.op} has no attribute {min(unknown)!r:.60}")

    def names(self, value: Any) -> tuple[str, ...]:
        """Return an input that is a list of tensors. Raises InvalidFunction if it is not."""
        if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
            raise InvalidFunction(f"{self.op} takes a list of tensors here")
        return value


class Reader:
    """Reads the programs of one definition."""

    def __init__(self, parameters: Collection[str], find: Find) -> None:
        self.parameters = parameters
        self.find = find
        self.count = 0
        self.expanded = 0
        self.levels = 0
        """The nesting depth of its blocks, including those of the functions that it applies."""
        self._depth = 0

    def block(
        self, data: Any, path: str, given: Collection[str], inputs: bool = True, keys: Collection[str] = ()
    ) -> Block:
        """Read a program ``{inputs?, instructions, outputs}``, which may also use the ids ``given``.

        Raises InvalidFunction with ``where`` in its context, or LimitExceeded.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise LimitExceeded(f"branches and loops nest at most {MAX_DEPTH} deep")
        self.reach(0)
        own = ("inputs", "instructions", "outputs", *keys) if inputs else ("instructions", "outputs", *keys)
        if not isinstance(data, Mapping) or "outputs" not in data:
            raise at(InvalidFunction(f"a program is an object of {', '.join(own)}"), path)
        try:
            Members("a program", own, {}).of(data, InvalidFunction)
            names = [name_of(x) for x in self._list(data.get("inputs", []), "inputs", MAX_TENSORS)]
            known = {*given, *names}
            if len(set(names)) < len(names):
                raise InvalidFunction("two inputs have the same name")
            instructions = self._list(data.get("instructions", []), "instructions", MAX_INSTRUCTIONS)
        except (InvalidFunction, LimitExceeded) as error:
            raise at(error, path) from None
        steps = [self._step(item, f"{path}[{index}]", known) for index, item in enumerate(instructions)]
        try:
            outputs = [self._output(x, known) for x in self._list(data["outputs"], "outputs", MAX_TENSORS)]
        except (InvalidFunction, LimitExceeded) as error:
            raise at(error, f"{path}.outputs") from None
        self._depth -= 1
        around = _words({**data, "instructions": ()}, *instructions) & set(given)
        return Block(names, steps, outputs, _done(data, steps, instructions), sorted(around - set(names)))

    def reach(self, levels: int) -> None:
        """Record that ``levels`` more levels nest at this point. Raises LimitExceeded."""
        self.levels = max(self.levels, self._depth + levels)
        if self.levels > MAX_LEVELS:
            raise LimitExceeded(
                f"functions that apply functions, their branches and loops nest at most {MAX_LEVELS} deep together"
            )

    def _list(self, value: Any, what: str, most: int) -> Sequence[Any]:
        if not is_list(value):
            raise InvalidFunction(f"{what} is a list")
        if len(value) > most:
            raise LimitExceeded(f"{what} has {len(value)} items, {most} are possible")
        return value

    def _output(self, value: Any, known: Collection[str]) -> Any:
        if value is None or (isinstance(value, str) and value in known):
            return value
        if isinstance(value, Mapping):
            return expressions.parse(value, Known(known, self.parameters))
        raise InvalidFunction(f"the output {value!r:.60} is no tensor of this program")

    def _step(self, data: Any, path: str, known: set[str]) -> Step:
        """Read one instruction and add its outputs to ``known``."""
        self.count += 1
        name = data.get("op") if isinstance(data, Mapping) else None
        try:
            if self.count > MAX_INSTRUCTIONS:
                raise LimitExceeded(f"a function has at most {MAX_INSTRUCTIONS} instructions")
            item = Item(data, path, Known(known, self.parameters))
            found = STEPS.get(item.op, STEPS["op"])(self, item)
            for output in item.outputs:
                if output in known:
                    raise InvalidFunction(f"there is a tensor {output!r} already; each name is given once")
                known.add(output)
            self.expanded += found.size
            if self.expanded > MAX_EXPANDED:
                raise LimitExceeded(f"with the functions that it applies, it has more than {MAX_EXPANDED} instructions")
        except LimitExceeded as error:
            raise at(error, path, name) from None
        except TelegradError as error:
            raise at(error if isinstance(error, InvalidFunction) else InvalidFunction(str(error)), path, name) from None
        return found


def _done(data: Mapping[str, Any], steps: Sequence[Step], instructions: Sequence[Any]) -> list[list[str]]:
    """Return for each step the names made in this block that are not used after it."""
    made = {name for step in steps for name in step.outputs}
    later = _words({**data, "instructions": ()})
    done: list[list[str]] = []
    for instruction in reversed(instructions):
        here = _words(instruction)
        done.append(sorted((here & made) - later))
        later |= here
    return done[::-1]


def _words(*parts: Any) -> set[str]:
    """Return all strings in a definition's data, including tensor names; for a constant only its own name."""
    found, waiting = set[str](), list(parts)
    while waiting:
        data = waiting.pop()
        if isinstance(data, str):
            found.add(data)
        elif isinstance(data, Mapping):
            waiting.extend([INSTRUCTION.outputs(data)] if data.get("op") == "tensor" else data.values())
        elif isinstance(data, (list, tuple)):
            waiting.extend(data)
    return found


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value of a definition is a JSON list."""
    return isinstance(value, (list, tuple))


def is_tensor_output(value: Any) -> bool:
    """Return whether a block's output is a tensor, not null or an expression."""
    return value is not None and type(value) is not Expression


def at(error: TelegradError, path: str, op: Any = None) -> TelegradError:
    """Return the error with its location, unless a nested instruction has already added one."""
    if "where" not in error.context:
        program, _, rest = path.partition("[")
        index = rest.partition("]")[0]
        error.context["where"] = {
            "program": program.partition(".")[0],
            "instruction": int(index) if index.isdecimal() else None,
            "op": op[:80] if isinstance(op, str) else None,
            "path": path,
        }
        what = f" ({op:.60})" if isinstance(op, str) else ""
        located = type(error)(f"{path}{what}: {error.detail}")
        located.context = error.context
        return located
    return error
