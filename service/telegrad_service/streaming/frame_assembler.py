"""Receives long WebSocket messages into their final memory, which is reused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..process import KEPT_BYTES, LARGEST_KEPT

STEP = 2**13
"""Buffer lengths are rounded up to multiples of this many words, so that messages of similar size share memory."""


class BufferPool:
    """A pool of the memory of recent messages, at most ``max_bytes`` in total. It is not thread-safe."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blocks: list[Any] = []

    def words(self, count: int) -> Any:
        """An uninitialized array of at least ``count`` words of 8 bytes, to which nothing else refers."""
        if 8 * count < LARGEST_KEPT:
            return np.empty(count, np.uint64)
        count = -(-count // STEP) * STEP
        for number in range(len(self._blocks)):
            if len(self._blocks[number]) == count and _references(self._blocks, number) <= _UNUSED:
                return self._blocks[number]
        return self._keep(np.empty(count, np.uint64))

    def _keep(self, block: Any) -> Any:
        if block.nbytes <= self._max_bytes:
            while sum(kept.nbytes for kept in self._blocks) + block.nbytes > self._max_bytes:
                del self._blocks[0]
            self._blocks.append(block)
        return block


def _references(blocks: list[Any], number: int) -> int:
    """The reference count of a block. A tensor in its memory, or an answer that is being sent, holds one."""
    return sys.getrefcount(blocks[number])


_UNUSED = _references([np.empty(1)], 0)
"""The count of an unused block, which differs between Python versions."""


PIECE = 2**20
"""The most bytes that are received at a time, and then unmasked while they are in the cache."""
_POOL = BufferPool()


class FrameAssembler:
    """Memory for one binary message while it arrives. Each piece is unmasked in place."""

    def __init__(self, length: int, key: bytes) -> None:
        self._words = _POOL.words((length + 7) // 8)
        self._bytes = self._words.data.cast("B") if length else memoryview(bytearray())
        self._key = np.frombuffer(key * 2, np.uint64)[0]
        self._length, self._unmasked = length, 0
        self.arrived = 0
        """How many bytes have arrived."""

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self.arrived == self._length

    @property
    def message(self) -> memoryview:
        """The message."""
        return self._bytes[: self._length]

    @property
    def receive_buffer(self) -> memoryview:
        """The memory for the next bytes."""
        return self._bytes[self.arrived : min(self._length, self.arrived + PIECE)]

    def fill(self, count: int) -> None:
        """Unmask ``count`` bytes that have arrived in :attr:`receive_buffer`."""
        self.arrived += count
        end = (self._length + 7) // 8 if self.complete else self.arrived // 8
        if self._key:  # a key of zeros changes nothing
            part = self._words[self._unmasked : end]
            np.bitwise_xor(part, self._key, part)
        self._unmasked = end

    def take(self, data: memoryview) -> memoryview:
        """Copy this message's bytes from the start of ``data``, and return the rest."""
        count = min(len(data), self._length - self.arrived)
        self._bytes[self.arrived : self.arrived + count] = data[:count]
        self.fill(count)
        return data[count:]
