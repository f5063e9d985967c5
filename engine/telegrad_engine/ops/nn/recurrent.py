"""Recurrent networks under torch's names: stacks of layers over whole sequences, and single steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import FUNCTION, named
from ...schema.op import composite
from ...schema.parameters import Array, Arrays, Bool, Int, Number
from ...shapes import size_at


class Direction(NamedTuple):
    """The parameters of one direction of one layer."""

    w_ih: Any
    w_hh: Any
    b_ih: Any
    b_hh: Any
    w_hr: Any = None
    """The weight that projects an LSTM's states to fewer features."""


def directions_of(params: Sequence[Any], has_biases: bool, projects: bool) -> list[Direction]:
    """The parameters by direction. Raises RuntimeError if they are not a whole number of directions."""
    width = (4 if has_biases else 2) + projects
    if len(params) % width:
        raise InvalidOperation("got an incorrect number of RNN parameters")
    found = []
    for start in range(0, len(params), width):
        own = params[start : start + width]
        b_ih, b_hh = own[2:4] if has_biases else (None, None)
        found.append(Direction(own[0], own[1], b_ih, b_hh, own[-1] if projects else None))
    return found


def _stacked(
    F: Any, cell: str, input: Any, hx: Sequence[Any], params: Sequence[Any], options: tuple[Any, ...], projects: bool
) -> tuple[Any, ...]:
    """Return the output of the last layer and the final value of each of the states ``hx`` (layers · directions, N, H).

    ``options`` are the op's arguments from ``has_biases`` to ``batch_first``.
    """
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    count = num_layers * (1 + bidirectional)
    directions = directions_of(params, has_biases, projects)
    if len(directions) != count and len(hx) > 1:
        raise InvalidOperation("got an incorrect number of RNN parameters")
    given = [size_at(state.shape, 0) for state in hx]
    if any(n != count for n in given):
        few = count < 0 or any(n < count for n in given)
        raise InvalidOperation(f"Expected {'more' if few else 'fewer'} hidden states in stacked_rnn")
    if len(directions) != count:  # torch checks a single state first
        raise InvalidOperation("got an incorrect number of RNN parameters")
    first = F.transpose(input, 0, 1) if batch_first else input
    run = direction_runner(F, cell)
    output, *finals = run_layers(F, cell, run, first, hx, directions, bidirectional, dropout if train else 0.0)
    if not bidirectional and len(hx) == 1:
        # The layer saved its output, and callers may modify this one in place; torch saves the output of an LSTM too.
        output = F.clone(output)
    return (F.transpose(output, 0, 1) if batch_first else output, *finals)


def run_layers(
    F: Any,
    cell: str,
    run: Callable[..., Any],
    output: Any,
    hx: Sequence[Any],
    directions: Sequence[Direction],
    bidirectional: bool,
    dropout: float,
) -> tuple[Any, ...]:
    """Return the output of the last layer for the input ``output`` of the first, and the final value of each of ``hx``.

    ``run(projected, states, direction, reverse)`` returns the output of one direction and its final states.
    ``dropout`` applies between the layers.
    """
    ends: list[tuple[Any, ...]] = []
    while len(ends) < len(directions):
        if dropout and ends:
            output = F.dropout(output, dropout, True)
        sides = []
        for reverse in (False, True)[: 1 + bidirectional]:
            states = tuple(state[len(ends)] for state in hx)
            inputs = in_one_dtype(F, output, states, directions[len(ends)], lowest=cell != "gru")
            side, *end = run(*inputs, reverse)
            sides.append(side)
            ends.append(tuple(end))
        output = F.cat(tuple(sides), -1) if bidirectional else sides[0]
    return output, *(F.stack(states, 0) for states in zip(*ends, strict=True))


def in_one_dtype(
    F: Any, input: Any, states: tuple[Any, ...], own: Direction, lowest: bool
) -> tuple[Any, tuple[Any, ...], Direction]:
    """The input times its weight, with the states and the other parameters cast to one dtype.

    Dtypes differ only under autocast. Then all get the product's dtype if ``lowest``, else, as torch does for some
    cells, that of the states.
    """
    projected = F.linear(input, own.w_ih, own.b_ih)
    if projected.dtype == input.dtype == own.w_ih.dtype:
        return projected, states, own
    dtype = projected.dtype if lowest else states[0].dtype
    w_hh, b_hh, w_hr, projected, *states_alike = (
        None if x is None else F.to(x, dtype=dtype) for x in (own.w_hh, own.b_hh, own.w_hr, projected, *states)
    )
    return projected, tuple(states_alike), own._replace(w_hh=w_hh, b_hh=b_hh, w_hr=w_hr)


def direction_runner(F: Any, cell: str) -> Callable[..., Any]:
    """Return the function that runs one direction of a layer of "lstm", "gru", "rnn_tanh" or "rnn_relu" cells.

    See :func:`run_layers`.
    """
    kind, _, nonlinearity = cell.partition("_")
    layer, attrs = getattr(F, f"{kind}_layer"), (nonlinearity,) if nonlinearity else ()

    def run(projected: Any, states: Any, own: Direction, reverse: bool) -> Any:
        if own.w_hr is not None:
            return _projecting(F, projected, states, own, reverse)
        made = layer(projected, *states, own.w_hh, own.b_hh, *attrs, reverse)
        result, *cells = made if kind == "lstm" else (made,)
        return result, result[0 if reverse else -1], *cells

    return run


