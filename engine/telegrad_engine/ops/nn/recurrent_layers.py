"""One direction of one recurrent layer over a whole sequence, as one op each for an Elman network, GRU and LSTM.

``projected`` (T, N, G·H) is the input times its weight plus its bias, and ``hidden`` (N, H) the state before the first
step. ``weight`` (G·H, H) and ``bias`` (G·H) are the state's parameters, with the G gates one after the other.
The result (T, N, H) is the state after each step; with ``reverse`` the steps run from the last position to the first.

Derivatives compute everything that does not depend on the previous step for all steps at once, and loop over the rest.
Under ``create_graph`` the gates are recomputed from the inputs, which have a graph; the states before the steps come
from ``result``, which has one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...cancellation import check_cancelled
from ...dtypes import FLOATING, from_numpy
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import INTERNAL, hiding, scratch
from ...schema.op import op
from ...schema.parameters import Array, Bool, Str
from ...shapes import Spec, broadcast_shapes, expanded_shape
from ..batching import nn_rules
from ..guards import kernel_name
from ..linalg.matmul import linear_rule


def _places(length: int, reverse: bool) -> Iterator[int]:
    """Yield the positions in the order of the steps, and check for cancellation before each."""
    for place in range(length - 1, -1, -1) if reverse else range(length):
        check_cancelled()
        yield place


def _by_place(steps: list[Any], reverse: bool) -> list[Any]:
    """The results of the steps, ordered by position in the sequence."""
    return steps[::-1] if reverse else steps


def _states_spec(gates: int, projected: Any, hidden: Any, weight: Any, bias: Any, takes_integers: bool = False) -> Spec:
    """The spec of the states after each step; raises for inputs that do not match."""
    if len(projected.shape) != 3 or len(hidden.shape) != 2 or len(weight.shape) != 2:
        raise ShapeMismatch("a layer takes gates (T, N, G), a state (N, H) and a weight (G, H)")
    if not projected.shape[0]:
        raise InvalidOperation("Expected sequence length to be larger than 0 in RNN")
    if projected.dtype not in FLOATING and not takes_integers:
        kind = kernel_name(projected)
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kind}")
    is_vector = bias is None or len(bias.shape) == 1
    scores = linear_rule(hidden, weight, bias if is_vector else None).shape
    if not is_vector:
        expanded_shape(bias.shape, bias.dtype, scores)
    for x in (hidden, bias):
        if x is not None and x.dtype != projected.dtype:
            names = [from_numpy(dtype).c_name for dtype in (projected.dtype, x.dtype)]
            raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")
    if scores != tuple(projected.shape[1:]) or scores[-1] != gates * weight.shape[1]:
        raise ShapeMismatch(
            f"The size of tensor a ({projected.shape[-1]}) must match the size of tensor b ({weight.shape[0]}) at "
            "non-singleton dimension 1"
        )
    return Spec((*projected.shape[:2], weight.shape[1]), projected.dtype)


def _states_before(F: Any, first: Any, states: Any, reverse: bool) -> Any:
    """The states (T, N, H) before each step."""
    first = F.unsqueeze(first, 0)
    return F.cat((states[1:], first), 0) if reverse else F.cat((first, states[:-1]), 0)


def _scores(F: Any, before: Any, weight: Any, bias: Any) -> Any:
    """The states' contribution to the gates: (T, N, G·H)."""
    scores = F.matmul(before, F.transpose(weight, 0, 1))
    return scores if bias is None else scores + bias


def _weight_grads(F: Any, needs: Any, by_scores: Any, before: Any, weight: Any, bias: Any) -> Any:
    """The gradients of weight and bias, from the gradient of the scores of all steps."""
    flat = F.reshape(by_scores, (-1, weight.shape[0]))
    by_weight = F.matmul(F.transpose(flat, 0, 1), F.reshape(before, (-1, weight.shape[1]))) if needs[0] else None
    return by_weight, F.sum(flat, (0,)) if bias is not None and needs[1] else None


# Elman networks ---------------------------------------------------------------------------------------------


def _rnn_rule(projected: Any, hidden: Any, weight: Any, bias: Any, nonlinearity: str) -> Spec:
    return _states_spec(1, projected, hidden, weight, bias, takes_integers=nonlinearity == "relu")


