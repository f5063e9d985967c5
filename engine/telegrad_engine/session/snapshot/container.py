"""The file of a snapshot: a safetensors container.

The metadata has the ``format`` "telegrad.snapshot", its ``version`` and the ``checksum`` of the data. The tensor
``state`` is the description of the session as JSON, ``block.N`` the memory of the description's block N, and ``small``
the memory of all smaller blocks in order, each at a multiple of 8 bytes. The JSON is a tensor because the header of a
container is limited.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import MalformedRequest, NotSupported
from ...program import safetensors
from ...program.json_codec import dumps_plain, loads_plain
from ...program.safetensors import Container
from .blocks import Arrays
from .writer import VERSION

FORMAT = "telegrad.snapshot"
LARGE = 2**16
"""Blocks of at least this many bytes are tensors of their own."""
ALIGNMENT = 8
_PADDING = bytes(ALIGNMENT)


def encode(document: Mapping[str, Any], arrays: Arrays) -> Container:
    """Return the container of a description and its arrays."""
    found: dict[str, Any] = {"state": np.frombuffer(dumps_plain(document), np.uint8)}
    small: list[bytes] = []
    for number, block in enumerate(arrays.blocks):
        data = block.data()
        if data.nbytes >= LARGE:
            found[f"block.{number}"] = _readable(data, arrays, block.arrays)
        else:
            small.append(data.tobytes())
            small.append(_PADDING[: -data.nbytes % ALIGNMENT])
    found["small"] = np.frombuffer(b"".join(small), np.uint8)
    metadata = {"format": FORMAT, "version": str(VERSION), "checksum": _checksum(found)}
    return safetensors.encode(metadata, found)


def _readable(data: Any, arrays: Arrays, numbers: Sequence[int]) -> Any:
    """Return a block with the dtype and shape of the array that is all of it, for other readers of the file."""
    for number in numbers:
        spec = arrays.specs[number]
        if spec.covers(data.nbytes):
            return data.view(spec.dtype).reshape(spec.shape) if safetensors.has_dtype(spec.dtype) else data
    return data


def decode(body: Container) -> tuple[dict[str, Any], list[Any]]:
    """Return the description and the memory of each block, as views of the body.

    Raises MalformedRequest if the body is not a snapshot or is damaged, NotSupported for a version of the format that
    this version of the engine cannot read.
    """
    metadata, arrays = safetensors.decode(body)
    if metadata.get("format") != FORMAT:
        raise MalformedRequest(f"not a snapshot: the metadata's format is not {FORMAT}")
    if metadata.get("version") != str(VERSION):
        raise NotSupported(f"a snapshot of version {metadata.get('version')!r:.20}; this engine reads {VERSION}")
    if not {"state", "small"} <= arrays.keys():
        raise MalformedRequest("snapshot: the state is missing")
    if metadata.get("checksum") != _checksum(arrays):
        raise MalformedRequest("snapshot: the checksum does not match; the file is damaged")
    try:
        document = loads_plain(arrays["state"].tobytes())
    except ValueError:
        raise MalformedRequest("snapshot: the state is not JSON") from None
    if not isinstance(document, dict) or document.get("format") != VERSION:
        raise MalformedRequest("snapshot: the state is not that of a session")
    return document, _blocks(document, arrays)


def _blocks(document: Mapping[str, Any], arrays: dict[str, Any]) -> list[Any]:
    small, position, found = _bytes_of(arrays["small"]), 0, []
    for number, nbytes in enumerate(document["blocks"]):
        if type(nbytes) is not int or nbytes < 0:
            raise MalformedRequest("snapshot: memory of no size")
        if nbytes >= LARGE:
            data = _bytes_of(arrays.get(f"block.{number}", small[:0]))
        else:
            data = small[position : position + nbytes]
            position += nbytes + -nbytes % ALIGNMENT
        if data.nbytes != nbytes:
            raise MalformedRequest("snapshot: the memory of an array is missing")
        found.append(data)
    return found


def _bytes_of(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _checksum(arrays: Mapping[str, Any]) -> str:
    """Return the CRC-32 of the tensors by name, which finds damage but no intent."""
    found = 0
    for name in sorted(arrays):
        found = zlib.crc32(_bytes_of(arrays[name]).data, zlib.crc32(name.encode(), found))
    return f"{found:08x}"
