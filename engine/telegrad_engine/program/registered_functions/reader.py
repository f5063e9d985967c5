"""Reads definitions: parameters, names, and programs, whose instructions :mod:`.steps` declares.

An error has the path of the invalid instruction in its text and, as ``where``, in its context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from ...errors import InvalidFunction, LimitExceeded, TelegradError
from ...schema.parameters import BoolKind, DTypeKind, IntKind, IntsKind, Kind, ListKind, NumberKind, StrKind, TensorKind
from ...schema.signature import REQUIRED, Param, Signature
from ..instructions import ID_PATTERN, NUMBERS, Members, check_id, last_uses
from .blocks import Block, BlockStep, Expression, Run, parse
from .limits import MAX_DEPTH, MAX_EXPANDED, MAX_INSTRUCTIONS, MAX_LEVELS, MAX_TENSORS

Find = Callable[[str], Any]
"""Finds a registered function, ``function.Applicable``, by its name."""
STEPS: dict[str, Callable[[Item], Run]] = {}
"""The readers of instructions by name, with "op" for all ops; filled by steps.py."""
TYPES: Mapping[str, Kind] = {
    "number": NumberKind(),
    "int": IntKind(),
    "bool": BoolKind(),
    "str": StrKind(),
    "ints": IntsKind(),
    "list": ListKind(),
    "dtype": DTypeKind(),
}
"""The types of parameters, by their names in a definition."""
INSTRUCTION = Members("an instruction", ("op", "inputs", "outputs", "attrs"))
PARAMETER = Members("an attribute", ("name", "type", "default"), {})
TENSOR = TensorKind()


def step(read: Callable[[Item], Run]) -> Callable[[Item], Run]:
    """Declare the instruction that has the name of this function, which checks it and returns what runs it."""
    STEPS[read.__name__] = read
    return read


class Item:
    """One instruction of a definition, with its inputs parsed, while it is read.

    What runs it must not refer to the item, because the item refers to the library in which functions are found.
    """

    __slots__ = ("attrs", "inputs", "known", "op", "outputs", "path", "reader", "size", "writes")

    def __init__(self, data: Any, path: str, known: Collection[str], reader: Reader) -> None:
        if not isinstance(data, Mapping) or not isinstance(data.get("op"), str):
            raise InvalidFunction('an instruction is {"op": …, "inputs": […], "outputs": […], "attrs": {…}}')
        data = INSTRUCTION.of(data, InvalidFunction)
        self.op: str = data["op"]
        self.path = path
        self.known = known
        self.reader = reader
        inputs, outputs, attrs = data.get("inputs", []), data.get("outputs", []), data.get("attrs", {})
        if not is_list(inputs) or not is_list(outputs) or not isinstance(attrs, Mapping):
            raise InvalidFunction("inputs and outputs are lists, attrs is an object")
        self.inputs = tuple([self._input(x) for x in inputs])
        self.outputs = [name_of(x) for x in outputs]
        self.attrs: Mapping[str, Any] = attrs
        self.size, self.writes = 1, False

    def _input(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return NUMBERS[value] if value in NUMBERS else self.check_known(value)
        if is_list(value):
            if depth > 1:
                raise InvalidFunction("inputs nest at most two lists deep")
            if len(value) > MAX_TENSORS:
                raise LimitExceeded(f"a list has {len(value)} tensors, {MAX_TENSORS} are possible")
            return tuple([self._input(v, depth + 1) for v in value])
        if depth and value is not None:
            raise InvalidFunction(f"a list in inputs has tensors and nulls, not {type(value).__name__}")
        return self.parse(value)

    def check_known(self, name: str) -> str:
        """Return the name of a tensor that is there before this instruction. Raises InvalidFunction for any other."""
        if name not in self.known:
            raise InvalidFunction(f"there is no tensor {name!r:.60} before this instruction")
        return name

    def parse(self, value: Any) -> Any:
        """Parse a value and the expressions in it."""
        return parse(value, self.known, self.reader.parameters)

    def expect(self, inputs: Collection[int], attrs: Collection[str] = (), outputs: Collection[int] = (1,)) -> None:
        """Check the numbers of inputs and outputs, and that no attribute is unknown."""
        for what, given, allowed in (("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)):
            if len(given) not in allowed:
                raise InvalidFunction(f"{self.op} has {' or '.join(map(str, allowed))} {what}, not {len(given)}")
        self.check_attrs(self.attrs, attrs, self.op)

    def check_attrs(self, attrs: Mapping[str, Any], known: Collection[str], owner: str) -> None:
        """Raise InvalidFunction for an attribute that ``owner``, an instruction or a function, does not have."""
        if unknown := attrs.keys() - set(known):
            raise InvalidFunction(f"{owner} has no attribute {min(unknown)!r:.60}")

    def names(self, value: Any) -> tuple[str, ...]:
        """Return an input that is a list of tensors. Raises InvalidFunction if it is not."""
        if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
            raise InvalidFunction(f"{self.op} takes a list of tensors here")
        return value

    def block(self, name: str, inputs: bool = True) -> Block:
        """Read the program that is the attribute ``name``. It may use the tensors that are known here."""
        if name not in self.attrs:
            raise InvalidFunction(f"{self.op} needs {name}, a program")
        block = self.reader.block(self.attrs[name], f"{self.path}.{name}", self.known, inputs)
        self.size += sum(step.size for step in block.steps)
        return block


class Reader:
    """Reads the programs of one definition, and measures them."""

    def __init__(self, parameters: Collection[str], find: Find) -> None:
        self.parameters = parameters
        self.uses: dict[str, Any] = {}
        """The functions that the programs apply, by the names that they have now."""
        self._find = find
        self._count = 0
        self.size = 0
        """The number of the instructions, including those of the functions that they apply."""
        self.levels = 0
        """The nesting depth of the blocks, including those of the functions that they apply."""
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
        self._reach(0)
        own = ("inputs", "instructions", "outputs", *keys) if inputs else ("instructions", "outputs", *keys)
        with located(path):
            if not isinstance(data, Mapping) or "outputs" not in data:
                raise InvalidFunction(f"a program is an object of {', '.join(own)}")
            Members("a program", own, {}).of(data, InvalidFunction)
            names = [name_of(x) for x in _list(data.get("inputs", []), "inputs", MAX_TENSORS)]
            known = {*given, *names}
            if len(set(names)) < len(names):
                raise InvalidFunction("two inputs have the same name")
            instructions = _list(data.get("instructions", []), "instructions", MAX_INSTRUCTIONS)
        steps = [self._step(item, f"{path}[{index}]", known) for index, item in enumerate(instructions)]
        with located(f"{path}.outputs"):
            outputs = [self._output(x, known) for x in _list(data["outputs"], "outputs", MAX_TENSORS)]
        self._depth -= 1
        used, leaving = [*map(_words, instructions)], _words({**data, "instructions": ()})
        local = {name for step in steps for name in step.outputs} - leaving
        done = [sorted(last & local) for last in last_uses(used)]
        return Block(names, steps, outputs, done, sorted(leaving.union(*used) & set(given) - set(names)))

    def function(self, name: str) -> Any:
        """Return a function that is applied at this point. Raises UnknownFunction or LimitExceeded."""
        found = self.uses[name] = self._find(name)
        self._reach(found.levels)
        return found

    def _reach(self, levels: int) -> None:
        """Record that ``levels`` more levels nest at this point. Raises LimitExceeded."""
        self.levels = max(self.levels, self._depth + levels)
        if self.levels > MAX_LEVELS:
            raise LimitExceeded(
                f"functions that apply functions, their branches and loops nest at most {MAX_LEVELS} deep together"
            )

    def _output(self, value: Any, known: Collection[str]) -> Any:
        if value is None or (isinstance(value, str) and value in known):
            return value
        if isinstance(value, Mapping):
            return parse(value, known, self.parameters)
        raise InvalidFunction(f"the output {value!r:.60} is no tensor of this program")

    def _step(self, data: Any, path: str, known: set[str]) -> BlockStep:
        """Read one instruction and add its outputs to ``known``."""
        self._count += 1
        with located(path, data.get("op") if isinstance(data, Mapping) else None):
            if self._count > MAX_INSTRUCTIONS:
                raise LimitExceeded(f"a function has at most {MAX_INSTRUCTIONS} instructions")
            item = Item(data, path, known, self)
            run = STEPS.get(item.op, STEPS["op"])(item)
            for output in item.outputs:
                if output in known:
                    raise InvalidFunction(f"there is a tensor {output!r} already; each name is given once")
                known.add(output)
            self.size += item.size
            if self.size > MAX_EXPANDED:
                raise LimitExceeded(f"with the functions that it applies, it has more than {MAX_EXPANDED} instructions")
            return BlockStep(item.op, item.outputs, path, run, item.size, item.writes)


def _list(value: Any, what: str, most: int) -> Sequence[Any]:
    if not is_list(value):
        raise InvalidFunction(f"{what} is a list")
    if len(value) > most:
        raise LimitExceeded(f"{what} has {len(value)} items, {most} are possible")
    return value


def _words(data: Any) -> set[str]:
    """Return all strings in a definition's data, including tensor names; for a constant only its own name."""
    found, waiting = set[str](), [data]
    while waiting:
        data = waiting.pop()
        if isinstance(data, str):
            found.add(data)
        elif isinstance(data, Mapping):
            own = data.get("outputs", data.get("out"))  # "out" is the deprecated name
            waiting.extend([own] if data.get("op") == "tensor" else data.values())
        elif is_list(data):
            waiting.extend(data)
    return found


