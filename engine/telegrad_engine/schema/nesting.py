"""The inputs of an op as one list: an input is a tensor, a number, or a tuple of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def flattened(inputs: Iterable[Any]) -> list[Any]:
    """Return the inputs with the elements of tuples in place of the tuples."""
    flat: list[Any] = []
    for x in inputs:
        if isinstance(x, tuple):
            flat.extend(x)
        else:
            flat.append(x)
    return flat


def nested(values: Iterator[Any], inputs: Iterable[Any]) -> tuple[Any, ...]:
    """Return the next ones of a flat list of values in the structure of the inputs."""
    return tuple([tuple([next(values) for _ in x]) if isinstance(x, tuple) else next(values) for x in inputs])


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return ``function(value)``; for a tuple or list, a tuple of the function's results for the elements."""
    return tuple([mapped(function, v) for v in value]) if isinstance(value, (tuple, list)) else function(value)
