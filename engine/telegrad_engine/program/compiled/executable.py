"""What a program becomes: a function of arrays, and what it leaves. It changes nothing until its effects is put in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from ...errors import Cancelled, TimeLimitExceeded
from .effects import Effects, Run, Save, Source, Write
from .input_signature import TensorSpec
from .memory_space import DeviceMemory
from .plan import Plan
from .shared_buffer import AlignedBuffer, aligned_copy, is_exclusive, shared_buffer_of, showing

logger = logging.getLogger(__name__)


class Executable(Protocol):
    """A program as one function."""

    effects: Effects
    exact: bool
    """Whether it comes to the very numbers of the eager run."""

    @property
    def size(self) -> int:
        """How many calls and nodes it keeps, or instructions."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """What it comes to for these arrays and numbers; None where something that was taken for granted is not so.

        Random numbers are from the generator, which has then gone on as far as it would have, and no step without.
        """


class _ByJax:
    """A program that JAX compiled."""

    exact = False

    def __init__(self, executable: Callable[..., Sequence[Any]], effects: Effects) -> None:
        self._executable = executable
        self.effects = effects

    @property
    def size(self) -> int:
        """How many instructions it was made of."""
        return len(self.effects.analysis.program.steps)


class Compiled(_ByJax):
    """A program that JAX compiled, with NumPy's arrays on both sides."""

    def __init__(
        self,
        executable: Callable[..., Sequence[Any]],
        inputs: Sequence[TensorSpec],
        read: Sequence[int],
        effects: Effects,
    ) -> None:
        super().__init__(executable, effects)
        self._inputs, self._read = inputs, read
        self._spare: list[list[AlignedBuffer]] = []
        """AlignedBuffer to copy inputs to, for each thread that calls at the same time."""
        self._show: list[Callable[[Any, int], Any]] = []
        """What shows the outputs to NumPy."""

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """As of any executable; this one never draws."""
        rooms = (
            self._spare.pop() if self._spare else [AlignedBuffer(given.shape, given.dtype) for given in self._inputs]
        )
        given = [room.array for room in rooms]
        taken = {room.pointer for room in rooms}
        copied = []
        for i in self._read:
            memory = shared_buffer_of(arrays[i])
            if memory is None:
                np.copyto(given[i], arrays[i])
                copied.append(i)
            else:
                given[i] = memory.array
                taken.add(memory.pointer)
        outs = self._executable(*given)
        usual = np.asarray(outs[-1])  # waiting for one waits for all
        self._spare.append(rooms)
        if not usual:
            return None
        if not self._show:
            self._show = [showing(out.shape, out.dtype) for out in outs]
        return _CompiledRun(arrays, outs, self._show, taken, copied)


class _CompiledRun:
    """What JAX returned: arrays whose memory may become a tensor's, once."""

    replaces = True

    def __init__(
        self,
        called_with: Sequence[Any],
        outs: Sequence[Any],
        show: Sequence[Callable[[Any, int], Any]],
        taken: set[int],
        copied: Sequence[int],
    ) -> None:
        self.called_with = called_with
        self._outs, self._show, self._copied = outs, show, copied
        self._taken = taken
        """The addresses of memory that somebody has."""

    def array(self, source: Source) -> Any:
        if not source.is_output:
            return _copy(self.called_with[source.position])
        own = self._own(source)
        return _copy(np.asarray(self._outs[source.position])) if own is None else own

    def saved(self, save: Save) -> Any:
        return self.array(save.source)

    def write(self, source: Source, target: Any) -> Write:
        own = self._own(source) if source.is_output and is_exclusive(target) else None
        if own is not None:
            return Write(partial(setattr, target, "_data", own), own)
        array = np.asarray(self._outs[source.position]) if source.is_output else self.array(source)
        return Write(partial(np.copyto, target._data, array))

    def rewind(self, generator: np.random.Generator) -> None:
        """It never draws."""

    def numbers(self) -> Mapping[int, Any]:
        return {}

    def settle(self, tensors: Sequence[Any]) -> list[Any]:
        found = [tensors[i] for i in self._copied if i < len(tensors) and is_exclusive(tensors[i])]
        with suppress(MemoryError):  # then they stay where they are
            for tensor in found:
                tensor._data = aligned_copy(tensor._data)
        return found

    def _own(self, source: Source) -> Any:
        """The memory of an output as an array of NumPy's; None if somebody has it."""
        out = self._outs[source.position]
        pointer = out.unsafe_buffer_pointer()
        if pointer in self._taken:
            return None
        self._taken.add(pointer)
        return self._show[source.position](out, pointer)


