"""Recurrent cells under torch's names: a sequence of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Arrays
from ..shapes import size_at
from .recurrent import Direction, gru_direction, in_one_dtype, lstm_direction, rnn_direction

# The cells differ in which of several mistakes they see first.


def _check_weights(gates: int, w_ih: Any, w_hh: Any) -> None:
    rows = gates * size_at(w_hh.shape, 1)
    for name, weight in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if size_at(weight.shape, 0) != rows:
            raise ShapeMismatch(f"{name} first dim must be {gates} * hidden_size = {rows}, but got {weight.shape[0]}")


def _check_input(input: Any, w_ih: Any) -> None:
    width, taken = size_at(input.shape, 1), size_at(w_ih.shape, 1)
    if width != taken:
        raise ShapeMismatch(f"input has inconsistent input_size: got {width} expected {taken}")


def _check_states(input: Any, states: Sequence[Any], w_hh: Any) -> None:
    for number, state in enumerate(states):
        if size_at(state.shape, 0) != input.shape[0]:
            raise ShapeMismatch(
                f"Input batch size {input.shape[0]} doesn't match hidden{number} batch size {state.shape[0]}"
            )
        size, expected = size_at(state.shape, 1), size_at(w_hh.shape, 1)
        if size != expected:
            raise ShapeMismatch(f"hidden{number} has inconsistent hidden_size: got {size}, expected {expected}")


def _step(
    F: Any, layer: Any, input: Any, states: tuple[Any, ...], own: Direction, lowest: bool = False
) -> tuple[Any, ...]:
    """What the states become: a sequence of one step."""
    projected, states, own = in_one_dtype(F, input, states, own, lowest)
    _, *after = layer(F.unsqueeze(projected, 0), states, own, False)
    return tuple(after)


def _apart(F: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """The states with the first, of which the layer keeps the memory for its derivative, in memory of its own.

    It may then be modified in place, as torch's; an Elman network's may not, there as here.
    """
    return (F.clone(states[0]), *states[1:])


@composite(
    method=False,
    outputs=("h", "c"),
)
def lstm_cell(
    F: Any, input: Array, hx: Arrays, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None
) -> Any:
    """One step of an LSTM: input (N, I), state and cell (N, H), weights (4H, I) and (4H, H), biases (4H)."""
    if len(hx) != 2:
        raise InvalidOperation("lstm_cell expects two hidden states")
    size_at(w_hh.shape, 1)  # raises for a weight of fewer dimensions
    _check_input(input, w_ih)
    _check_weights(4, w_ih, w_hh)
    _check_states(input, hx, w_hh)
    return _apart(F, _step(F, lstm_direction(F), input, tuple(hx), Direction(w_ih, w_hh, b_ih, b_hh)))


@composite(
    method=False,
)
def gru_cell(F: Any, input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None) -> Any:
    """One step of a GRU: input (N, I), state (N, H), weights (3H, I) and (3H, H), biases (3H)."""
    _check_input(input, w_ih)
    _check_states(input, (hx,), w_hh)
    _check_weights(3, w_ih, w_hh)
    return _apart(F, _step(F, gru_direction(F), input, (hx,), Direction(w_ih, w_hh, b_ih, b_hh)))[0]


def _elman(F: Any, nonlinearity: str, input: Any, hx: Any, own: Direction) -> Any:
    _check_weights(1, own.w_ih, own.w_hh)
    _check_input(input, own.w_ih)
    _check_states(input, (hx,), own.w_hh)
    return _step(F, rnn_direction(F, nonlinearity), input, (hx,), own, lowest=True)[0]


# Not whole numbers: of those torch makes floating states, in a cell alone.


@composite(method=False)
def rnn_tanh_cell(
    F: Any, input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None
) -> Any:
    """One step of an Elman network with tanh: input (N, I), state (N, H), weights (H, I) and (H, H), biases (H)."""
    return _elman(F, "tanh", input, hx, Direction(w_ih, w_hh, b_ih, b_hh))


@composite(method=False)
def rnn_relu_cell(
    F: Any, input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None
) -> Any:
    """One step of an Elman network with relu: input (N, I), state (N, H), weights (H, I) and (H, H), biases (H)."""
    return _elman(F, "relu", input, hx, Direction(w_ih, w_hh, b_ih, b_hh))
