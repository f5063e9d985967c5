"""Recurrent networks over whole sequences, in one tensor or packed, and single cells."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, cast

from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue
from telegrad_engine.ops.nn.recurrent import Direction, direction_runner, directions_of, run_layers

from ...tensor.handle import Tensor, functions
from .. import init
from ..parameter import Parameter, add_parameters
from ..utils.rnn import PackedSequence, known_sizes
from .module import Module, changed_options


class RNNBase(Module):
    """Layers of one kind of cell, with parameters weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0 for layer 0.

    The names for layer 1 end in ``_l1``, those for the reverse direction in ``_reverse``. All parameters start uniform
    within ±1/√hidden_size. Raises ValueError or TypeError for invalid sizes.

    ``mode`` names the cell: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU"; the other arguments are those of ``RNN``.

    Examples:
        >>> issubclass(tg.nn.LSTM, tg.nn.RNNBase)
        True
    """

    gates: ClassVar[int]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._check_options(dropout)
        self._names = [list(shapes) for shapes in self._shapes()]
        for shapes in self._shapes():
            add_parameters(self, shapes, device, dtype)
        self.reset_parameters()

    def _check_options(self, dropout: Any) -> None:
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise InvalidValue(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=5,
            )
        if not isinstance(self.hidden_size, int):
            raise InvalidArgument(f"hidden_size should be of type int, got: {type(self.hidden_size).__name__}")
        if self.hidden_size <= 0:
            raise InvalidValue("hidden_size must be greater than zero")
        if self.num_layers <= 0:
            raise InvalidValue("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise InvalidValue("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise InvalidValue("proj_size has to be smaller than hidden_size")

    def _shapes(self) -> Iterator[dict[str, tuple[int, ...]]]:
        """Yield the parameter names and shapes of each direction of each layer."""
        wide = self.gates * self.hidden_size
        for layer in range(self.num_layers):
            width = self._state_size * (1 + self.bidirectional) if layer else self.input_size
            for end in ("", "_reverse")[: 1 + self.bidirectional]:
                weights: dict[str, tuple[int, ...]] = {
                    "weight_ih": (wide, width),
                    "weight_hh": (wide, self._state_size),
                }
                biases: dict[str, tuple[int, ...]] = {"bias_ih": (wide,), "bias_hh": (wide,)} if self.bias else {}
                last = {"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {}
                yield {f"{name}_l{layer}{end}": shape for name, shape in {**weights, **biases, **last}.items()}

    @property
    def _state_size(self) -> int:
        """The number of features of a state."""
        return self.proj_size or self.hidden_size

    def _state_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Return the shapes of the states (and cells) of all layers and directions."""
        count = self.num_layers * (1 + self.bidirectional)
        sizes = (self._state_size, self.hidden_size)[: 1 + (self.mode == "LSTM")]
        return [(count, batch, size) for size in sizes]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each direction of each layer."""
        return [[getattr(self, name) for name in names] for names in self._names]

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        reset_uniformly(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Do nothing: the parameters need no particular memory layout."""

    # Running -----------------------------------------------------------------------------

    def _run(self, input: Tensor, states: list[Tensor]) -> list[Tensor]:
        """Return the output and the final states for a batched input."""
        function = getattr(functions, self.mode.lower())
        params = [parameter for direction in self.all_weights for parameter in direction]
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)
        hx = states if self.mode == "LSTM" else states[0]
        return list(function(input, hx, params, *options))

    def _zeros(self, input: Tensor, batch: int) -> list[Tensor]:
        return [functions.zeros(shape, dtype=input.dtype) for shape in self._state_shapes(batch)]

    def _check_input(self, input: Any) -> None:
        if input.dim() not in (2, 3):
            kind = " tensor" if type(self) is RNN else ""
            raise InvalidValue(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D{kind} instead"
            )
        self._check_dtype(input)

    def _check_dtype(self, input: Tensor) -> None:
        own = self.all_weights[0][0].dtype
        if input.dtype != own:
            raise InvalidValue(
                f"RNN input dtype (torch.{input.dtype.name}) does not match weight dtype (torch.{own.name}). Convert "
                f"input: input.to(torch.{own.name}), or convert model: model.to(torch.{input.dtype.name})"
            )

    def _check_sizes(self, input: Tensor, states: list[Tensor], batch: int) -> None:
        if input.shape[-1] != self.input_size:
            raise InvalidOperation(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )
        for number, (state, wanted) in enumerate(zip(states, self._state_shapes(batch), strict=True)):
            if tuple(state.shape) != wanted:
                name = f"hidden[{number}]" if self.mode == "LSTM" else "hidden"
                raise InvalidOperation(f"Expected {name} size {wanted}, got {list(state.shape)}")

    def _over(self, input: Any, states: list[Tensor] | None) -> list[Any]:
        """Run over a batched, unbatched or packed input. Raises ValueError or RuntimeError for other dimensions."""
        if isinstance(input, PackedSequence):
            return self._over_packed(input, states)
        self._check_input(input)
        if states is not None and {state.dim() for state in states} != {input.dim()}:
            kind = "batched 3-D" if input.dim() == 3 else "unbatched 2-D"
            found = ", ".join(f"{state.dim()}-D" for state in states)
            names, found = ("hx and cx", f"({found}) tensors") if len(states) == 2 else ("hx", f"{found} tensor")
            raise InvalidOperation(f"For {kind} input, {names} should also be {input.dim()}-D but got {found}")
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
            states = None if states is None else [state.unsqueeze(1) for state in states]
        batch = input.shape[0 if self.batch_first else 1]
        states = self._zeros(input, batch) if states is None else states
        self._check_sizes(input, states, batch)
        output, *ends = self._run(input, states)
        if batched:
            return [output, *ends]
        return [output.squeeze(0 if self.batch_first else 1), *(end.squeeze(1) for end in ends)]

    def _over_packed(self, input: PackedSequence, states: list[Tensor] | None) -> list[Any]:
        self._check_dtype(input.data)
        batch = known_sizes(input)[0]
        if states is None:
            states = self._zeros(input.data, batch)
        elif input.sorted_indices is not None:
            states = [state.index_select(1, input.sorted_indices) for state in states]
        self._check_sizes(input.data, states, batch)
        output, *ends = _run_packed(self, input, states)
        if input.unsorted_indices is not None:
            ends = [end.index_select(1, input.unsorted_indices) for end in ends]
        return [input._with_data(output), *ends]

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        return f"{self.input_size}, {self.hidden_size}" + changed_options(self, proj_size=0, **usual)


