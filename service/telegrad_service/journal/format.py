"""The format of journals: frames of packed values.

A frame has a length, a checksum, a sequence number and the epoch of its writer. A crash can leave an incomplete frame
at the end of a file, and zeros after it: space that was reserved but not written. Such a torn tail was never
acknowledged, and is cut off. A damaged frame with other frames after it means that the storage lost acknowledged data,
which is an error.

Values are the arguments of commands, and answers: MessagePack with extensions for what commands contain.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
from pydantic import BaseModel
from xxhash import xxh3_64

from telegrad_engine.errors import SessionLost
from telegrad_engine.program import safetensors
from telegrad_engine.program.instructions import Instruction
from telegrad_engine.tensor.conversion import NumberList

HEADER = struct.Struct("<IQQQ")
"""The bytes of the payload, the checksum of all that follows it, the sequence number, the epoch."""
SEQUENCE_AND_EPOCH = struct.Struct("<QQ")
Data = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """A frame of a journal."""

    sequence: int
    epoch: int
    payload: memoryview


def encode_frame(sequence: int, epoch: int, parts: Sequence[Data]) -> list[Data]:
    """A frame whose payload are the parts, as the pieces to write."""
    length = sum(map(len, parts))
    return [HEADER.pack(length, _checksum(sequence, epoch, parts), sequence, epoch), *parts]


def decode_frames(data: Data) -> Iterator[Frame]:
    """The frames in a journal's bytes, up to its end or its torn tail. Raises SessionLost."""
    view, start = memoryview(data), 0
    while start < len(view):
        found = _frame_at(view, start)
        if found is None:
            return
        yield found
        start += HEADER.size + len(found.payload)


def _frame_at(view: memoryview, start: int) -> Frame | None:
    """The frame at a position; None if the file is torn there. Raises SessionLost."""
    if start + HEADER.size > len(view):
        return None
    length, checksum, sequence, epoch = HEADER.unpack_from(view, start)
    end = start + HEADER.size + length
    if end > len(view):
        return None
    payload = view[start + HEADER.size : end]
    if checksum == _checksum(sequence, epoch, [payload]):
        return Frame(sequence, epoch, payload)
    if not bytes(view[end:]).strip(b"\0"):
        return None
    raise SessionLost(f"the journal is damaged at byte {start} of {len(view)}, before frames that were acknowledged")


def _checksum(sequence: int, epoch: int, parts: Sequence[Data]) -> int:
    state = xxh3_64(SEQUENCE_AND_EPOCH.pack(sequence, epoch))
    for part in parts:
        state.update(part)
    return state.intdigest()


# Values -------------------------------------------------------------------------------------------

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
