"""Recurrent networks over packed sequences: consecutive steps with the same batch size run together.

Packed sequences are sorted by decreasing length, so the sequences that have a further step come first. A direction
takes one run per distinct length, each with the sequences that are at least that long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from telegrad_engine.ops.nn.recurrent import Direction, gru_direction, in_one_dtype, lstm_direction, rnn_direction

from ...tensor.handle import Tensor, functions
from .. import functional as F
from ..utils.rnn import PackedSequence, known_sizes

Run = Callable[[Tensor, Sequence[Tensor], Direction, bool], Any]
KINDS: dict[str, Callable[[Any], Run]] = {
    "LSTM": lstm_direction,
    "GRU": gru_direction,
    "RNN_TANH": lambda F: rnn_direction(F, "tanh"),
    "RNN_RELU": lambda F: rnn_direction(F, "relu"),
}


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


def run(module: Any, input: PackedSequence, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the packed output's data and the final value of each of ``states`` (layers · directions, N, …)."""
    stretches = _stretches(known_sizes(input))
    kind = KINDS[module.mode](functions)
    data = input.data
    ends: list[tuple[Tensor, ...]] = []
    for layer in range(module.num_layers):
        sides = []
        for reverse in (False, True)[: 1 + module.bidirectional]:
            own, first = _direction(module, len(ends)), tuple(state[len(ends)] for state in states)
            projected, first, own = in_one_dtype(functions, data, first, own, module.mode != "GRU")
            over = _backward if reverse else _forward
            side, end = over(kind, projected, stretches, first, own)
            sides.append(side)
            ends.append(end)
        data = functions.cat(sides, -1) if len(sides) > 1 else sides[0]
        if module.dropout and module.training and layer < module.num_layers - 1:
            data = F.dropout(data, module.dropout, True)
    return [data, *(functions.stack(list(states), 0) for states in zip(*ends, strict=True))]


def _direction(module: Any, number: int) -> Direction:
    own = module.all_weights[number]
    b_ih, b_hh = own[2:4] if module.bias else (None, None)
    return Direction(own[0], own[1], b_ih, b_hh, own[-1] if module.proj_size else None)


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
