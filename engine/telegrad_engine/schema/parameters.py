"""Kinds of parameters of ops and verbs.

The parameters of an op are annotated with these types. Each refers to a :class:`Kind`, which checks a value, converts
it to its canonical form and to JSON, and has its JSON schema and its type for stubs. Binding, request validation, the
catalogue and the stubs are therefore all derived from one signature.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from .. import dtypes
from ..errors import IndexOutOfRange, InvalidArgument, InvalidValue, NumberTooLarge
from ..memory_layout import MEMORY_FORMATS, memory_format


class ArgumentMismatch(TypeError):
    """An error with torch's text about a value that does not fit.

    The text may contain ``{function}``, ``{argument}`` and ``{position}`` (of the argument, from 0), which
    ``Signature`` fills in.
    """


Take = Callable[[float], dict[str, int]]
"""Returns the operand, as JSON data, that replaces a number in a template (program/instructions.py)."""


class Kind:
    """A kind of parameter.

    ``parse`` raises TypeError for an unsuitable value, or ArgumentMismatch with torch's text.
    """

    word = "object"
    stub = "Any"
    schema: dict[str, Any] = {}
    is_tensor = False
    deferrable = True
    """Whether the value may be symbolic while a function is traced."""
    splats = False
    """Whether the value may be given as several positional arguments: ``view(2, 3)``."""

    @property
    def label(self) -> str:
        """The kind in ``parameters.toml``: ``Ints``."""
        return type(self).__name__.removesuffix("Kind")

    def takes_splat(self, rest: Sequence[Any]) -> bool:
        """Whether these last positional arguments form the value together."""
        if len(rest) == 1 and hasattr(type(rest[0]), "is_symbolic"):
            return False  # a symbolic value may be a whole shape
        return all((isinstance(v, int) and not isinstance(v, bool)) or hasattr(v, "_data") for v in rest)

    def parse(self, value: Any) -> Any:
        """Return the canonical form of ``value``."""
        return value

    def encode(self, value: Any) -> Any:
        """Return a canonical value as JSON data, which ``parse`` accepts."""
        return value

    def lift(self, encoded: Any, take: Take) -> Any:
        """Replace numbers that do not affect shapes in JSON data by their operands, which ``take`` returns."""
        return encoded


class TensorKind(Kind):
    """A tensor."""

    word, stub, is_tensor = "Tensor", "Self", True
    schema = {"type": "string", "description": "a tensor id"}

    def parse(self, value: Any) -> Any:
        if not hasattr(value, "_data"):
            raise TypeError
        return value


class OperandKind(TensorKind):
    """A tensor or a number."""

    stub = "Self | float"
    schema = {"type": ["string", "number", "boolean"], "description": "a tensor id, or a number"}

    def parse(self, value: Any) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return value.item()
        return fitting(value) if isinstance(value, (bool, int, float)) else super().parse(value)


class TensorListKind(Kind):
    """A list of tensors."""

    word, stub, is_tensor = "tuple of Tensors", "Sequence[Self]", True
    schema = {"type": "array", "items": {"description": "a tensor id"}}
    gaps = False
    """Whether None is allowed in place of a tensor."""

    def parse(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        for i, v in enumerate(value):
            if not hasattr(v, "_data") and not (v is None and self.gaps):
                raise ArgumentMismatch(
                    f"expected Tensor as element {i} in argument {{position}}, but got {type(v).__name__}"
                )
        return tuple(value)


class IndicesKind(TensorListKind):
    """A list of index tensors; None selects a whole dimension."""

    gaps = True


class PlacesKind(IndicesKind):
    """A list of index tensors without masks, which have their own overload."""

    def parse(self, value: Any) -> tuple[Any, ...]:
        parsed = super().parse(value)
        if any(x is not None and x._data.dtype == bool for x in parsed):
            raise TypeError
        return parsed


class TensorsKind(TensorListKind):
    """A list of tensors, or the tensors themselves: ``einsum("ij,jk", a, b)``."""

    splats = True

    def takes_splat(self, rest: Sequence[Any]) -> bool:
        return all(hasattr(v, "_data") for v in rest)


LOWEST = -(2**63)
"""The lowest int64."""

INT_OVERFLOW = "Overflow when unpacking long long"


def fitting(number: float | int) -> float | int:
    """Return the number, or raise NumberTooLarge for an int that fits neither int64 nor uint64."""
    if isinstance(number, int) and not LOWEST <= number < 2**64:
        raise NumberTooLarge("int too big to convert" if number > 0 else "can't convert negative int to unsigned")
    return number


def _is_whole_number(tensor: Any) -> bool:
    """Whether a tensor can be used as an int."""
    data = tensor._data  # None for a symbolic value
    return data is not None and tuple(data.shape) == () and data.dtype.kind in "iu"


class IntKind(Kind):
    """An int, or a 0-dim integer tensor."""

    word, stub = "int", "int"
    schema = {"type": "integer"}

    def parse(self, value: Any) -> int:
        if isinstance(value, bool) or (hasattr(value, "_data") and not _is_whole_number(value)):
            raise TypeError
        number = operator.index(value)
        if not LOWEST <= number <= -LOWEST - 1:
            raise InvalidValue(INT_OVERFLOW)
        return number


class NumberKind(Kind):
    """A Python number; NaN and infinities are strings in JSON."""

    word, stub = "Number", "float"
    schema = {"type": ["number", "boolean", "string"]}
    _words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

    def parse(self, value: Any) -> float | int | bool:
        if isinstance(value, str):
            if value in self._words:
                return self._words[value]
            raise TypeError
        if isinstance(value, (bool, int, float)):
            return fitting(value)
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return self.parse(value.item())
        raise TypeError

    def encode(self, value: Any) -> Any:
        return [encode_number(v) for v in value] if isinstance(value, tuple) else encode_number(value)

    def lift(self, encoded: Any, take: Take) -> Any:
        if isinstance(encoded, list):
            return [self.lift(each, take) for each in encoded]
        return take(encoded) if type(encoded) in (int, float) else encoded


class NumberOrStrKind(NumberKind):
    """A number, a string such as norm's "fro", or None."""

    word, stub = "Number or str", "float | str | None"

    def parse(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value not in self._words):
            return value
        return super().parse(value)