def parse_parameters(data: Any) -> tuple[Param, ...]:
    """Parse the parameters of a definition. Raises InvalidFunction or LimitExceeded."""
    if not is_list(data):
        raise InvalidFunction("attrs is a list of objects")
    if len(data) > MAX_TENSORS:
        raise LimitExceeded(f"a function has at most {MAX_TENSORS} attributes, not {len(data)}")
    found = tuple(map(_parse_parameter, data))
    if len({p.name for p in found}) < len(found):
        raise InvalidFunction("two attributes have the same name")
    return found


def _parse_parameter(data: Any) -> Param:
    if not isinstance(data, Mapping) or "name" not in data:
        raise InvalidFunction('an attribute is {"name": …, "type": …, "default": …}; only the name is required')
    PARAMETER.of(data, InvalidFunction)
    name, word, default = name_of(data["name"]), data.get("type", "number"), data.get("default", REQUIRED)
    kind = TYPES.get(word) if isinstance(word, str) else None
    if kind is None:
        raise InvalidFunction(f"attribute {name!r} has type {word!r:.60}; known: {', '.join(TYPES)}")
    if default is not REQUIRED and default is not None:
        try:
            default = kind.parse(default)
        except (TypeError, TelegradError):
            raise InvalidFunction(f"the default of attribute {name!r} is no {word}") from None
    return Param(name, kind, default, False)


