"""What an op's parameters may be.

An op's signature is written with these annotations. Each names a :class:`Kind`, which checks and
canonicalises a value, writes it as JSON, and knows its JSON schema and its type in a stub, so
binding, request validation, the catalogue and the stubs all come from the one signature.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from . import dtypes
from .errors import InvalidArgument


class Kind:
    """A kind of parameter. ``parse`` raises TypeError for what it does not take."""

    word = "object"
    stub = "Any"
    schema: dict[str, Any] = {}
    is_tensor = False
    deferrable = True
    """Whether a traced function may leave it open until it is called."""
    splats = False
    """Whether the value may be given as several positional arguments: ``view(2, 3)``."""

    def takes_splat(self, rest: Sequence[Any]) -> bool:
        """Whether these last positional arguments together are the value."""
        return len(rest) > 1 and all(isinstance(v, int) and not isinstance(v, bool) for v in rest)

    def parse(self, value: Any) -> Any:
        """The canonical form of ``value``."""
        return value

    def encode(self, value: Any) -> Any:
        """The canonical form as JSON data; ``parse`` reads it back."""
        return value


class TensorKind(Kind):
    """A tensor."""

    word, stub, is_tensor = "Tensor", "Self", True
    schema = {"type": "string", "description": "a tensor id"}

    def parse(self, value: Any) -> Any:
        if not hasattr(value, "_data"):
            raise TypeError
        return value


class OperandKind(TensorKind):
    """A tensor, or a number that broadcasts with one."""

    stub = "Self | float"
    schema = {"type": ["string", "number", "boolean"], "description": "a tensor id, or a number"}

    def parse(self, value: Any) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return value.item()
        return value if isinstance(value, (bool, int, float)) else super().parse(value)


class TensorListKind(Kind):
    """A list of tensors."""

    word, stub, is_tensor = "tuple of Tensors", "Sequence[Self]", True
    schema = {"type": "array", "items": {"description": "a tensor id"}}

    def parse(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        for i, v in enumerate(value):
            if v is not None and not hasattr(v, "_data"):
                raise InvalidArgument(f"expected Tensor as element {i} in argument 0, but got {type(v).__name__}")
        return tuple(value)


class TensorsKind(TensorListKind):
    """A list of tensors, or the tensors themselves: ``einsum("ij,jk", a, b)``."""

    splats = True

    def takes_splat(self, rest: Sequence[Any]) -> bool:
        return all(hasattr(v, "_data") for v in rest)


class IntKind(Kind):
    """A whole number."""

    word, stub = "int", "int"
    schema = {"type": "integer"}

    def parse(self, value: Any) -> int:
        if isinstance(value, bool) or hasattr(value, "_data"):
            raise TypeError
        return operator.index(value)


class NumberKind(Kind):
    """A Python number; NaN and infinities travel as strings in JSON."""

    word, stub = "Number", "float"
    schema = {"type": ["number", "boolean", "string"]}
    _words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

    def parse(self, value: Any) -> float | int | bool:
        if isinstance(value, str):
            if value in self._words:
                return self._words[value]
            raise TypeError
        if isinstance(value, (bool, int, float)):
            return value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return self.parse(value.item())
        raise TypeError

    def encode(self, value: Any) -> Any:
        return encode_number(value)


class NumberOrStrKind(NumberKind):
    """A number, or a word that names what a number cannot: norm's "fro"; None where the op has a meaning for it."""

    word, stub = "Number or str", "float | str | None"

    def parse(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value not in self._words):
            return value
        return super().parse(value)


def encode_number(value: Any) -> Any:
    """A number as strict JSON has it: NaN and infinities become strings."""
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


class IntsKind(Kind):
    """Several whole numbers, or one that stands for a tuple of one: a shape, or dimensions."""

    word, stub, splats = "tuple of ints", "int | Sequence[int]", True
    schema = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}

    def parse(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, (list, tuple)):
            return tuple(IntKind.parse(self, v) for v in value)  # type: ignore[arg-type]
        return (IntKind.parse(self, value),)  # type: ignore[arg-type]

    def encode(self, value: Any) -> list[int]:
        return list(value)


