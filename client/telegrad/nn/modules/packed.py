"""Recurrent networks over packed sequences: consecutive steps with the same batch size run together.

Packed sequences are sorted by decreasing length, so the sequences that have a further step come first. A direction
takes one run per distinct length, each with the sequences that are at least that long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from telegrad_engine.ops.nn.recurrent import Direction, direction_runner, directions_of, through_layers

from ...tensor.handle import Tensor, functions
from ..utils.rnn import PackedSequence, known_sizes

Run = Callable[[Tensor, Sequence[Tensor], Direction, bool], Any]


class Stretch(NamedTuple):
    """Consecutive steps with the same batch size."""

    steps: int
    batch: int
    start: int
    """The index of its first row in the packed data."""

    @property
    def end(self) -> int:
        """The index after its last row."""
        return self.start + self.steps * self.batch


def run(module: Any, input: PackedSequence, states: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the packed output's data and the final value of each of ``states`` (layers · directions, N, …)."""
    stretches, cell = _stretches(known_sizes(input)), module.mode.lower()
    run_stretch = direction_runner(functions, cell)

    def run_all(data: Tensor, first: Sequence[Tensor], own: Direction, reverse: bool) -> Any:
        side, ends = (_backward if reverse else _forward)(run_stretch, data, stretches, first, own)
        return side, *ends

    params = [parameter for direction in module.all_weights for parameter in direction]
    directions = directions_of(params, module.bias, bool(module.proj_size))
    dropout = module.dropout if module.training else 0.0
    return through_layers(functions, cell, run_all, input.data, states, directions, module.bidirectional, dropout)


def _stretches(sizes: Sequence[int]) -> list[Stretch]:
    found: list[Stretch] = []
    for batch, steps in groupby(sizes):
        found.append(Stretch(len(list(steps)), batch, found[-1].end if found else 0))
    return found


def _over(run: Run, data: Tensor, stretch: Stretch, states: Sequence[Tensor], own: Direction, reverse: bool) -> Any:
    """Run one stretch; return its rows of the output and the states after it."""
    chunk = data[stretch.start : stretch.end].reshape(stretch.steps, stretch.batch, -1)
    result, *after = run(chunk, states, own, reverse)
    return result.reshape(stretch.steps * stretch.batch, -1), after


def _forward(run: Run, data: Tensor, stretches: Sequence[Stretch], states: Sequence[Tensor], own: Direction) -> Any:
    """Run from the first step to the last; shorter sequences end earlier."""
    results: list[Tensor] = []
    ended: list[Sequence[Tensor]] = []
    batch = stretches[0].batch
    for stretch in stretches:
        if stretch.batch < batch:
            ended.insert(0, [state[stretch.batch :] for state in states])
            states = [state[: stretch.batch] for state in states]
            batch = stretch.batch
        result, states = _over(run, data, stretch, states, own, False)
        results.append(result)
    return functions.cat(results), _joined([states, *ended])


def _backward(run: Run, data: Tensor, stretches: Sequence[Stretch], first: Sequence[Tensor], own: Direction) -> Any:
    """Run from the last step to the first; shorter sequences start later."""
    results: list[Tensor] = []
    batch = stretches[-1].batch
    states: Sequence[Tensor] = [state[:batch] for state in first]
    for stretch in reversed(stretches):
        if stretch.batch > batch:
            states = _joined([states, [state[batch : stretch.batch] for state in first]])
            batch = stretch.batch
        result, states = _over(run, data, stretch, states, own, True)
        results.insert(0, result)
    return functions.cat(results), tuple(states)


def _joined(parts: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Concatenate the states of several groups of sequences."""
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(functions.cat(list(states)) for states in zip(*parts, strict=True))
