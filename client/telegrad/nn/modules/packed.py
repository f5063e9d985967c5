"""Recurrent networks over packed sequences: the steps that equally many sequences have are run as one.

Packed sequences are sorted by length, so those that have a next step are always the first ones. A direction is as
many runs over a stretch of steps as there are different lengths, each with the batch that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from telegrad_engine.ops.nn.recurrent import Direction, gru_direction, in_one_dtype, lstm_direction, rnn_direction

from ...tensor.handle import Tensor, functions
from ..utils.rnn import PackedSequence, known_sizes

Run = Callable[[Tensor, Sequence[Tensor], Direction, bool], Any]
KINDS: dict[str, Callable[[Any], Run]] = {
    "LSTM": lstm_direction,
    "GRU": gru_direction,
    "RNN_TANH": lambda F: rnn_direction(F, "tanh"),
    "RNN_RELU": lambda F: rnn_direction(F, "relu"),
}


class Stretch(NamedTuple):
    """Steps that equally many sequences have."""

    steps: int
    batch: int
    start: int
    """Where its rows begin in the packed data."""

    @property
    def end(self) -> int:
        """Where they end."""
        return self.start + self.steps * self.batch


def run(module: Any, input: PackedSequence, states: Sequence[Tensor]) -> list[Tensor]:
    """The packed output's data and what each of ``states`` (layers · directions, N, …) became."""
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
            data = functions.dropout(data, module.dropout, True)
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
    """One stretch: its rows of the output, and the states after it."""
    chunk = data[stretch.start : stretch.end].reshape(stretch.steps, stretch.batch, -1)
    result, *after = run(chunk, states, own, reverse)
    return result.reshape(stretch.steps * stretch.batch, -1), after


def _forward(run: Run, data: Tensor, stretches: Sequence[Stretch], states: Sequence[Tensor], own: Direction) -> Any:
    """From the first step on: sequences end on the way, the shortest first."""
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
    """From the last step back: sequences begin on the way, the longest first."""
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
    """States of some sequences and those of others, together."""
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(functions.cat(list(states)) for states in zip(*parts, strict=True))