class _OneState(RNNBase):
    """A network with one state per layer and direction."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return the output (T, N, D·H) and the final states (L·D, N, H) for an input (T, N, I) and initial states.

        With ``batch_first``, input and output are (N, T, …); the states keep their layout. Initial states are zeros by
        default. Without a batch, N is absent everywhere. For a PackedSequence the output is also packed.
        """
        output, state = self._over(input, None if hx is None else [hx])
        return output, state


class RNN(_OneState):
    """Layers of ``RNNCell`` over a sequence.

    ``forward`` takes a sequence (T, N, I), or (N, T, I) with ``batch_first``, or (T, I), and the first states, zeros
    by default: (D * num_layers, N, H), where D is 2 if ``bidirectional``, else 1. It returns the states of the last
    layer (T, N, D * H) and the last states. A PackedSequence has sequences of several lengths. Raises ValueError or
    TypeError for sizes that are not possible.

    Args:
        input_size: The number of features I of the input.
        hidden_size: The number of features H of the state.
        num_layers: The number of layers.
        nonlinearity: "tanh" or "relu".
        bias: Whether there is a bias that is added.
        batch_first: Whether the batch is the first dimension of the input and of the output.
        dropout: The probability of dropout between layers, in training.
        bidirectional: Whether each layer also runs over the reversed sequence.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.
        proj_size: The number of features that states are projected to; 0 projects nothing.

    Examples:
        >>> rnn = tg.nn.RNN(3, 4, batch_first=True)
        >>> output, h = rnn(tg.ones(2, 5, 3))
        >>> output.shape, h.shape
        (telegrad.Size([2, 5, 4]), telegrad.Size([1, 2, 4]))
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
    ) -> None:
        _refuse_projection(proj_size)
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidValue(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, *options, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class _Gated(RNNBase):
    """A network whose mode is its class's name. Raises ValueError for projections in other networks than LSTM."""

    kind: ClassVar[str]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if self.kind != "LSTM":
            _refuse_projection(proj_size)
        options = (num_layers, bias, batch_first, dropout, bidirectional, proj_size)
        super().__init__(self.kind, input_size, hidden_size, *options, device=device, dtype=dtype)


class GRU(_OneState, _Gated):
    """Layers of GRUCell.

    Arguments, inputs and results are those of ``RNN``.

    Examples:
        >>> output, h = tg.nn.GRU(3, 4, num_layers=2)(tg.ones(5, 2, 3))
        >>> output.shape, h.shape
        (telegrad.Size([5, 2, 4]), telegrad.Size([2, 2, 4]))
    """

    gates, kind = 3, "GRU"


