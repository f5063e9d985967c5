"""Stand-ins that record what traced code does with them: symbols for numbers, and tensors without values.

A symbol records operations on it as an expression of the function's definition. A traced tensor's shape is a symbol,
so that the program works for all shapes. When the code asks for a symbol's truth, the tracer follows both answers;
symbols have a value, and tensors a shape and a dtype, only if the function is traced on an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from telegrad_engine.dtypes import DType, from_numpy
from telegrad_engine.errors import InvalidOperation, NeedsExample
from telegrad_engine.program.registered_functions.blocks import CALCULATIONS, FACTS
from telegrad_engine.schema.op import NO_ATTRS, Op
from telegrad_engine.tensor.abstract import Meta

from ..call_site import users_line
from ..tensor.handle import Tensor

UNKNOWN: Any = object()
"""The hint of a symbol without a known value."""


class Unknown(Exception):
    """Raised when a symbol or a tensor has no example."""


def refusal(text: str) -> InvalidOperation:
    """The error of code that cannot be traced, which names the user's line."""
    return InvalidOperation(f"{users_line()}: {text}")


def needs_example(what: str) -> NeedsExample:
    """The error of code that can be traced only on an example."""
    return NeedsExample(
        f"{users_line()}: {what} is known only in a call. Give an example of the inputs: "
        "register_function(name, example=(…,))"
    )


class Symbol:
    """A number, string or shape that is known only in a call. ``hint`` is its value in the example, if any."""

    is_symbolic = True
    _data = None
    """Keeps an op's parameters from treating the symbol as a plain number, which would be checked and copied, and lets
    it pass as a size in ``view(2, n)``."""

    def __init__(self, tracer: Any, expression: Any, hint: Any = UNKNOWN) -> None:
        self.tracer = tracer
        self.expression = expression
        self.hint = hint

    def __repr__(self) -> str:
        return f"<known in a call: {json.dumps(self.expression)}>"

    def __bool__(self) -> bool:
        return bool(self.tracer.decide(self.expression))

    def _value(self) -> Any:
        """The value in the example, which becomes a guard of the trace."""
        text = json.dumps(self.expression)
        if self.hint is UNKNOWN:
            raise needs_example(f"the value of {text} is asked for, and")
        self.tracer.guards[text] = self.hint
        return self.hint

    def __index__(self) -> int:
        return int(self._value())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._value())

    def __hash__(self) -> int:
        raise refusal(f"{self!r} cannot be a key while a function is traced")

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple([self[i] for i in range(*index.indices(len(self)))])
        if not isinstance(index, int):
            raise refusal(f"{self!r} can be indexed by a number only")
        return self.calculate("item", self, index)

    def numel(self) -> Symbol:
        """Return the number of elements of a shape."""
        if not (isinstance(self.expression, dict) and "shape" in self.expression):
            raise AttributeError("numel")
        hint = UNKNOWN if self.hint is UNKNOWN else math.prod(self.hint)
        return Symbol(self.tracer, {"numel": self.expression["shape"]}, hint)

    def calculate(self, word: str, *operands: Any) -> Symbol:
        """Return the symbol of an operation on symbols and plain values."""
        known = [o.hint if isinstance(o, Symbol) else o for o in operands]
        hint = UNKNOWN if any(h is UNKNOWN for h in known) else CALCULATIONS[word][1](*known)
        return Symbol(self.tracer, {word: [to_json(o) for o in operands]}, hint)


def _operator(word: str, swapped: bool) -> Callable[..., Any]:
    def operate(self: Symbol, *others: Any) -> Any:
        if any(hasattr(o, "_data") and not isinstance(o, Symbol) for o in others):
            return NotImplemented  # let the tensor compute it
        return self.calculate(word, *others, self) if swapped else self.calculate(word, self, *others)

    return operate


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Symbol, f"__{_name}__", _operator(_name.removeprefix("true"), False))
    setattr(Symbol, f"__r{_name}__", _operator(_name.removeprefix("true"), True))
for _name in ("neg", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Symbol, f"__{_name}__", _operator(_name, False))


def to_json(value: Any) -> Any:
    """Return an instruction's value in the form that definitions use."""
    if isinstance(value, Symbol):
        return value.expression
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, value) if type(value) is float else value


def hints(value: Any) -> Any:
    """Return stand-ins for tensors, and the example's values for symbols. Raises Unknown without an example."""
    if isinstance(value, (list, tuple)):
        return tuple([hints(v) for v in value])
    if isinstance(value, (Symbol, Traced)):
        found = value.hint
        if found is UNKNOWN:
            raise Unknown
        return found
    return Meta(value._data) if isinstance(value, Tensor) else value


