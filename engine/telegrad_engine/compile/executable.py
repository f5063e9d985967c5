"""Executables: a program as one function of arrays, and the effects of calling it.

A call changes nothing. The results are applied to a session only if they are complete and every guard holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from ..errors import Cancelled, TimeLimitExceeded
from .effects import Effects, Run, Save, Source, Write
from .input_signature import TensorSpec
from .memory_space import DeviceMemory
from .plan import Plan
from .shared_buffer import AlignedBuffer, aligned_copy, is_exclusive, shared_buffer_of, viewer

logger = logging.getLogger(__name__)


class Executable(Protocol):
    """A program as one function."""

    effects: Effects

    @property
    def size(self) -> int:
        """The number of calls and nodes, or of instructions, that it keeps."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """Return the results for these arrays and numbers; None if a guard does not hold.

        Random numbers are drawn from the generator, which is unchanged if there are no results.
        """


# XLA -----------------------------------------------------------------------------------------


class Compiled:
    """A program that XLA compiled for the CPU, with NumPy arrays as inputs and outputs."""

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        effects: Effects,
        inputs: Sequence[TensorSpec],
        read: Sequence[int],
    ) -> None:
        self._function, self.effects = function, effects
        self.size = len(effects.program.steps)
        self._inputs, self._read = inputs, read
        self._spare: list[list[AlignedBuffer]] = []
        """Buffers to copy inputs to, one list for each thread that runs it at the same time."""
        self._viewers: list[Callable[[Any, int], Any]] = []
        """For each output, the function that makes a NumPy array of it."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """See :class:`Executable`. It never draws random numbers."""
        buffers = self._spare.pop() if self._spare else [AlignedBuffer(x.shape, x.dtype) for x in self._inputs]
        given = [buffer.array for buffer in buffers]
        taken = {buffer.pointer for buffer in buffers}
        copied = []
        for i in self._read:
            shared = shared_buffer_of(arrays[i])
            if shared is None:
                np.copyto(given[i], arrays[i])
                copied.append(i)
            else:
                given[i] = shared.array
                taken.add(shared.pointer)
        outs = self._function(*given)
        holds = np.asarray(outs[-1])  # waiting for one output waits for all
        self._spare.append(buffers)
        if not holds:
            return None
        if not self._viewers:
            self._viewers = [viewer(out.shape, out.dtype) for out in outs]
        return _CompiledRun(arrays, outs, self._viewers, taken, copied)


class _CompiledRun(Run):
    """A run of XLA, whose outputs' memory may become the memory of tensors."""

    replaces = True

    def __init__(
        self,
        called_with: Sequence[Any],
        outs: Sequence[Any],
        viewers: Sequence[Callable[[Any, int], Any]],
        taken: set[int],
        copied: Sequence[int],
    ) -> None:
        self.called_with = called_with
        self._outs, self._viewers, self._copied = outs, viewers, copied
        self._taken = taken
        """The addresses of memory that is in use."""

    def array(self, source: Source) -> Any:
        if not source.is_output:
            return _copy(self.called_with[source.position])
        own = self._own(source)
        return _copy(np.asarray(self._outs[source.position])) if own is None else own

    def write(self, source: Source, target: Any) -> Write:
        own = self._own(source) if source.is_output and is_exclusive(target) else None
        if own is not None:
            return Write(partial(setattr, target, "_data", own), own)
        array = np.asarray(self._outs[source.position]) if source.is_output else self.array(source)
        return Write(partial(np.copyto, target._data, array))

    def relocate(self, tensors: Sequence[Any]) -> list[Any]:
        found = [tensors[i] for i in self._copied if i < len(tensors) and is_exclusive(tensors[i])]
        with suppress(MemoryError):  # without memory for a copy they stay where they are
            for tensor in found:
                tensor._data = aligned_copy(tensor._data)
        return found

    def _own(self, source: Source) -> Any:
        """Return the memory of an output as a NumPy array; None if it is in use."""
        out = self._outs[source.position]
        pointer = out.unsafe_buffer_pointer()
        if pointer in self._taken:
            return None
        self._taken.add(pointer)
        return self._viewers[source.position](out, pointer)