@op(_rnn_rule, variants=INTERNAL, node="RnnLayerBackward0", memory=scratch(2.0), batching=nn_rules.recurrent_layer)
def rnn_layer(
    xp: Any,
    projected: Array,
    hidden: Array,
    weight: Array,
    bias: Array = None,
    nonlinearity: Str = "tanh",
    reverse: Bool = False,
) -> Any:
    """``h = tanh(projected + h @ weight.T + bias)`` at each step, or its positive part for "relu" (Elman 1990)."""
    given = projected if bias is None else projected + bias
    turned = weight.T
    states = []
    for t in _places(len(given), reverse):
        scores = given[t] + hidden @ turned
        hidden = xp.tanh(scores) if nonlinearity == "tanh" else xp.maximum(scores, xp.zero(scores))
        states.append(hidden)
    return xp.stack(_by_place(states, reverse))


@rnn_layer.joint_derivative
def _rnn_grads(
    F: Any, grad: Any, needs: Any, hidden: Any, weight: Any, bias: Any, nonlinearity: str, reverse: bool, result: Any
) -> Any:
    slopes = 1 - result * result if nonlinearity == "tanh" else None
    carried: Any = 0
    found = []
    for t in _places(len(grad), not reverse):
        total = grad[t] + carried
        found.append(F.relu_backward(total, result[t]) if slopes is None else total * slopes[t])
        carried = F.matmul(found[-1], weight)
    by_scores = F.stack(_by_place(found, not reverse), 0)
    before = _states_before(F, hidden, result, reverse)
    return by_scores, carried, *_weight_grads(F, needs[2:], by_scores, before, weight, bias)


# GRU --------------------------------------------------------------------------------------------------------


def _saved_specs(projected: Any, weight: Any) -> list[Spec]:
    """The specs of what GRUs and LSTMs save for backward: the gates, and one more array of the states' shape."""
    return [Spec(tuple(shape), projected.dtype) for shape in (projected.shape, (*projected.shape[:2], weight.shape[1]))]


@op(
    partial(_states_spec, 3),
    variants=INTERNAL,
    node="GruLayerBackward0",
    results=hiding("gates", "recalled", rule=lambda projected, hidden, weight, bias: _saved_specs(projected, weight)),
    memory=scratch(2.0),
    batching=nn_rules.recurrent_layer,
)
def gru_layer(
    xp: Any, projected: Array, hidden: Array, weight: Array, bias: Array = None, reverse: Bool = False
) -> Any:
    """``h = (1 - z) * n + z * h`` with gates r and z, and ``n = tanh(projected + r * recalled)`` (Cho et al. 2014).

    The reset gate is applied after the product with the weight, as in cuDNN and torch.
    """
    size = weight.shape[1]
    turned = weight.T
    states, gates, recalled = [], [], []
    for t in _places(len(projected), reverse):
        scores = hidden @ turned if bias is None else hidden @ turned + bias
        opened = xp.sigmoid(projected[t, :, : 2 * size] + scores[:, : 2 * size])
        recalled.append(scores[:, 2 * size :])
        new = xp.tanh(projected[t, :, 2 * size :] + opened[:, :size] * recalled[-1])
        hidden = new + opened[:, size:] * (hidden - new)
        states.append(hidden)
        gates.append(xp.concatenate((opened, new), -1))
    return tuple(xp.stack(_by_place(steps, reverse)) for steps in (states, gates, recalled))


def _recomputed_gru(F: Any, projected: Any, before: Any, weight: Any, bias: Any) -> Any:
    """Recompute the gates and ``recalled`` as part of the graph."""
    scores = _scores(F, before, weight, bias)
    (given_r, given_z, given_n), (r, z, recalled) = F.chunk(projected, 3, -1), F.chunk(scores, 3, -1)
    r, z = F.sigmoid(given_r + r), F.sigmoid(given_z + z)
    return r, z, F.tanh(given_n + r * recalled), recalled


@gru_layer.joint_derivative
def _gru_grads(
    F: Any,
    grad: Any,
    needs: Any,
    projected: Any,
    hidden: Any,
    weight: Any,
    bias: Any,
    reverse: bool,
    result: Any,
    gates: Any,
    recalled: Any,
) -> Any:
    before = _states_before(F, hidden, result, reverse)
    if F.xp is None:
        r, z, n, recalled = _recomputed_gru(F, projected, before, weight, bias)
    else:
        r, z, n = F.chunk(gates, 3, -1)
    # The factors that turn the gradient of a step's state into that of the gates' scores.
    to_n = (1 - z) * (1 - n * n)
    to_z = (before - n) * z * (1 - z)
    to_r = to_n * recalled * r * (1 - r)
    to_scores = F.cat((to_r, to_z, to_n * r), -1)
    carried: Any = 0
    states, scores = [], []
    for t in _places(len(grad), not reverse):
        by_state = grad[t] + carried
        states.append(by_state)
        scores.append(F.cat((by_state, by_state, by_state), -1) * to_scores[t])
        carried = by_state * z[t] + F.matmul(scores[-1], weight)
    by_state, by_scores = (F.stack(_by_place(steps, not reverse), 0) for steps in (states, scores))
    by_projected = F.cat((by_state * to_r, by_state * to_z, by_state * to_n), -1)
    return by_projected, carried, *_weight_grads(F, needs[2:], by_scores, before, weight, bias)