def signature(name: str, inputs: Sequence[str], parameters: Sequence[Param], order: Any) -> Signature:
    """Return the signature of a call: tensors and parameters in ``order``, by default all tensors first."""
    by_name = {n: Param(n, TENSOR, REQUIRED, False) for n in inputs}
    if shared := by_name.keys() & {p.name for p in parameters}:
        raise InvalidFunction(f"{min(shared)!r} is both an input and an attribute")
    by_name |= {p.name: p for p in parameters}
    if order is None:
        return Signature(name, tuple(by_name.values()))
    if not is_list(order) or sorted(map(str, order)) != sorted(by_name):
        raise InvalidFunction("order lists each input and each attribute once")
    return Signature(name, tuple(by_name[n] for n in order))


def name_of(value: Any) -> str:
    """Return a value that is a valid name of a tensor or a parameter. Raises InvalidFunction for any other."""
    try:
        return check_id(value)
    except TelegradError:
        raise InvalidFunction(f"not a name: {value!r:.60}; a name matches {ID_PATTERN}") from None


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value of a definition is a JSON list."""
    return isinstance(value, (list, tuple))


def is_tensor_output(value: Any) -> bool:
    """Return whether a block's output is a tensor, not null or an expression."""
    return value is not None and type(value) is not Expression


@contextmanager
def located(path: str, op: Any = None) -> Iterator[None]:
    """Raise errors as InvalidFunction or LimitExceeded with this location, unless they have that of a nested one."""
    try:
        yield
    except TelegradError as error:
        if not isinstance(error, (InvalidFunction, LimitExceeded)):
            error = InvalidFunction(str(error))
        if "where" in error.context:
            raise error from None
        program, _, rest = path.partition("[")
        index = rest.partition("]")[0]
        what = f" ({op:.60})" if isinstance(op, str) else ""
        found = type(error)(f"{path}{what}: {error.detail}", **error.context)
        found.context["where"] = {
            "program": program.partition(".")[0],
            "instruction": int(index) if index.isdecimal() else None,
            "op": op[:80] if isinstance(op, str) else None,
            "path": path,
        }
        raise found from None
