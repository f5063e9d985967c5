"""Packs the arguments of commands, and answers, as bytes: MessagePack with extensions for what commands contain."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
from pydantic import BaseModel

from telegrad_engine.program import safetensors
from telegrad_engine.program.instructions import Instruction
from telegrad_engine.tensor.conversion import NumberList

from .frames import Data

TUPLE, ARRAY, INSTRUCTION, INTEGER, NUMBERS = 1, 2, 3, 4, 5
"""The codes of the extensions; they are part of the journal's format and never change."""
MAX_BYTES = 2**31 - 1
BYTES, BYTES_CODE = struct.Struct(">BI"), 0xC6
"""MessagePack's head of long bytes: its code, and their number."""


def pack(value: Any) -> bytes:
    """Pack a value. Raises TypeError for a type that no command has."""
    packed: bytes = msgpack.packb(value, default=_extension, strict_types=True)
    return packed


def pack_command(name: str, arguments: Sequence[Any]) -> list[Data]:
    """A command as pieces: ``["command", name, count]``, then each argument. Long bytes are not copied.

    They must not change until they are written, unless they have :data:`~telegrad_engine.program.safetensors.LARGE`
    bytes: an upload that long may become a tensor's memory, so it is copied.
    """
    pieces: list[Data] = [pack(["command", name, len(arguments)])]
    for value in arguments:
        if isinstance(value, (bytes, bytearray, memoryview)):
            pieces += [BYTES.pack(BYTES_CODE, len(value)), value if len(value) < safetensors.LARGE else bytes(value)]
        else:
            pieces.append(pack(value))
    return pieces


def unpack(data: bytes | memoryview) -> Iterator[Any]:
    """The values that were packed one after another."""
    unpacker = msgpack.Unpacker(
        None, ext_hook=_value, strict_map_key=False, max_buffer_size=MAX_BYTES, max_bin_len=MAX_BYTES
    )
    unpacker.feed(data)
    return iter(unpacker)


def _extension(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgpack.ExtType(TUPLE, pack(list(value)))
    if isinstance(value, BaseModel):  # the command's signature has the class
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Instruction):
        fields = value.op, value.inputs, value.outputs, dict(value.attrs), value.grad_mode
        return msgpack.ExtType(INSTRUCTION, pack(list(fields)))
    if isinstance(value, (np.ndarray, NumberList)):
        code, array = (NUMBERS, value.array) if isinstance(value, NumberList) else (ARRAY, value)
        return msgpack.ExtType(code, bytes(safetensors.encode({}, {"array": array})))
    if isinstance(value, int):  # MessagePack's own integers have 64 bits
        return msgpack.ExtType(INTEGER, str(value).encode())
    raise TypeError(f"cannot write {type(value).__name__} to a journal")


def _value(code: int, data: memoryview) -> Any:
    if code in (ARRAY, NUMBERS):
        array = safetensors.decode(bytes(data))[1]["array"]
        return array if code == ARRAY else NumberList(array)
    if code == INTEGER:
        return int(bytes(data).decode())
    inner = next(unpack(data))
    if code == TUPLE:
        return tuple(inner)
    if code == INSTRUCTION:
        return Instruction(*inner)
    raise TypeError(f"a journal has no extension {code}")
