"""Frames of WebSocket, as the server reads and writes them."""

from __future__ import annotations

import numpy as np
from xxhash import xxh3_128

from .kept import Kept

TEXT, BINARY = 0x81, 0x82
"""The first byte of a message that is one frame."""
CLOSE = 0x88
CONTROL = (CLOSE, 0x89, 0x8A)
"""The first byte of a close, a ping, a pong."""
_MASKED = 0x80
SHORT = 2**20
"""Bytes of the longest message that is read at once."""
PIECE = 2**18
"""Bytes of a longer message that are read at a time, and then unmasked and hashed while they are in the cache."""
_BEFORE = 2
"""Words in front of an expected message, at the end of which its header is."""
_KEPT = Kept()


class Arriving:
    """A message that is arriving. Each piece is unmasked in place; the pieces of a long message are also hashed."""

    def __init__(self, length: int, mask: bytes) -> None:
        self._words = _KEPT.words((length + 7) // 8)
        self._begin(length, mask, 0)

    def _begin(self, length: int, mask: bytes, arrived: int) -> None:
        self._bytes = self._words.data.cast("B") if length else memoryview(bytearray())
        self._mask = np.frombuffer(mask * 2, np.uint64)[0]
        self._length, self._arrived, self._unmasked = length, 0, 0
        self._digest = xxh3_128() if length > SHORT else None
        self._piece = SHORT if self._digest is None else PIECE
        if arrived:
            self.fill(arrived)

    @property
    def whole(self) -> bool:
        """Whether all of it is here."""
        return self._arrived == self._length

    @property
    def arrived(self) -> int:
        """How many of its bytes are here."""
        return self._arrived

    @property
    def message(self) -> memoryview:
        """Its bytes."""
        return self._bytes[: self._length]

    @property
    def digest(self) -> bytes | None:
        """What ``sequence.digest_of`` returns for the message, once all of it has arrived; None for a short message."""
        return None if self._digest is None else self._digest.digest()

    @property
    def room(self) -> memoryview:
        """Where its next bytes will stay."""
        return self._bytes[self._arrived : min(self._length, self._arrived + self._piece)]

    def fill(self, count: int) -> None:
        """So many bytes have arrived there."""
        self._arrived += count
        upto = (self._length + 7) // 8 if self.whole else self._arrived // 8
        part = self._words[self._unmasked : upto]
        if self._mask:  # a key of zeros changes nothing
            np.bitwise_xor(part, self._mask, part)
        if self._digest is not None:
            self._digest.update(self._bytes[8 * self._unmasked : min(8 * upto, self._length)])
        self._unmasked = upto

    def take(self, data: memoryview) -> memoryview:
        """Take of ``data`` what belongs to this message; the rest."""
        count = min(len(data), self._length - self._arrived)
        self._bytes[self._arrived : self._arrived + count] = data[:count]
        self.fill(count)
        return data[count:]


class Room(Arriving):
    """Memory for a message that is expected, as it is read: its header first, and the rest where it can stay.

    It is as long as ``most``, and ``least`` is read of it at once. It may be longer than the message: of one so short a
    session keeps copies alone (uploads.py).
    """

    def __init__(self, least: int, most: int) -> None:
        self._header, self._most = _header_size(least), most
        memory = np.empty((most + 7) // 8 + _BEFORE, np.uint64)
        self._words = memory[_BEFORE:]
        begin = 8 * _BEFORE - self._header
        self.beginning = memory.data.cast("B")[begin : begin + self._header + least]
        """Where to read to."""

    def begin(self, header: int, length: int, count: int) -> bool:
        """Be the message that this frame is, of which so many bytes were read; whether that can be."""
        arrived = count - header
        if header != self._header or not arrived <= length <= self._most:
            return False
        self._begin(length, bytes(self.beginning[header - 4 : header]), arrived)
        return True


def size_of(data: memoryview) -> tuple[int, int] | None:
    """The lengths of a frame's header, mask included, and of its payload; None if that is not known yet.

    A frame without a mask counts as one that is too long: the library refuses it.
    """
    if len(data) < 2:
        return None
    short = data[1] & 0x7F
    header = 6 if short < 126 else 8 if short == 126 else 14
    if len(data) < header:
        return None
    if not data[1] & _MASKED:
        return header, 2**63
    return header, short if short < 126 else int.from_bytes(data[2 : header - 4], "big")


def _header_size(length: int) -> int:
    return 6 if length < 126 else 8 if length < 2**16 else 14


def head(kind: int, length: int) -> bytes:
    """What goes before a message."""
    if length < 126:
        return bytes([kind, length])
    if length < 2**16:
        return bytes([kind, 126]) + length.to_bytes(2, "big")
    return bytes([kind, 127]) + length.to_bytes(8, "big")