class CompiledElsewhere(_ByJax):
    """A program that JAX compiled for a device, with that device's arrays on both sides."""

    def __init__(
        self, executable: Callable[..., Sequence[Any]], space: DeviceMemory, effects: Effects, guarded: bool
    ) -> None:
        super().__init__(executable, effects)
        self._space, self._guarded = space, guarded

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """As of any executable. Where nothing was taken for granted it only begins: who needs a value waits for it."""
        outs = self._executable(*map(self._space.backend.to_jax, arrays))
        if self._guarded and not outs[-1]:
            return None
        self._space.backend.from_jax(outs[-1])  # what is written from now on waits until JAX has read what it was lent
        return _ElsewhereRun(self._space, arrays, outs)


class _ElsewhereRun:
    """What JAX returned on a device."""

    replaces = True

    def __init__(self, space: DeviceMemory, called_with: Sequence[Any], outs: Sequence[Any]) -> None:
        self._space, self.called_with, self._outs = space, called_with, outs

    def array(self, source: Source) -> Any:
        if source.is_output:
            return self._space.own(self._outs[source.position])
        return self._space.own_copy(self.called_with[source.position])

    def saved(self, save: Save) -> Any:
        return self.array(save.source)

    def write(self, source: Source, target: Any) -> Write:
        return Write(partial(target._store, self.array(source)))

    def rewind(self, generator: np.random.Generator) -> None:
        """It never draws."""

    def numbers(self) -> Mapping[int, Any]:
        return {}

    def settle(self, tensors: Sequence[Any]) -> Sequence[Any]:
        return ()


class Planned:
    """A program that was planned for NumPy."""

    exact = True

    def __init__(self, plan: Plan, effects: Effects) -> None:
        self._plan, self.effects = plan, effects

    @property
    def size(self) -> int:
        """How many calls it has, and nodes that it leaves."""
        return len(self._plan) + len(self.effects.graph.nodes)

    def run(self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator) -> Run | None:
        """As of any executable; None also where a call raises: what, the eager run says best."""
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


class _PlannedRun:
    """The places of a plan that ran."""

    replaces = False

    def __init__(self, plan: Plan, called_with: Sequence[Any], places: list[Any], before: Any) -> None:
        self._plan, self.called_with, self._places = plan, called_with, places
        self._before = before
        """The state of the generator before the run; None if nothing was drawn."""
        self._given: set[int] = set()
        """Outputs whose arrays somebody has, as they are."""

    def array(self, source: Source) -> Any:
        if not source.is_output:
            return _copy(self.called_with[source.position])
        output = self._plan.outputs[source.position]
        array = self._places[output.place]
        if not output.own or source.position in self._given:
            return _copy(array)
        self._given.add(source.position)
        return array

    def saved(self, save: Save) -> Any:
        source = save.source
        if not source.is_output:
            array = self.called_with[source.position]
            return array if save.shared else _copy(array, "K")
        output = self._plan.outputs[source.position]
        array = self._places[output.place]
        if save.shared:
            return array
        if not output.own or source.position in self._given:
            return _copy(array, "K")
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

    def settle(self, tensors: Sequence[Any]) -> Sequence[Any]:
        return ()


def _copy(array: Any, order: Literal["C", "K"] = "C") -> Any:
    """A copy in row-major order, or in the array's own."""
    if 0 in array.strides and array.size > 1:
        # What is spread out stays so: it may be far larger than its memory.
        first = tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])
        return np.broadcast_to(np.array(array[first]), array.shape)
    return np.array(array, order=order)
