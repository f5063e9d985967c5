"""Memory of long messages, which is read to again once nobody has it.

Shorter ones have malloc's, which keeps what is freed (tuning.py). What is longer it asks the system for each time, and
that clears every page: a fifth of the time that 64 MiB take to arrive.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .tuning import KEPT_BYTES, LARGEST_KEPT

STEP = 2**13
"""Words. Messages of much the same length, whose headers differ, have the same memory."""


class Kept:
    """The memory of the last messages, at most ``most`` bytes of it. For one thread."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._blocks: list[Any] = []

    def words(self, count: int) -> Any:
        """So many words of 8 bytes or a few more, with whatever is in them: an array that nothing else refers to."""
        if 8 * count < LARGEST_KEPT:
            return np.empty(count, np.uint64)
        count = -(-count // STEP) * STEP
        for number in range(len(self._blocks)):
            if len(self._blocks[number]) == count and _references(self._blocks, number) <= _UNUSED:
                return self._blocks[number]
        return self._keep(np.empty(count, np.uint64))

    def _keep(self, block: Any) -> Any:
        if block.nbytes <= self._most:
            while sum(kept.nbytes for kept in self._blocks) + block.nbytes > self._most:
                del self._blocks[0]
            self._blocks.append(block)
        return block


def _references(blocks: list[Any], number: int) -> int:
    """How many there are to a block. Whatever shows a part of it, a tensor or what is being sent, is one."""
    return sys.getrefcount(blocks[number])


_UNUSED = _references([np.empty(1)], 0)
"""How many there are where nothing does: that differs by the version of Python."""
