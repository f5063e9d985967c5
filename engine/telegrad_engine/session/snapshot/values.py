"""Python values as JSON: the attributes and the saved values of nodes, and the parts of instructions.

None, bools, strings, integers and finite floats are written as they are. Any other value is a list that begins with a
letter for its type. Ops and dtypes are written by name; arrays, tensors and checkpoints by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ... import dtypes
from ...dtypes import DType
from ...errors import MalformedRequest, NotSupported
from ...memory_layout import MEMORY_FORMATS, memory_format
from ...schema.op import CATALOGUE, Op
from ...shapes import Size, Spec
from ...tensor.conversion import NumberList
from ...transforms.saved_tensor_hooks import Packed

MAX_PLAIN = 2**63
DTYPES = {dtype.name: dtype.numpy for dtype in dtypes.ALL}
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class References(Protocol):
    """Gives the objects that a value refers to their numbers; in reading, finds objects by number."""

    def array(self, array: Any) -> Any:
        """Return the number of an array, or the array."""

    def tensor(self, tensor: Any) -> Any:
        """Return the number of a tensor, or the tensor."""

    def packed(self, value: Any) -> Any:
        """Return the JSON of a saved tensor that a checkpoint recomputes, or that saved tensor."""


def encode(value: Any, numbers: References) -> Any:
    """Return a value as JSON. Raises NotSupported for a value of an unknown type."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return value if -MAX_PLAIN <= value < MAX_PLAIN else ["i", str(value)]
    if kind is float:
        return value if math.isfinite(value) else ["f", repr(value)]
    if kind is np.ndarray:
        return ["a", numbers.array(value)]
    written = _WRITERS.get(kind)
    if written is not None:
        return written(value, numbers)
    if isinstance(value, Op):
        return ["o", value.key]
    if isinstance(value, np.dtype):
        return ["n", dtype_name(value)]
    if isinstance(value, np.generic):
        return ["g", dtype_name(value.dtype), value.tobytes().hex()]
    if isinstance(value, Mapping):
        return ["d", *[[key, encode(item, numbers)] for key, item in value.items()]]
    if hasattr(value, "_version_counter"):
        return ["T", numbers.tensor(value)]
    raise NotSupported(f"a value of the type {kind.__name__} cannot be saved")


_WRITERS: dict[type, Callable[[Any, References], Any]] = {
    list: lambda value, numbers: ["l", *[encode(item, numbers) for item in value]],
    tuple: lambda value, numbers: ["t", *[encode(item, numbers) for item in value]],
    Size: lambda value, numbers: ["z", *value],
    slice: lambda value, numbers: ["s", *[encode(x, numbers) for x in (value.start, value.stop, value.step)]],
    type(Ellipsis): lambda value, numbers: ["e"],
    DType: lambda value, numbers: ["y", value.name],
    memory_format: lambda value, numbers: ["m", value.name],
    NumberList: lambda value, numbers: ["N", numbers.array(value.array)],
    Spec: lambda value, numbers: ["S", list(value.shape), dtype_name(value.dtype)],
    Packed: lambda value, numbers: ["P", numbers.packed(value)],
}


def decode(data: Any, objects: References) -> Any:
    """Return the value of JSON that :func:`encode` wrote. Raises MalformedRequest for anything else."""
    if type(data) is not list:
        return data
    if not data or type(data[0]) is not str or data[0] not in _READERS:
        raise MalformedRequest("snapshot: a value has no known type")
    return _READERS[data[0]](data[1:], objects)


_READERS: dict[str, Callable[[list[Any], References], Any]] = {
    "i": lambda parts, objects: int(_text(parts[0])),
    "f": lambda parts, objects: float(_text(parts[0])),
    "a": lambda parts, objects: objects.array(parts[0]),
    "o": lambda parts, objects: CATALOGUE.get(_text(parts[0])),
    "n": lambda parts, objects: dtype_of(parts[0]),
    "g": lambda parts, objects: np.frombuffer(bytes.fromhex(_text(parts[1])), dtype_of(parts[0]))[0],
    "d": lambda parts, objects: {_text(key): decode(item, objects) for key, item in parts},
    "T": lambda parts, objects: objects.tensor(parts[0]),
    "l": lambda parts, objects: [decode(item, objects) for item in parts],
    "t": lambda parts, objects: tuple([decode(item, objects) for item in parts]),
    "z": lambda parts, objects: Size(sizes(parts)),
    "s": lambda parts, objects: slice(*[decode(item, objects) for item in parts]),
    "e": lambda parts, objects: Ellipsis,
    "y": lambda parts, objects: dtypes.parse(_text(parts[0])),
    "m": lambda parts, objects: MEMORY_FORMATS[parts[0]],
    "N": lambda parts, objects: NumberList(objects.array(parts[0])),
    "S": lambda parts, objects: Spec(sizes(parts[0]), dtype_of(parts[1])),
    "P": lambda parts, objects: objects.packed(parts[0]),
}


def sizes(values: Any) -> tuple[int, ...]:
    """Return a list of integers as a tuple. Raises MalformedRequest for anything else."""
    if type(values) is not list or any(type(value) is not int for value in values):
        raise MalformedRequest("snapshot: a shape is a list of integers")
    return tuple(values)


def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy dtype. Raises NotSupported for one that no tensor has."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        raise NotSupported(f"an array of {dtype} cannot be saved")
    return name


def dtype_of(name: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of this name. Raises MalformedRequest."""
    if not isinstance(name, str) or name not in DTYPES:
        raise MalformedRequest(f"snapshot: unknown dtype {name!r:.40}")
    return DTYPES[name]


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > 4096:
        raise MalformedRequest("snapshot: a name is a string")
    return value