class LSTM(_Gated):
    """Layers of LSTMCell. With ``proj_size`` the states, and so the output, are projected to that many features.

    Arguments, inputs and results are those of ``RNN``, with a pair of states and cells in place of states.

    Examples:
        >>> output, (h, c) = tg.nn.LSTM(3, 4, bidirectional=True)(tg.ones(5, 2, 3))
        >>> output.shape, h.shape, c.shape
        (telegrad.Size([5, 2, 8]), telegrad.Size([2, 2, 4]), telegrad.Size([2, 2, 4]))
    """

    gates, kind = 4, "LSTM"

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Return the output (T, N, D·H) and the final states and cells (L·D, N, H) for an input (T, N, I).

        ``hx`` holds the initial states and cells, zeros by default. With ``batch_first``, input and output are
        (N, T, …); the states keep their layout. Without a batch, N is absent everywhere. For a PackedSequence the
        output is also packed. With ``proj_size``, it replaces H except in the cells.
        """
        output, state, cell = self._over(input, None if hx is None else list(hx))
        return output, (state, cell)


def _refuse_projection(proj_size: int) -> None:
    if proj_size:
        raise InvalidValue("proj_size argument is only supported for LSTM, not RNN or GRU")


def reset_uniformly(module: Module, hidden_size: int) -> None:
    """Fill every parameter with uniform numbers within ±1/√hidden_size."""
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


class RNNCellBase(Module):
    """A cell of G gates with weights (G·H, I) and (G·H, H) and biases (G·H), which start uniform within ±1/√H.

    ``num_chunks`` is G; the other arguments are those of ``RNNCell``.

    Examples:
        >>> tg.nn.RNNCellBase(3, 4, True, num_chunks=3).weight_ih.shape
        telegrad.Size([12, 3])
    """

    gates: ClassVar[int]
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        num_chunks: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_chunks is not None:
            self.gates = num_chunks  # type: ignore[misc]  # for direct instances of this class
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        wide = self.gates * hidden_size
        shapes = {"weight_ih": (wide, input_size), "weight_hh": (wide, hidden_size), "bias_ih": (wide,)}
        absent = () if bias else ("bias_ih", "bias_hh")
        add_parameters(self, {**shapes, "bias_hh": (wide,)}, device, dtype, absent)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        reset_uniformly(self, self.hidden_size)

    def _step(self, cell: Callable[..., Any], input: Tensor, states: Mapping[str, Tensor | None]) -> Any:
        """Return the next state or states, with or without a batch as the input; states that are None are zeros."""
        for name, tensor in {"input": input, **states}.items():
            if tensor is not None and tensor.dim() not in (1, 2):
                found = f"Expected {name} to be 1D or 2D, got {tensor.dim()}D instead"
                raise InvalidValue(f"{type(self).__name__}: {found}")
        batched = input.dim() == 2
        given = [state if batched or state is None else state.unsqueeze(0) for state in states.values()]
        input = input if batched else input.unsqueeze(0)
        if any(state is None for state in given):
            given = [functions.zeros((input.shape[0], self.hidden_size), dtype=input.dtype)] * len(given)
        hx = given if len(given) > 1 else given[0]
        result = cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return result
        return tuple(state.squeeze(0) for state in result) if len(given) > 1 else result.squeeze(0)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + changed_options(self, bias=True)


class RNNCell(RNNCellBase):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or its positive part for the nonlinearity "relu" (Elman 1990).

    ``forward`` takes an input (N, I) or (I) and a state (N, H) or (H), zeros by default, and returns the next state.

    Args:
        input_size: The number of features I of the input.
        hidden_size: The number of features H of the state.
        bias: Whether the cell has biases.
        nonlinearity: "tanh" or "relu".
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> tg.nn.RNNCell(3, 4)(tg.ones(2, 3)).shape
        telegrad.Size([2, 4])
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (N, H) or (H) for an input (N, I) or (I) and a state, zeros by default."""
        cells: dict[str, Any] = {"tanh": functions.rnn_tanh_cell, "relu": functions.rnn_relu_cell}
        if self.nonlinearity not in cells:
            raise InvalidOperation(f"Unknown nonlinearity: {self.nonlinearity}")
        return cast(Tensor, self._step(cells[self.nonlinearity], input, {"hidden": hx}))

    def extra_repr(self) -> str:
        return super().extra_repr() + changed_options(self, nonlinearity="tanh")