# LSTM -------------------------------------------------------------------------------------------------------


def _lstm_rule(projected: Any, hidden: Any, cell: Any, weight: Any, bias: Any) -> list[Spec]:
    states = _states_spec(4, projected, hidden, weight, bias)
    one = states.shape[1:]
    if broadcast_shapes(one, tuple(cell.shape)) != one:
        raise ShapeMismatch(f"lstm: the cells are of shape {list(cell.shape)}, but the states of {list(one)}")
    return [states, Spec(one, projected.dtype)]


@op(
    _lstm_rule,
    variants=INTERNAL,
    node="LstmLayerBackward0",
    results=hiding(
        "gates",
        "cells",
        rule=lambda projected, hidden, cell, weight, bias: _saved_specs(projected, weight),
        outputs=("result", "last"),
    ),
    memory=scratch(2.0),
    batching=nn_rules.recurrent_layer,
)
def lstm_layer(
    xp: Any, projected: Array, hidden: Array, cell: Array, weight: Array, bias: Array = None, reverse: Bool = False
) -> Any:
    """``c = f * c + i * g`` and ``h = o * tanh(c)`` with gates i, f, g and o; ``last`` is the last c.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """
    size = weight.shape[1]
    given = projected if bias is None else projected + bias
    turned = weight.T
    states, gates, cells = [], [], []
    for t in _places(len(given), reverse):
        scores = given[t] + hidden @ turned
        opened = xp.sigmoid(scores[:, : 2 * size])
        new = xp.tanh(scores[:, 2 * size : 3 * size])
        output = xp.sigmoid(scores[:, 3 * size :])
        cell = opened[:, size:] * cell + opened[:, :size] * new
        hidden = output * xp.tanh(cell)
        states.append(hidden)
        gates.append(xp.concatenate((opened, new, output), -1))
        cells.append(cell)
    result, all_gates, all_cells = (xp.stack(_by_place(steps, reverse)) for steps in (states, gates, cells))
    return result, cell, all_gates, all_cells


def _recomputed_lstm(F: Any, projected: Any, before: Any, cell: Any, weight: Any, bias: Any, reverse: bool) -> Any:
    """Recompute the gates and the cells as part of the graph."""
    i, f, g, o = F.chunk(projected + _scores(F, before, weight, bias), 4, -1)
    i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
    added, cells = i * g, []
    for t in _places(len(projected), reverse):
        cell = f[t] * cell + added[t]
        cells.append(cell)
    return i, f, g, o, F.stack(_by_place(cells, reverse), 0)


@lstm_layer.joint_derivative
def _lstm_grads(
    F: Any,
    grads: Any,
    needs: Any,
    projected: Any,
    hidden: Any,
    cell: Any,
    weight: Any,
    bias: Any,
    reverse: bool,
    result: Any,
    gates: Any,
    cells: Any,
) -> Any:
    grad, by_last = grads
    before = _states_before(F, hidden, result, reverse)
    if F.xp is None:
        i, f, g, o, cells = _recomputed_lstm(F, projected, before, cell, weight, bias, reverse)
    else:
        i, f, g, o = F.chunk(gates, 4, -1)
    bent = F.tanh(cells)
    # The factors that turn the gradient of a step's cell (for the last gate: of its state) into that of the scores.
    to_cell = o * (1 - bent * bent)
    earlier = _states_before(F, cell, cells, reverse)
    to_scores = F.cat((g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), bent * o * (1 - o)), -1)
    by_state = F.zeros_like(cell)
    by_cell = by_state if by_last is None else by_last
    found = []
    for t in _places(len(cells), not reverse):
        if grad is not None:
            by_state = by_state + grad[t]
        by_cell = by_cell + by_state * to_cell[t]
        found.append(F.cat((by_cell, by_cell, by_cell, by_state), -1) * to_scores[t])
        by_cell = by_cell * f[t]
        by_state = F.matmul(found[-1], weight)
    by_scores = F.stack(_by_place(found, not reverse), 0)
    by_weight, by_bias = _weight_grads(F, needs[3:], by_scores, before, weight, bias)
    return by_scores, by_state, by_cell, by_weight, by_bias
