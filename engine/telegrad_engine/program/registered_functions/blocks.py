"""Blocks: the programs of a registered function after they are read, as steps that run in a scope.

A step's numbers may be expressions: values that are known only when a function is called, computed from its parameters
and input shapes. In JSON an expression is an object with one member: ``{"attr": "power"}``, ``{"shape": ["x", 0]}``,
``{"sub": [{"attr": "power"}, 1]}``. It can be used wherever an instruction takes a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from ...cancellation import running
from ...context import state
from ...dtypes import DType, from_numpy
from ...errors import InvalidFunction, InvalidValue, LimitExceeded, TelegradError, TooLarge
from ...shapes import wrap_dim
from ...tensor.abstract import Meta
from ..instructions import NUMBERS
from .limits import MAX_DEPTH, MAX_TENSORS, NAMES_PER_STEP, Budget

MAX_POWER = 1_000
"""The maximum exponent of an integer: a larger power is not a plausible size and takes long to compute."""
MAX_INTEGER = 2**63

CALCULATIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "div": (2, operator.truediv),
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "pow": (2, operator.pow),
    "neg": (1, operator.neg),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "not": (1, operator.not_),
    "item": (2, operator.getitem),
    "len": (1, len),
}
"""For each name the number of operands, and the function."""

ARITHMETIC = frozenset({"add", "sub", "mul", "div", "floordiv", "mod", "pow", "neg"})
"""The calculations that accept only numbers: Python would also multiply strings and lists."""

FACTS: Mapping[str, Callable[[Any], Any]] = {
    "shape": lambda data: tuple(data.shape),
    "numel": lambda data: data.size,
    "ndim": lambda data: len(data.shape),
    "dtype": lambda data: from_numpy(data.dtype),
}
"""The properties of a tensor that an expression can use: all except its values."""

WORDS = frozenset({"attr", *FACTS, *CALCULATIONS})
DEPRECATED = "param"
"""The deprecated word for ``attr``."""


class Expression(NamedTuple):
    """One expression: a word of ``WORDS`` and its operands, which are expressions and plain values."""

    word: str
    operands: tuple[Any, ...]


def parse(value: Any, tensors: Container[str], parameters: Container[str], depth: int = 0) -> Any:
    """Parse a value of a definition, with expressions of these names. Raises InvalidFunction if it is invalid."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"values and expressions nest at most {MAX_DEPTH} deep")
    if isinstance(value, (list, tuple)):
        if len(value) > MAX_TENSORS:
            raise LimitExceeded(f"a list of an attribute has at most {MAX_TENSORS} items, this one has {len(value)}")
        return tuple([parse(v, tensors, parameters, depth + 1) for v in value])
    if not isinstance(value, Mapping):
        if isinstance(value, int) and abs(value) >= MAX_INTEGER:
            raise InvalidFunction("a whole number of more than 64 bits; write it as a float, such as 1e30")
        return value
    if len(value) != 1:
        raise InvalidFunction('an expression has one member, such as {"attr": "power"} or {"shape": ["x", 0]}')
    ((given, operands),) = value.items()
    word = "attr" if given == DEPRECATED else given
    if word == "attr":
        if not isinstance(operands, str) or operands not in parameters:
            raise InvalidFunction(f"there is no attribute {operands!r:.60}")
        return Expression(word, (operands,))
    if word in FACTS:
        pair = word == "shape" and isinstance(operands, (list, tuple)) and len(operands) == 2
        name, *dim = operands if pair else (operands,)
        if not isinstance(name, str) or name not in tensors:
            raise InvalidFunction(f"{word!r} of an unknown tensor: {name!r:.60}")
        return Expression(word, (name, *parse(dim, tensors, parameters, depth)))
    if word not in CALCULATIONS:
        raise InvalidFunction(f"unknown expression {word!r:.60}; known: {', '.join(sorted(WORDS))}")
    count = CALCULATIONS[word][0]
    if not isinstance(operands, (list, tuple)) or len(operands) != count:
        raise InvalidFunction(f"the expression {word!r} takes a list of {count}")
    return Expression(word, parse(operands, tensors, parameters, depth))


def has_expressions(value: Any) -> bool:
    """Return whether a parsed value depends on the call."""
    if type(value) is Expression:
        return True
    return isinstance(value, tuple) and any(map(has_expressions, value))


