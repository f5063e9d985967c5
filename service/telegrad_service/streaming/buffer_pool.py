"""Reuses the memory of long messages once nothing refers to it.

The system clears each page of new memory, which takes a fifth of the time in which 64 MiB arrive. Shorter messages get
their memory from malloc, which keeps what is freed (process/tuning.py).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..process.tuning import KEPT_BYTES, LARGEST_KEPT

STEP = 2**13
"""Words to which lengths are rounded up, so that messages that differ only in their headers share memory."""


class BufferPool:
    """The memory of recent messages, at most ``max_bytes`` in total. For one thread."""

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
