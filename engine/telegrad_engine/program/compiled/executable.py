"""What a program becomes: a function of arrays, and what it leaves. It changes nothing until its outcome is put in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from .facts import Input
from .ground import Elsewhere
from .outcome import Order, Outcome, Run, Source
from .plan import Plan

logger = logging.getLogger(__name__)
ALIGNMENT = 64
"""Bytes. Where an array does not lie on a multiple of this, JAX copies it on another thread, which takes 30 µs."""


class Executable(Protocol):
    """A program as one function."""

    outcome: Outcome
    exact: bool
    """Whether it comes to the very numbers of the eager run."""

    @property
    def size(self) -> int:
        """How many calls and nodes it keeps, or instructions."""

    def run(self, arrays: Sequence[Any], generator: np.random.Generator) -> Run | None:
        """What it comes to for these arrays; None where something that was taken for granted is not so.

        Random numbers are from the generator, which has then gone on as far as it would have, and no step without.
        """


class _ByJax:
    """A program that JAX compiled."""

    exact = False

    def __init__(self, executable: Callable[..., Sequence[Any]], outcome: Outcome) -> None:
        self._executable = executable
        self.outcome = outcome

    @property
    def size(self) -> int:
        """How many instructions it was made of."""
        return len(self.outcome.outline.program.steps)


class Compiled(_ByJax):
    """A program that JAX compiled, with NumPy's arrays on both sides."""

    def __init__(
        self, executable: Callable[..., Sequence[Any]], inputs: Sequence[Input], read: Sequence[int], outcome: Outcome
    ) -> None:
        super().__init__(executable, outcome)
        self._inputs, self._read = inputs, read
        self._spare: list[list[Any]] = []
        """Aligned arrays to copy inputs to, a list for each thread that calls at the same time."""

    def run(self, arrays: Sequence[Any], generator: np.random.Generator) -> Run | None:
        """As of any executable; this one never draws."""
        room = self._spare.pop() if self._spare else [_aligned(given) for given in self._inputs]
        for i in self._read:
            np.copyto(room[i], arrays[i])
        outs = self._executable(*room)
        # Waiting for one waits for all.
        found = [np.asarray(out) for out in outs[:-1]] if outs[-1] else None
        self._spare.append(room)
        return None if found is None else _CompiledRun(arrays, found)


class _CompiledRun:
    """What JAX returned: arrays that may not be written to."""

    def __init__(self, called_with: Sequence[Any], outs: Sequence[Any]) -> None:
        self.called_with, self._outs = called_with, outs

    def array(self, source: Source, order: Order | None = None) -> Any:
        return _copy((self._outs if source.is_output else self.called_with)[source.position], order)

    def write(self, source: Source, target: Any) -> Callable[[], None]:
        return partial(np.copyto, target._data, self._outs[source.position] if source.is_output else self.array(source))


class CompiledElsewhere(_ByJax):
    """A program that JAX compiled for a device, with that device's arrays on both sides."""

    def __init__(
        self, executable: Callable[..., Sequence[Any]], ground: Elsewhere, outcome: Outcome, guarded: bool
    ) -> None:
        super().__init__(executable, outcome)
        self._ground, self._guarded = ground, guarded

    def run(self, arrays: Sequence[Any], generator: np.random.Generator) -> Run | None:
        """As of any executable. Where nothing was taken for granted it only begins: who needs a value waits for it."""
        outs = self._executable(*map(self._ground.backend.to_jax, arrays))
        if self._guarded and not outs[-1]:
            return None
        self._ground.backend.from_jax(outs[-1])  # what is written from now on waits until JAX has read what it was lent
        return _ElsewhereRun(self._ground, arrays, outs)


class _ElsewhereRun:
    """What JAX returned on a device."""

    def __init__(self, ground: Elsewhere, called_with: Sequence[Any], outs: Sequence[Any]) -> None:
        self._ground, self.called_with, self._outs = ground, called_with, outs

    def array(self, source: Source, order: Order | None = None) -> Any:
        if source.is_output:
            return self._ground.own(self._outs[source.position])
        return self._ground.own_copy(self.called_with[source.position])

    def write(self, source: Source, target: Any) -> Callable[[], None]:
        return partial(target._store, self.array(source))


class Planned:
    """A program that was planned for NumPy."""

    exact = True

    def __init__(self, plan: Plan, outcome: Outcome) -> None:
        self._plan, self.outcome = plan, outcome

    @property
    def size(self) -> int:
        """How many calls it has, and nodes that it leaves."""
        return len(self._plan) + len(self.outcome.graph.nodes)

    def run(self, arrays: Sequence[Any], generator: np.random.Generator) -> Run | None:
        """As of any executable; None also where a call raises: what, the eager run says best."""
        bits = generator.bit_generator
        before = bits.state if self._plan.draws else None
        places = None
        try:
            with np.errstate(all="ignore"):
                places = self._plan.run((*arrays, generator))
        except Exception:
            logger.debug("a planned program failed", exc_info=True)
        if places is not None:
            return _PlannedRun(self._plan, arrays, places)
        if before is not None:
            bits.state = before
        return None


class _PlannedRun:
    """The places of a plan that ran."""

    def __init__(self, plan: Plan, called_with: Sequence[Any], places: list[Any]) -> None:
        self._plan, self.called_with, self._places = plan, called_with, places
        self._given: set[int] = set()
        """Outputs whose arrays somebody has, as they are."""

    def array(self, source: Source, order: Order | None = None) -> Any:
        if not source.is_output:
            return _copy(self.called_with[source.position], order)
        output = self._plan.outputs[source.position]
        array = self._places[output.place]
        if not output.own or source.position in self._given or order is not None:
            return _copy(array, order)
        self._given.add(source.position)
        return array

    def write(self, source: Source, target: Any) -> Callable[[], None]:
        call = self._plan.writes.get(source.position) if source.is_output else None
        if call is None:
            return partial(np.copyto, target._data, self.array(source))
        return partial(call.function, *call.arguments(self._places), target._data)


def _copy(array: Any, order: Order | None) -> Any:
    """A copy in this layout, or in the array's own."""
    if order is not None:
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    if 0 in array.strides and array.size > 1:
        # What is spread out stays so: it may be far larger than its memory.
        first = tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])
        return np.broadcast_to(np.array(array[first]), array.shape)
    return np.array(array)


def _aligned(given: Input) -> Any:
    """An array that JAX need not copy."""
    nbytes = int(np.prod(given.shape)) * given.dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(given.dtype).reshape(given.shape)