def evaluate(value: Any, tensors: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    """Evaluate a parsed value in one call. Raises InvalidValue if that fails, for example by a division by zero."""
    if type(value) is not Expression:
        return tuple([evaluate(v, tensors, parameters) for v in value]) if type(value) is tuple else value
    word, operands = value
    if word == "attr":
        return parameters[operands[0]]
    if word in FACTS:
        fact = FACTS[word](tensors[operands[0]]._data)
        return fact if len(operands) == 1 else fact[wrap_dim(evaluate(operands[1], tensors, parameters), len(fact))]
    return _calculate(word, [evaluate(v, tensors, parameters) for v in operands])


def _calculate(word: str, given: list[Any]) -> Any:
    # "NaN" and "Infinity" stand for numbers, and a dtype is compared by its name.
    values: list[Any] = [
        v.name if isinstance(v, DType) else NUMBERS.get(v, v) if isinstance(v, str) else v for v in given
    ]
    try:
        if word in ARITHMETIC and not all(isinstance(v, (int, float)) for v in values):
            raise TypeError("these are not numbers")
        if word == "pow" and all(isinstance(v, int) for v in values) and abs(values[1]) > MAX_POWER:
            raise ValueError(f"the exponent of a whole number is at most {MAX_POWER}")
        result = CALCULATIONS[word][1](*values)
    except (ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise InvalidValue(f"{word} of {', '.join(map(repr, values)):.200}: {error}") from None
    if isinstance(result, int) and abs(result) >= MAX_INTEGER:
        raise InvalidValue(f"{word} gives a whole number of more than 64 bits")
    return result


NO_ROOM = "what a registered function has made so far takes more memory than there is room for"


class CallContext:
    """The parameters and the budget of one call, which all its blocks share."""

    __slots__ = ("budget", "parameters")

    def __init__(self, parameters: Mapping[str, Any], budget: Budget) -> None:
        self.parameters = parameters
        self.budget = budget

    def scope(self, block: Block, tensors: Sequence[Any]) -> Scope:
        """Return the scope in which a program runs with these inputs."""
        some = [t for t in tensors if t is not None]
        frozen = [t._version_counter for t in some]
        return Scope(dict(zip(block.inputs, tensors, strict=True)), self, frozen, some[0]._apply)


class Scope(NamedTuple):
    """The tensors of a running block by name."""

    tensors: dict[str, Any]
    call: CallContext
    frozen: Sequence[Any]
    """The version counters of the function's own inputs, which its steps must not write to."""
    apply: Callable[..., Any]
    """The function that applies ops, as the class of the inputs defines it."""

    def value(self, x: Any) -> Any:
        """Return an input of a step: the tensor with this name, or the value of an expression."""
        if type(x) is str:
            return self.tensors[x]
        return tuple([self.value(v) for v in x]) if type(x) is tuple else self.number(x)

    def number(self, x: Any) -> Any:
        """Return an attribute of a step: the value of an expression, or a plain value."""
        return evaluate(x, self.tensors, self.call.parameters)


Run = Callable[[Scope], Sequence[Any]]
"""Runs a step. Returns one result per output."""


class BlockStep(NamedTuple):
    """One instruction."""

    op: str
    outputs: Sequence[str]
    path: str
    """Its position in the definition."""
    run: Run
    size: int
    """The number of instructions that it stands for, with those of its blocks and of the function that it applies."""
    writes: bool
    """Whether it changes a tensor in place."""

    def run_in(self, scope: Scope) -> None:
        """Run, and add the results to the scope. They count as memory of the session, if there is one."""
        memory = state.memory
        try:
            for name, tensor in zip(self.outputs, self.run(scope), strict=False):
                scope.tensors[name] = tensor
                if memory is not None and tensor._base is None and not self.writes and type(tensor) is not Meta:
                    memory.count(tensor._data)
                    if memory.room < 0:
                        raise TooLarge(NO_ROOM)
        except TelegradError as error:
            error.context.setdefault("where", {"path": self.path, "op": self.op})
            raise


class Block(NamedTuple):
    """Steps with the names of their inputs and of their outputs (None for an output that is null)."""

    inputs: Sequence[str]
    steps: Sequence[BlockStep]
    outputs: Sequence[Any]
    done: Sequence[Sequence[str]]
    """For each step, the names that are not needed after it."""
    around: Sequence[str]
    """The names from outside that it uses."""

    def run(self, scope: Scope) -> list[Any]:
        """Run in ``scope``, which already has the inputs. An error has the path of its step in the context."""
        scope.call.budget.spend(1 + len(self.steps))
        token, memory = running.token, state.memory
        for step, done in zip(self.steps, self.done, strict=True):
            if token is not None:
                token.check()
            step.run_in(scope)
            for name in done:
                scope.tensors.pop(name, None)
            if memory is not None:
                state.room = memory.room  # of which the next result may take all
        return [None if name is None else scope.value(name) for name in self.outputs]

    def run_inside(self, scope: Scope, given: Sequence[Any] = ()) -> list[Any]:
        """Run once inside another block, whose scope is ``scope``; the names that it defines are local."""
        scope.call.budget.spend((len(self.around) + len(given)) // NAMES_PER_STEP)
        tensors = {name: scope.tensors[name] for name in self.around}
        tensors.update(zip(self.inputs, given, strict=True))
        return self.run(Scope(tensors, scope.call, scope.frozen, scope.apply))