class CompiledForDevice:
    """A program that XLA compiled for a device, with that device's arrays as inputs and outputs."""

    def __init__(
        self, function: Callable[..., Sequence[Any]], effects: Effects, space: DeviceMemory, guarded: bool
    ) -> None:
        self._function, self.effects = function, effects
        self.size = len(effects.program.steps)
        self._space, self._guarded = space, guarded

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """See :class:`Executable`. Without guards it returns while the device is still computing."""
        outs = self._function(*map(self._space.backend.to_jax, arrays))
        if self._guarded and not outs[-1]:
            return None
        self._space.backend.from_jax(outs[-1])  # later writes wait until JAX has read its inputs
        return _DeviceRun(self._space, arrays, outs)


class _DeviceRun(Run):
    replaces = True

    def __init__(self, space: DeviceMemory, called_with: Sequence[Any], outs: Sequence[Any]) -> None:
        self._space, self.called_with, self._outs = space, called_with, outs

    def array(self, source: Source) -> Any:
        if source.is_output:
            return self._space.own(self._outs[source.position])
        return self._space.own_copy(self.called_with[source.position])

    def write(self, source: Source, target: Any) -> Write:
        return Write(partial(target._store, self.array(source)))


# Plans ---------------------------------------------------------------------------------------


class Planned:
    """A program that was planned for NumPy."""

    def __init__(self, plan: Plan, effects: Effects) -> None:
        self._plan, self.effects = plan, effects

    @property
    def size(self) -> int:
        """The number of its calls and of the nodes that it leaves."""
        return len(self._plan) + len(self.effects.graph.nodes)

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """See :class:`Executable`. Returns None also if a call raises: the interpreter reports the error best."""
        bits = generator.bit_generator
        before = bits.state if self._plan.draws else None
        places = None
        try:
            with np.errstate(all="ignore"):
                places = self._plan.run((*arrays, *operands, generator))
        except (Cancelled, TimeLimitExceeded):
            if before is not None:
                bits.state = before
            raise
        except Exception:
            logger.debug("a planned program failed", exc_info=True)
        if places is not None:
            return _PlannedRun(self._plan, arrays, places, before)
        if before is not None:
            bits.state = before
        return None


class _PlannedRun(Run):
    """The places of a plan after a run."""

    def __init__(self, plan: Plan, called_with: Sequence[Any], places: list[Any], before: Any) -> None:
        self._plan, self.called_with, self._places = plan, called_with, places
        self._before = before
        """The state of the generator before the run; None if nothing was drawn."""
        self._given: set[int] = set()
        """The outputs whose arrays were returned without a copy."""

    def array(self, source: Source) -> Any:
        return self._output(source, "C") if source.is_output else _copy(self.called_with[source.position])

    def saved(self, save: Save) -> Any:
        source = save.source
        if source.is_output:
            place = self._plan.outputs[source.position].place
            return self._places[place] if save.shared else self._output(source, "K")
        array = self.called_with[source.position]
        return array if save.shared else _copy(array, "K")

    def _output(self, source: Source, order: Literal["C", "K"]) -> Any:
        """Return an output in memory of its own: the array itself if it is not shared, otherwise a copy."""
        output = self._plan.outputs[source.position]
        array = self._places[output.place]
        if not output.own or source.position in self._given:
            return _copy(array, order)
        self._given.add(source.position)
        return array

    def write(self, source: Source, target: Any) -> Write:
        call = self._plan.writes.get(source.position) if source.is_output else None
        if call is None:
            return Write(partial(np.copyto, target._data, self.array(source)))
        return Write(partial(call.function, *call.arguments(self._places), target._data))

    def rewind(self, generator: np.random.Generator) -> None:
        if self._before is not None:
            generator.bit_generator.state = self._before

    def numbers(self) -> Mapping[int, Any]:
        return {number: self._places[place] for number, place in self._plan.numbers.items()}


def _copy(array: Any, order: Literal["C", "K"] = "C") -> Any:
    """Return a copy in row-major order, or in the array's own order; a broadcast array stays broadcast."""
    if 0 in array.strides and array.size > 1:
        first = tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])
        return np.broadcast_to(np.array(array[first]), array.shape)
    return np.array(array, order=order)