class _GatedCell(RNNCellBase):
    """A cell with several gates."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, None, device, dtype)


class GRUCell(_GatedCell):
    """A gated recurrent unit (Cho et al. 2014), with gates in the order reset, update, new.

    The arguments are those of ``RNNCell``.

    Examples:
        >>> tg.nn.GRUCell(3, 4)(tg.ones(2, 3)).shape
        telegrad.Size([2, 4])
    """

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (N, H) or (H) for an input (N, I) or (I) and a state, zeros by default."""
        return cast(Tensor, self._step(functions.gru_cell, input, {"hidden": hx}))


class LSTMCell(_GatedCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with gates in the order input, forget, new, output.

    The arguments are those of ``RNNCell``; ``forward`` takes and returns a pair of a state and a cell.

    Examples:
        >>> h, c = tg.nn.LSTMCell(3, 4)(tg.ones(2, 3))
        >>> h.shape, c.shape
        (telegrad.Size([2, 4]), telegrad.Size([2, 4]))
    """

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next state and cell (N, H) or (H) for an input (N, I) or (I) and the last, zeros by default."""
        first, second = hx or (None, None)
        h, c = self._step(functions.lstm_cell, input, {"hx[0]": first, "hx[1]": second})
        return h, c


# Packed sequences -------------------------------------------------------------------------------------
#
# Consecutive steps with the same batch size run together. Packed sequences are sorted by decreasing length, so the
# sequences that have a further step come first. A direction takes one run per distinct length, each with the sequences
# that are at least that long.

Run = Callable[[Tensor, Sequence[Tensor], Direction, bool], Any]


class _Stretch(NamedTuple):
    """Consecutive steps with the same batch size."""

    steps: int
    batch: int
    start: int
    """The index of its first row in the packed data."""

    @property
    def end(self) -> int:
        """The index after its last row."""
        return self.start + self.steps * self.batch


def _run_packed(module: Any, input: PackedSequence, states: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the packed output's data and the final value of each of ``states`` (layers · directions, N, …)."""
    stretches, cell = _stretches(known_sizes(input)), module.mode.lower()
    run_stretch = direction_runner(functions, cell)

    def run_all(data: Tensor, first: Sequence[Tensor], own: Direction, reverse: bool) -> Any:
        side, ends = (_backward if reverse else _forward)(run_stretch, data, stretches, first, own)
        return side, *ends

    params = [parameter for direction in module.all_weights for parameter in direction]
    directions = directions_of(params, module.bias, bool(module.proj_size))
    dropout = module.dropout if module.training else 0.0
    return run_layers(functions, cell, run_all, input.data, states, directions, module.bidirectional, dropout)


def _stretches(sizes: Sequence[int]) -> list[_Stretch]:
    found: list[_Stretch] = []
    for batch, steps in groupby(sizes):
        found.append(_Stretch(len(list(steps)), batch, found[-1].end if found else 0))
    return found


def _over_stretch(
    run: Run, data: Tensor, stretch: _Stretch, states: Sequence[Tensor], own: Direction, reverse: bool
) -> Any:
    """Run one stretch; return its rows of the output and the states after it."""
    chunk = data[stretch.start : stretch.end].reshape(stretch.steps, stretch.batch, -1)
    result, *after = run(chunk, states, own, reverse)
    return result.reshape(stretch.steps * stretch.batch, -1), after


def _forward(run: Run, data: Tensor, stretches: Sequence[_Stretch], states: Sequence[Tensor], own: Direction) -> Any:
    """Run from the first step to the last; shorter sequences end earlier."""
    results: list[Tensor] = []
    ended: list[Sequence[Tensor]] = []
    batch = stretches[0].batch
    for stretch in stretches:
        if stretch.batch < batch:
            ended.insert(0, [state[stretch.batch :] for state in states])
            states = [state[: stretch.batch] for state in states]
            batch = stretch.batch
        result, states = _over_stretch(run, data, stretch, states, own, False)
        results.append(result)
    return functions.cat(results), _joined([states, *ended])


def _backward(run: Run, data: Tensor, stretches: Sequence[_Stretch], first: Sequence[Tensor], own: Direction) -> Any:
    """Run from the last step to the first; shorter sequences start later."""
    results: list[Tensor] = []
    batch = stretches[-1].batch
    states: Sequence[Tensor] = [state[:batch] for state in first]
    for stretch in reversed(stretches):
        if stretch.batch > batch:
            states = _joined([states, [state[batch : stretch.batch] for state in first]])
            batch = stretch.batch
        result, states = _over_stretch(run, data, stretch, states, own, True)
        results.insert(0, result)
    return functions.cat(results), tuple(states)


def _joined(parts: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Concatenate the states of several groups of sequences."""
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(functions.cat(list(states)) for states in zip(*parts, strict=True))