def encode_number(value: Any) -> Any:
    """Return a number as strict JSON data, with NaN and infinities as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


class BoolKind(Kind):
    """True or False."""

    word, stub = "bool", "bool"
    schema = {"type": "boolean"}

    def parse(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise TypeError
        return value


_INT = IntKind()


class IntsKind(Kind):
    """Several ints, such as a shape or dimensions; a single int stands for a tuple of one."""

    word, stub, splats = "tuple of ints", "int | Sequence[int]", True
    schema = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}

    def parse(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, (list, tuple)):
            return tuple([self._element(i, v) for i, v in enumerate(value)])
        return (_INT.parse(value),)

    def _element(self, i: int, value: Any) -> int:
        if i and isinstance(value, bool):  # as in torch, only the first element must not be a bool
            return int(value)
        try:
            return _INT.parse(value)
        except InvalidValue as error:
            why = str(error)
        except TypeError:
            if not i:  # torch chooses the overload by the list's first element
                raise
            why = f"type must be tuple of ints,but got {type(value).__name__}"
        where = f"{{function}}(): argument '{{argument}}' failed to unpack the object at pos {i + 1}"
        raise ArgumentMismatch(f'{where} with error "{why}"')

    def encode(self, value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value


class IntOrIntsKind(IntsKind):
    """One int or several, which are distinguished: the size or sizes of split."""

    word, splats = "int or tuple of ints", False

    def parse(self, value: Any) -> Any:
        parsed = super().parse(value)
        return parsed if isinstance(value, (list, tuple)) else parsed[0]


class ShiftsKind(IntOrIntsKind):
    """One int or several that do not affect shapes: the shifts of roll."""

    def lift(self, encoded: Any, take: Take) -> Any:
        return [take(n) for n in encoded] if isinstance(encoded, list) else take(encoded)


class SizesKind(IntOrIntsKind):
    """One int or several, any of which may be None: in adaptive pooling, None is the size of the input."""

    stub = "int | Sequence[int | None]"
    schema = {
        "anyOf": [
            {"type": "integer"},
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        ]
    }

    def _element(self, i: int, value: Any) -> Any:
        return None if value is None else super()._element(i, value)


class IntsOrStrKind(IntOrIntsKind):
    """One int or several, or a string such as a convolution's padding "same"."""

    word, stub = "int, tuple of ints or str", "int | Sequence[int] | str"
    schema = {"anyOf": [*IntsKind.schema["anyOf"], {"type": "string"}]}

    def parse(self, value: Any) -> Any:
        return value if isinstance(value, str) else super().parse(value)