def _projecting(F: Any, projected: Any, states: Any, own: Direction, reverse: bool) -> Any:
    """Run an LSTM with projected states h = W_hr·r (Sak et al. 2014) on the unprojected r: W_hh·h = (W_hh·W_hr)·r.

    The first state need not be a projection, so its product with W_hh is added to the first step's input.
    """
    state, cell = states
    scores = F.linear(state, own.w_hh)
    parts = (projected[:-1], projected[-1:] + scores) if reverse else (projected[:1] + scores, projected[1:])
    w_hh = F.matmul(own.w_hh, own.w_hr)
    inner, cell = F.lstm_layer(F.cat(parts, 0), F.zeros_like(cell), cell, w_hh, own.b_hh, reverse)
    result = F.linear(inner, own.w_hr)
    return result, result[0 if reverse else -1], cell


@composite(variants=FUNCTION, results=named("output", "h_n", "c_n"))
def lstm(
    F: Any,
    input: Array,
    hx: Arrays,
    params: Arrays,
    has_biases: Bool,
    num_layers: Int,
    dropout: Number,
    train: Bool,
    bidirectional: Bool,
    batch_first: Bool,
) -> Any:
    """Layers of LSTM cells over a sequence (T, N, I): their output (T, N, D·H), last states and last cells.

    ``hx`` is the initial states and cells (L·D, N, H). ``params`` is w_ih, w_hh and, if ``has_biases``, b_ih and b_hh
    for each of the D directions of each layer, each followed by w_hr (P, H) if states and output are projected to P
    features. ``dropout`` is applied between the layers.
    """
    if len(hx) != 2:
        raise InvalidOperation("lstm expects two hidden states")
    for state in hx:
        size_at(state.shape, 2)  # raises for too few dimensions
    if hx[0].dtype is not hx[1].dtype:
        raise DTypeMismatch("get_mkldnn_dtype: unsupported data type")  # torch's error, from MKLDNN
    projects = len(params) == (5 if has_biases else 3) * num_layers * (1 + bidirectional)
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _stacked(F, "lstm", input, hx, params, options, projects)


def _declare_stack(cell: str, name: str) -> None:
    """Declare a stack of cells whose only state is their output."""

    def stack(
        F: Any,
        input: Array,
        hx: Array,
        params: Arrays,
        has_biases: Bool,
        num_layers: Int,
        dropout: Number,
        train: Bool,
        bidirectional: Bool,
        batch_first: Bool,
    ) -> Any:
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _stacked(F, cell, input, (hx,), params, options, False)

    stack.__doc__ = f"""Layers of {name} over a sequence: the output and the last states; see ``lstm``."""
    composite(key=cell, variants=FUNCTION, results=named("output", "h_n"))(stack)


_declare_stack("gru", "GRU cells")
_declare_stack("rnn_tanh", "Elman cells with tanh")
_declare_stack("rnn_relu", "Elman cells with relu")


# Cells: sequences of one step ----------------------------------------------------------------------------


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


def _step(F: Any, cell: str, input: Any, states: Sequence[Any], *parameters: Any) -> tuple[Any, ...]:
    """Return the states after one step.

    The layer saved the state for its derivative, so a copy is returned that may be modified in place. The state of an
    Elman network is not copied; torch does not allow modifying it either.
    """
    elman = cell.startswith("rnn")
    projected, states, own = in_one_dtype(F, input, tuple(states), Direction(*parameters), lowest=elman)
    _, state, *others = direction_runner(F, cell)(F.unsqueeze(projected, 0), states, own, False)
    return (state if elman else F.clone(state), *others)


@composite(variants=FUNCTION, results=named("h", "c"))
def lstm_cell(
    F: Any, input: Array, hx: Arrays, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None
) -> Any:
    """One step of an LSTM: input (N, I), state and cell (N, H), weights (4H, I) and (4H, H), biases (4H)."""
    if len(hx) != 2:
        raise InvalidOperation("lstm_cell expects two hidden states")
    size_at(w_hh.shape, 1)  # raises for too few dimensions
    _check_input(input, w_ih)
    _check_weights(4, w_ih, w_hh)
    _check_states(input, hx, w_hh)
    return _step(F, "lstm", input, hx, w_ih, w_hh, b_ih, b_hh)


@composite(variants=FUNCTION)
def gru_cell(F: Any, input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None) -> Any:
    """One step of a GRU: input (N, I), state (N, H), weights (3H, I) and (3H, H), biases (3H)."""
    _check_input(input, w_ih)
    _check_states(input, (hx,), w_hh)
    _check_weights(3, w_ih, w_hh)
    return _step(F, "gru", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def _declare_elman_cell(nonlinearity: str) -> None:
    def cell(F: Any, input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array = None, b_hh: Array = None) -> Any:
        _check_weights(1, w_ih, w_hh)
        _check_input(input, w_ih)
        _check_states(input, (hx,), w_hh)
        return _step(F, f"rnn_{nonlinearity}", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]

    shapes = "input (N, I), state (N, H), weights (H, I) and (H, H), biases (H)"
    cell.__doc__ = f"""One step of an Elman network with {nonlinearity}: {shapes}."""
    composite(key=f"rnn_{nonlinearity}_cell", variants=FUNCTION)(cell)


# Integers are refused here, although torch's cells convert them to floating states.
_declare_elman_cell("tanh")
_declare_elman_cell("relu")
