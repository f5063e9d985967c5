"""Calling what was compiled, with NumPy's arrays on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .facts import Input
from .outcome import Outcome

ALIGNMENT = 64
"""Bytes. Where an array does not lie on a multiple of this, JAX copies it on another thread, which takes 30 µs."""


class Compiled:
    """A program as one executable, and what it leaves."""

    def __init__(self, executable: Callable[..., Sequence[Any]], inputs: Sequence[Input], outcome: Outcome) -> None:
        self._executable = executable
        self._inputs = inputs
        self._spare: list[list[Any]] = []
        """Aligned arrays to copy inputs to, a list for each thread that calls at the same time."""
        self.outcome = outcome

    def run(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The outputs as NumPy's arrays, not to be written to; None where something taken for granted is not so."""
        room = self._spare.pop() if self._spare else [_aligned(given) for given in self._inputs]
        for array, copy in zip(arrays, room, strict=True):
            np.copyto(copy, array)
        outs = self._executable(*room)
        # Waiting for one waits for all.
        found = [np.asarray(out) for out in outs[:-1]] if outs[-1] else None
        self._spare.append(room)
        return found


def _aligned(given: Input) -> Any:
    """An array that JAX need not copy."""
    nbytes = int(np.prod(given.shape)) * given.dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(given.dtype).reshape(given.shape)