class NumberOrNumbersKind(NumberKind):
    """One number or several: the spacing of gradient."""

    word, stub = "Number or tuple of Numbers", "float | Sequence[float]"
    schema = {"anyOf": [NumberKind.schema, {"type": "array", "items": NumberKind.schema}]}

    def parse(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple([super(NumberOrNumbersKind, self).parse(v) for v in value])
        return super().parse(value)


class NumbersKind(NumberOrNumbersKind):
    """Several numbers: the range of a histogram."""

    word, stub = "tuple of floats", "Sequence[float]"
    schema = {"type": "array", "items": NumberKind.schema}

    def parse(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return super().parse(value)


class DTypeKind(Kind):
    """A dtype or its name."""

    word, stub = "torch.dtype", "DTypeLike"
    schema = {"type": "string", "enum": [d.name for d in dtypes.ALL]}

    def parse(self, value: Any) -> dtypes.DType:
        return dtypes.parse(value)

    def encode(self, value: Any) -> Any:
        return value.name


class StrKind(Kind):
    """A string: a device or an equation."""

    word, stub = "str", "str"
    schema = {"type": "string"}

    def parse(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        return value


class ReductionKind(StrKind):
    """The reduction of a loss; the loss checks its value."""

    def parse(self, value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidValue(f"{value} is not a valid value for reduction")
        return value


class DeviceKind(StrKind):
    """The name of a device, or a device object, this library's or torch's."""

    stub = "Any"
    deferrable = False

    def parse(self, value: Any) -> str:
        return super().parse(str(value) if hasattr(value, "type") and hasattr(value, "index") else value)


class MemoryFormatKind(Kind):
    """A memory format or its name."""

    word = "torch.memory_format"
    schema = {"type": "string", "enum": [*MEMORY_FORMATS]}
    deferrable = False

    def parse(self, value: Any) -> memory_format:
        if isinstance(value, str) and value in MEMORY_FORMATS:
            return MEMORY_FORMATS[value]
        if not isinstance(value, memory_format):
            raise TypeError
        return value

    def encode(self, value: Any) -> Any:
        return value.name


class NoneKind(Kind):
    """None only: an argument that selects another overload if it is given."""

    word, stub = "None", "None"
    schema = {"type": "null"}

    def parse(self, value: Any) -> None:
        raise TypeError


class ListKind(Kind):
    """A list of lists, strings or numbers that the op interprets."""

    word, stub = "list", "Sequence[Any]"
    schema = {"type": "array"}

    def parse(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return _freeze(value)

    def encode(self, value: Any) -> list[Any]:
        return [self.encode(v) if isinstance(v, tuple) else v for v in value]


class IndexKind(ListKind):
    """A basic index of ints, None, "..." and ("slice", start, stop, step), with bounds that are ints or None."""

    word = "index"

    def parse(self, value: Any) -> tuple[Any, ...]:
        index = super().parse(value)
        for item in index:
            if isinstance(item, tuple):
                _check_slice(item)
            elif item is not None and item != "..." and (not isinstance(item, int) or isinstance(item, bool)):
                raise ArgumentMismatch(f'{{function}}(): an index has ints, null, "..." and slices, not {_plain(item)}')
        if sum(item == "..." for item in index) > 1:
            raise IndexOutOfRange("an index can only have a single ellipsis ('...')")
        return index

    def lift(self, encoded: Any, take: Take) -> Any:
        return [
            take(item) if type(item) is int else _lift_start(item, take) if isinstance(item, list) else item
            for item in encoded
        ]


def _lift_start(item: list[Any], take: Take) -> list[Any]:
    """Replace the start of a slice by an operand. Its length, which determines the shape, stays in the template."""
    word, start, stop, step = item
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop:
        return item
    operand = take(start)
    return [word, operand, {**operand, "plus": stop - start}, step]


def _check_slice(item: tuple[Any, ...]) -> None:
    bounds = item[1:]
    if item[:1] != ("slice",) or len(bounds) != 3 or any(isinstance(b, bool) for b in bounds):
        raise ArgumentMismatch(f'{{function}}(): a slice is ["slice", start, stop, step], not {_plain(item)}')
    if not all(b is None or isinstance(b, int) for b in bounds):
        raise InvalidArgument("slice indices must be integers or None or have an __index__ method")
    if bounds[2] == 0:
        raise InvalidValue("slice step cannot be zero")


def _plain(value: Any) -> str:
    """The value for an error text that ``str.format`` fills in, with braces escaped."""
    return f"{value!r:.80}".replace("{", "{{").replace("}", "}}")


def _freeze(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_freeze(v) if isinstance(v, (list, tuple)) else v for v in value)


Array = Annotated[Any, TensorKind()]
Operand = Annotated[Any, OperandKind()]
Arrays = Annotated[Any, TensorListKind()]
Indices = Annotated[Any, IndicesKind()]
Places = Annotated[Any, PlacesKind()]
ManyArrays = Annotated[Any, TensorsKind()]
Int = Annotated[int, IntKind()]
Number = Annotated[float, NumberKind()]
Bool = Annotated[bool, BoolKind()]
Ints = Annotated[tuple[int, ...], IntsKind()]
IntOrInts = Annotated[Any, IntOrIntsKind()]
Shifts = Annotated[Any, ShiftsKind()]
Sizes = Annotated[Any, SizesKind()]
IntsOrStr = Annotated[Any, IntsOrStrKind()]
DTypeArg = Annotated[dtypes.DType, DTypeKind()]
Str = Annotated[str, StrKind()]
Reduction = Annotated[str, ReductionKind()]
Index = Annotated[tuple[Any, ...], IndexKind()]
Items = Annotated[tuple[Any, ...], ListKind()]

OptionalNumbers = Annotated[Any, NumbersKind()]
NumberOrNumbers = Annotated[Any, NumberOrNumbersKind()]
NoneOnly = Annotated[None, NoneKind()]
NumberOrStr = Annotated[Any, NumberOrStrKind()]
OptionalInt = Annotated[int | None, IntKind()]
OptionalNumber = Annotated[float | None, NumberKind()]
OptionalBool = Annotated[bool | None, BoolKind()]
OptionalInts = Annotated[tuple[int, ...] | None, IntsKind()]
OptionalDType = Annotated[dtypes.DType | None, DTypeKind()]
OptionalItems = Annotated[tuple[Any, ...] | None, ListKind()]
OptionalDevice = Annotated[str | None, DeviceKind()]
OptionalMemoryFormat = Annotated[memory_format | None, MemoryFormatKind()]
OptionalStr = Annotated[str | None, StrKind()]
