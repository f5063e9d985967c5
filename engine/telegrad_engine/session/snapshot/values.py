"""Python values as JSON: the attributes and the saved values of nodes, and the parts of instructions.

None, bools, strings, integers and finite floats are written as they are. Any other value is a list that begins with a
letter for its type. Ops and dtypes are written by name; arrays, tensors and checkpoints by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

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


def encode(value: Any, writer: Any) -> Any:
    """Return a value as JSON; the Writer numbers its objects. Raises NotSupported for a value of an unknown type."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return value if -MAX_PLAIN <= value < MAX_PLAIN else ["i", str(value)]
    if kind is float:
        return value if math.isfinite(value) else ["f", repr(value)]
    if kind is np.ndarray:
        return ["a", writer.array(value)]
    written = _WRITERS.get(kind)
    if written is not None:
        return written(value, writer)
    if isinstance(value, Op):
        return ["o", value.key]
    if isinstance(value, np.dtype):
        return ["n", dtype_name(value)]
    if isinstance(value, np.generic):
        return ["g", dtype_name(value.dtype), value.tobytes().hex()]
    if isinstance(value, Mapping):
        return ["d", *[[key, encode(item, writer)] for key, item in value.items()]]
    if hasattr(value, "_version_counter"):
        return ["T", writer.tensor(value)]
    raise NotSupported(f"a value of the type {kind.__name__} cannot be saved")


_WRITERS: dict[type, Callable[[Any, Any], Any]] = {
    list: lambda value, writer: ["l", *[encode(item, writer) for item in value]],
    tuple: lambda value, writer: ["t", *[encode(item, writer) for item in value]],
    Size: lambda value, writer: ["z", *value],
    slice: lambda value, writer: ["s", *[encode(x, writer) for x in (value.start, value.stop, value.step)]],
    type(Ellipsis): lambda value, writer: ["e"],
    DType: lambda value, writer: ["y", value.name],
    memory_format: lambda value, writer: ["m", value.name],
    NumberList: lambda value, writer: ["N", writer.array(value.array)],
    Spec: lambda value, writer: ["S", list(value.shape), dtype_name(value.dtype)],
    Packed: lambda value, writer: ["P", writer.packed(value)],
}


def decode(data: Any, reader: Any) -> Any:
    """Return the value of JSON that :func:`encode` wrote; the Reader has the objects. Raises MalformedRequest."""
    if type(data) is not list:
        return data
    if not data or type(data[0]) is not str or data[0] not in _READERS:
        raise MalformedRequest("snapshot: a value has no known type")
    return _READERS[data[0]](data[1:], reader)


_READERS: dict[str, Callable[[list[Any], Any], Any]] = {
    "i": lambda parts, reader: int(_text(parts[0])),
    "f": lambda parts, reader: float(_text(parts[0])),
    "a": lambda parts, reader: reader.array(parts[0]),
    "o": lambda parts, reader: CATALOGUE.get(_text(parts[0])),
    "n": lambda parts, reader: dtype_of(parts[0]),
    "g": lambda parts, reader: np.frombuffer(bytes.fromhex(_text(parts[1])), dtype_of(parts[0]))[0],
    "d": lambda parts, reader: {_text(key): decode(item, reader) for key, item in parts},
    "T": lambda parts, reader: reader.tensor(parts[0]),
    "l": lambda parts, reader: [decode(item, reader) for item in parts],
    "t": lambda parts, reader: tuple([decode(item, reader) for item in parts]),
    "z": lambda parts, reader: Size(sizes(parts)),
    "s": lambda parts, reader: slice(*[decode(item, reader) for item in parts]),
    "e": lambda parts, reader: Ellipsis,
    "y": lambda parts, reader: dtypes.parse(_text(parts[0])),
    "m": lambda parts, reader: MEMORY_FORMATS[parts[0]],
    "N": lambda parts, reader: NumberList(reader.array(parts[0])),
    "S": lambda parts, reader: Spec(sizes(parts[0]), dtype_of(parts[1])),
    "P": lambda parts, reader: reader.packed(parts[0]),
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