def has_symbol(value: Any) -> bool:
    """Whether an attribute has symbols in it."""
    return isinstance(value, Symbol) or (isinstance(value, (list, tuple)) and any(map(has_symbol, value)))


def encode(op: Op, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Encode attributes as in a definition."""
    plain = op.encode_attrs({name: value for name, value in attrs.items() if not has_symbol(value)})
    return {name: to_json(plain.get(name, value)) for name, value in attrs.items()}


class Traced(Tensor):
    """A tensor of the program that is being traced. ``hint`` has its shape and dtype in the example, if any."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Traced:
        """Create the object only: a traced tensor belongs to no session."""
        return object.__new__(cls)

    def __init__(self, tracer: Any, name: str, hint: Any = UNKNOWN) -> None:
        self._recorder = self.tracer = tracer
        self._id = name
        self._version_counter = [0]
        self.hint = hint
        tracer.hints.setdefault(name, hint)

    @property
    def _data(self) -> Any:
        return _Data(self)

    def read(self, word: str) -> Any:
        """Return the ``shape`` or ``dtype`` of the example, which becomes a guard of the trace."""
        if self.hint is UNKNOWN:
            raise needs_example("the shape or the dtype of a tensor is asked for, and")
        value = getattr(self.hint._data, word)
        guard = from_numpy(value).name if word == "dtype" else list(value)
        self.tracer.guards[json.dumps({word: self._id})] = guard
        return value

    def __repr__(self) -> str:
        return f"<traced tensor {self._id}>"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def _symbol(self, word: str) -> Any:
        return Symbol(self.tracer, {word: self._id}, UNKNOWN if self.hint is UNKNOWN else FACTS[word](self.hint._data))

    @property
    def shape(self) -> Any:
        """The shape, known only in a call."""
        return self._symbol("shape")

    @property
    def dtype(self) -> Any:
        """The dtype, known only in a call."""
        return self._symbol("dtype")

    def numel(self) -> Any:
        """The number of elements, known only in a call."""
        return self._symbol("numel")

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions, known only with an example; every trace on an example depends on it."""
        return len(self._data.shape) if self.hint is UNKNOWN else self.hint.dim()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.dim()

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating, according to the example."""
        return from_numpy(self._data.dtype).is_floating_point

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        answer: bool = self.tracer.decide(self._id)
        return answer

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        self.tracer.check_writable(self)
        self.tracer.write(f"{op.key}_", inputs, (), encode(op, attrs))
        return self

    def detach(self) -> Any:
        """Return a tensor outside the graph."""
        return self.tracer.record("detach", [self], {}, 1, [self.hint])[0]

    def __getitem__(self, index: Any) -> Any:
        known = self.tracer.evaluate(lambda: hints(self)[hints(index)])
        return self.tracer.record("index_get", [self], {"index": self._index(index)}, 1, known)[0]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.check_writable(self)
        self.tracer.write("index_set", [self, value], (), {"index": self._index(index)})

    def _index(self, index: Any) -> list[Any]:
        """An index expression in the form that definitions use."""
        found: list[Any] = []
        for item in index if isinstance(index, tuple) else (index,):
            if item is Ellipsis:
                found.append("...")
            elif isinstance(item, slice):
                found.append(["slice", to_json(item.start), to_json(item.stop), to_json(item.step)])
            elif isinstance(item, Tensor):
                found.append(self.tracer.reference(item))
            elif item is None or isinstance(item, (bool, int)):
                found.append(to_json(item))
            else:
                raise refusal(f"a traced index has numbers, slices, None, ... and tensors, not {type(item).__name__}")
        return found


def _without_value(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        """Raise InvalidOperation: a traced tensor has no value."""
        raise refusal(
            f"{what} asks for the value of a tensor, and there is none while a function is traced. "
            "Compute with the tensor itself, or do not register the function: apply() runs any Python"
        )

    return refuse


for _name, _what in {
    "_fetch": "this",
    "numpy": "numpy()",
    "value": "value()",
    "item": "item()",
    "__index__": "a conversion to int",
}.items():
    setattr(Traced, _name, _without_value(_what))


class _Data:
    """The ``_data`` of a traced tensor: its shape and dtype in the example."""

    def __init__(self, tensor: Traced) -> None:
        self._read = tensor.read

    shape = property(lambda self: self._read("shape"))
    dtype = property(lambda self: self._read("dtype"))
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
