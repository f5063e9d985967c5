"""The kinds of parameters that only verbs have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ..schema.parameters import Kind, NumberKind, StrKind, Take, TensorKind


class IdKind(StrKind):
    """The id of a hook, a ctx or a call. It is an operand, because each has another one."""

    def lift(self, encoded: Any, take: Take) -> Any:
        """Return the operand in place of the id."""
        return take(encoded)


class DataKind(Kind):
    """A value: an array from the container, or nested lists."""

    word, stub = "nested lists of numbers", "Any"
    schema = {"description": 'nested lists of numbers; "NaN", "Infinity" and "-Infinity" for what JSON lacks'}

    def encode(self, value: Any) -> Any:
        """Convert an array to nested lists; return any other value unchanged."""
        from .json_codec import to_lists

        return to_lists(value) if hasattr(value, "dtype") else value


class SettingsKind(Kind):
    """An object whose members the verb itself checks."""

    word, stub = "dict", "dict[str, Any]"
    schema = {"type": "object"}

    def parse(self, value: Any) -> Any:
        """Return a copy of the object."""
        if not isinstance(value, Mapping):
            raise TypeError
        return dict(value)


class OptionsKind(SettingsKind):
    """An optimizer's settings: numbers, pairs of numbers, and switches."""

    def lift(self, encoded: Any, take: Take) -> Any:
        """Return the settings with operands in place of numbers."""
        return {name: _NUMBERS.lift(list(v) if isinstance(v, tuple) else v, take) for name, v in encoded.items()}


class StateKind(Kind):
    """Several lists of tensors."""

    word, stub, is_tensor = "tuple of tuples of Tensors", "Any", True
    schema = {"type": "array", "items": {"type": "array"}}


class NamesKind(Kind):
    """A list of names."""

    word, stub = "tuple of strs", "Sequence[str]"
    schema = {"type": "array", "items": {"type": "string"}}

    def parse(self, value: Any) -> Any:
        """Return a tuple of strings."""
        if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
            raise TypeError
        return tuple(value)


class OptionalTensorsKind(TensorKind):
    """A list of tensors and nulls."""

    word = "tuple of Tensors"
    schema = {"type": "array"}
    others: tuple[type, ...] = (type(None),)
    """The types of the items that are not tensors."""

    def parse(self, value: Any) -> Any:
        """Return a list in which each item is a tensor or of another allowed type."""
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return [v if isinstance(v, self.others) else super(OptionalTensorsKind, self).parse(v) for v in value]


class ValuesKind(OptionalTensorsKind):
    """A list of tensors and numbers."""

    word = "tuple of Tensors and numbers"
    schema = {"type": "array", "items": {"description": "a tensor id, or a number"}}
    others = (bool, int, float)


_NUMBERS = NumberKind()
Id = Annotated[str, IdKind()]
OptionalId = Annotated[str | None, IdKind()]
Data = Annotated[Any, DataKind()]
Settings = Annotated[dict[str, Any], SettingsKind()]
Options = Annotated[dict[str, Any], OptionsKind()]
States = Annotated[Any, StateKind()]
Names = Annotated[Any, NamesKind()]
Tensors = Annotated[Any, OptionalTensorsKind()]
Values = Annotated[Any, ValuesKind()]