class IntOrIntsKind(IntsKind):
    """One whole number or several, kept apart: split's size or sizes."""

    word, splats = "int or tuple of ints", False

    def parse(self, value: Any) -> Any:
        parsed = super().parse(value)
        return parsed if isinstance(value, (list, tuple)) else parsed[0]

    def encode(self, value: Any) -> Any:
        return value if isinstance(value, int) else list(value)


class IntsOrStrKind(IntOrIntsKind):
    """One whole number or several, or a word that stands for them: a convolution's padding "same"."""

    word, stub = "int, tuple of ints or str", "int | Sequence[int] | str"
    schema = {"anyOf": [*IntsKind.schema["anyOf"], {"type": "string"}]}

    def parse(self, value: Any) -> Any:
        return value if isinstance(value, str) else super().parse(value)

    def encode(self, value: Any) -> Any:
        return value if isinstance(value, str) else super().encode(value)


class DTypeKind(Kind):
    """A dtype or its name."""

    word, stub = "torch.dtype", "DTypeLike"
    schema = {"type": "string", "enum": [d.name for d in dtypes.ALL]}

    def parse(self, value: Any) -> dtypes.DType:
        return dtypes.parse(value)

    def encode(self, value: Any) -> str:
        name: str = value.name
        return name


class StrKind(Kind):
    """A word: a device, an equation."""

    word, stub = "str", "str"
    schema = {"type": "string"}

    def parse(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        return value


class DeviceKind(StrKind):
    """A device's name, or an object that prints as one: this library's or torch's."""

    stub = "Any"
    deferrable = False

    def parse(self, value: Any) -> str:
        return super().parse(str(value) if hasattr(value, "type") and hasattr(value, "index") else value)


class NoneKind(Kind):
    """Only None: an argument that selects another overload when given."""

    word, stub = "None", "None"
    schema = {"type": "null"}

    def parse(self, value: Any) -> None:
        raise TypeError


class ListKind(Kind):
    """A list of lists or words that the op itself reads."""

    word, stub = "list", "Sequence[Any]"
    schema = {"type": "array"}

    def parse(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return _freeze(value)

    def encode(self, value: Any) -> list[Any]:
        return [self.encode(v) if isinstance(v, tuple) else v for v in value]


def _freeze(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_freeze(v) if isinstance(v, (list, tuple)) else v for v in value)


Array = Annotated[Any, TensorKind()]
Operand = Annotated[Any, OperandKind()]
Arrays = Annotated[Any, TensorListKind()]
ManyArrays = Annotated[Any, TensorsKind()]
Int = Annotated[int, IntKind()]
Number = Annotated[float, NumberKind()]
Bool = Annotated[bool, BoolKind()]
Ints = Annotated[tuple[int, ...], IntsKind()]
IntOrInts = Annotated[Any, IntOrIntsKind()]
IntsOrStr = Annotated[Any, IntsOrStrKind()]
DTypeArg = Annotated[dtypes.DType, DTypeKind()]
Str = Annotated[str, StrKind()]
Items = Annotated[tuple[Any, ...], ListKind()]

NoneOnly = Annotated[None, NoneKind()]
NumberOrStr = Annotated[Any, NumberOrStrKind()]
OptionalInt = Annotated[int | None, IntKind()]
OptionalNumber = Annotated[float | None, NumberKind()]
OptionalBool = Annotated[bool | None, BoolKind()]
OptionalInts = Annotated[tuple[int, ...] | None, IntsKind()]
OptionalDType = Annotated[dtypes.DType | None, DTypeKind()]
OptionalItems = Annotated[tuple[Any, ...] | None, ListKind()]
OptionalDevice = Annotated[str | None, DeviceKind()]
OptionalStr = Annotated[str | None, StrKind()]
