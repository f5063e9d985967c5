"""Splits arguments and results into tensors and the parts that stay the same from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..tape.graph_pattern import Unrepeatable
from ..tensor.handle import Tensor

EXACT = frozenset({int, bool, str, bytes, type(None)})
Rebuild = Callable[[Sequence[Tensor], Sequence[Tensor]], Any]
"""Makes a result from a call's input tensors and the tensors that the call creates."""


class Arguments:
    """The arguments of one call. ``key`` has everything but the tensors' values, and ``objects`` by their identity."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        """The arguments that are neither tensors nor constants; they must be the same objects in every call."""
        parts: list[Any] = []
        for value in args:
            self._add(value, parts)
        for name, value in kwargs.items():
            parts.append(name)
            self._add(value, parts)
        self.key = tuple(parts)

    @property
    def outline(self) -> tuple[Any, ...]:
        """The key without its numbers."""
        return tuple([_outlined(part, at, self.key) for at, part in enumerate(self.key)])

    def _add(self, value: Any, parts: list[Any]) -> None:
        kind = type(value)
        if isinstance(value, Tensor):
            data = value._data
            parts += (kind, data.shape, data.dtype, value._requires_grad)
            self.tensors.append(value)
        elif kind in EXACT:
            parts += (kind, value)
        elif kind is float or kind is complex:
            parts += (kind, repr(value))  # 0.0 and -0.0 are equal, and NaN is not
        elif isinstance(value, (list, tuple)):
            parts += (kind, len(value))
            for item in value:
                self._add(item, parts)
        elif kind is dict:
            parts += (kind, *value)
            for item in value.values():
                self._add(item, parts)
        else:
            parts += ("object", id(value))
            self.objects.append(value)


def _outlined(part: Any, at: int, parts: Sequence[Any]) -> Any:
    """A part of a key, or None for a number. A number comes after its type."""
    return None if at and (parts[at - 1] is int or parts[at - 1] is float) else part


def rebuilding(value: Any, given: dict[int, int], results: list[Tensor]) -> Rebuild:
    """Return the function that makes a result like this one. Append its tensors that were not ``given`` to ``results``.

    Raises Unrepeatable for an object that only the function's own code can make.
    """
    if isinstance(value, Tensor):
        if id(value) in given:
            place = given[id(value)]
            return lambda tensors, made: tensors[place]
        index = next((i for i, other in enumerate(results) if other is value), len(results))
        if index == len(results):
            results.append(value)
        return lambda tensors, made: made[index]
    kind = type(value)
    if kind in EXACT or kind in (float, complex):
        return lambda tensors, made: value
    if isinstance(value, (list, tuple)) and (kind in (list, tuple) or hasattr(kind, "_make")):
        items = [rebuilding(item, given, results) for item in value]
        make: Any = getattr(kind, "_make", kind)
        return lambda tensors, made: make([item(tensors, made) for item in items])
    if kind is dict:
        named = {name: rebuilding(item, given, results) for name, item in value.items()}
        return lambda tensors, made: {name: item(tensors, made) for name, item in named.items()}
    raise Unrepeatable(f"it gives back a {kind.__name__}, which is not made of tensors")
