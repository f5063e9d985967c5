"""Frames, the records of a journal: each has a length, a checksum, a sequence number and the epoch of its writer.

A crash can leave an incomplete frame at the end of a file, and zeros after it: space that was reserved but not written.
Such a torn tail was never acknowledged, and is cut off. A damaged frame with other frames after it means that the
storage lost acknowledged data, which is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xxhash import xxh3_64

from telegrad_engine.errors import SessionLost

HEADER = struct.Struct("<IQQQ")
"""The bytes of the payload, the checksum of all that follows it, the sequence number, the epoch."""
NUMBERS = struct.Struct("<QQ")
Data = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """A frame of a journal."""

    sequence: int
    epoch: int
    payload: memoryview


def encode(sequence: int, epoch: int, parts: Sequence[Data]) -> list[Data]:
    """A frame whose payload are the parts, as the pieces to write."""
    length = sum(map(len, parts))
    return [HEADER.pack(length, _checksum(sequence, epoch, parts), sequence, epoch), *parts]


def decode(data: Data) -> Iterator[Frame]:
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
    state = xxh3_64(NUMBERS.pack(sequence, epoch))
    for part in parts:
        state.update(part)
    return state.intdigest()
