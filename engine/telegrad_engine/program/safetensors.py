"""The safetensors container: JSON in its metadata, arrays as its tensors.

Format: 8 bytes little-endian header length, a JSON header, then the data. The header maps each name
to ``{dtype, shape, data_offsets}`` and ``__metadata__`` to strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DTypeMismatch, MalformedRequest
from .json_codec import dumps_plain, loads_plain

MEDIA_TYPE = "application/vnd.safetensors"
MAX_HEADER = 16 * 2**20
SMALL = 2**12
"""Below this many bytes an array is copied, which is faster than exposing its memory."""
LARGE = 2**20
"""From this many bytes on, pieces are joined in a NumPy array, whose new memory is in large pages."""

Container = bytes | memoryview
"""The type of a container."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
_MEMBERS = {"dtype", "shape", "data_offsets"}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def has_dtype(dtype: Any) -> bool:
    """Return whether a container can have arrays of a NumPy dtype."""
    return dtype in _NAMES


def encode(metadata: Mapping[str, str], arrays: Mapping[str, Any]) -> Container:
    """Return a container of ``arrays`` with ``metadata`` in its header."""
    return joined(pieces(metadata, arrays))


def pieces(metadata: Mapping[str, str], arrays: Mapping[str, Any]) -> list[Container]:
    """Return a container in pieces: its header, and the memory of the arrays, which must not change until sent."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    parts: list[Any] = []
    offset = 0
    # Widest first, so that every array starts at a multiple of its item size.
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        size = array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
        parts.append(array.tobytes() if size < SMALL else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    text = dumps_plain(header)
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *parts]


def joined(parts: Sequence[Container]) -> Container:
    """Join the pieces of a container."""
    size = sum(map(len, parts))
    if size < LARGE:
        return b"".join(parts)
    whole = np.empty(size, np.uint8).data
    position = 0
    for part in parts:
        whole[position : position + len(part)] = part
        position += len(part)
    return whole


def decode(body: bytes | bytearray | memoryview) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the metadata and the arrays of a container; the arrays are views of ``body``.

    Raises MalformedRequest if the container is truncated or padded, or its tensors overlap or have wrong sizes.
    """
    buffer = memoryview(body)
    header, start = _header(buffer)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise MalformedRequest("safetensors: __metadata__ maps names to strings")
    arrays: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _entry(name, entry)
        if end > len(buffer) - start:
            raise MalformedRequest(f"safetensors: tensor {name!r:.60} ends beyond the container")
        spans.append((begin, end))
        count = (end - begin) // dtype.itemsize
        arrays[name] = (
            np.frombuffer(buffer, dtype, count, start + begin).reshape(shape) if count else np.empty(shape, dtype)
        )
    _check_spans(sorted(spans), len(buffer) - start)
    return metadata, arrays


def _header(buffer: memoryview) -> tuple[dict[str, Any], int]:
    if len(buffer) < 8:
        raise MalformedRequest("safetensors: shorter than its 8 bytes of header length")
    length = int.from_bytes(buffer[:8], "little")
    if length > MAX_HEADER:
        raise MalformedRequest(f"safetensors: header of {length} bytes, at most {MAX_HEADER} are read")
    if length > len(buffer) - 8:
        raise MalformedRequest("safetensors: the header ends beyond the container")
    try:
        header = loads_plain(buffer[8 : 8 + length])
    except ValueError:
        raise MalformedRequest("safetensors: the header is not JSON") from None
    if not isinstance(header, dict):
        raise MalformedRequest("safetensors: the header is not an object")
    return header, 8 + length


def _entry(name: str, entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    if not isinstance(entry, dict) or entry.keys() != _MEMBERS:
        raise MalformedRequest(f"safetensors: tensor {name!r:.60} needs dtype, shape and data_offsets")
    word, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = _DTYPES.get(word) if isinstance(word, str) else None
    if dtype is None:
        raise DTypeMismatch(f"safetensors: tensor {name!r:.60} has an unsupported dtype {word!r:.20}")
    if not _are_sizes(shape) or len(shape) > 64:
        raise MalformedRequest(f"safetensors: tensor {name!r:.60} has no proper shape")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise MalformedRequest(f"safetensors: tensor {name!r:.60} has no proper offsets")
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise MalformedRequest(f"safetensors: tensor {name!r:.60} has {end - begin} bytes for shape {shape} of {word}")
    return dtype, shape, begin, end


def _are_sizes(values: Any) -> bool:
    """Return whether ``values`` is a list of integers from 0 to 2**62. A loop, because it is fast and runs often."""
    if type(values) is not list:
        return False
    for value in values:  # noqa: SIM110
        if type(value) is not int or not 0 <= value < 2**62:
            return False
    return True


def _check_spans(spans: list[tuple[int, int]], size: int) -> None:
    position = 0
    for begin, end in spans:
        if begin != position:
            raise MalformedRequest("safetensors: tensors overlap or leave holes")
        position = end
    if position != size:
        raise MalformedRequest("safetensors: bytes after the last tensor")
