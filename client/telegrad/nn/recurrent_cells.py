"""Recurrent cells: one step of a recurrent network. Whole sequences are in ``recurrent.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import Tensor, functions
from . import init
from .module import Module
from .parameter import Parameter


def reset_uniformly(module: Module, hidden_size: int) -> None:
    """Fill every parameter with uniform numbers within ±1/√hidden_size."""
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


class RNNCellBase(Module):
    """Weights (G·H, I) and (G·H, H) and biases (G·H) of G gates; all start uniform within ±1/√H."""

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
            self.gates = num_chunks  # type: ignore[misc]  # of a cell that is made of this class alone
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        wide = self.gates * hidden_size
        shapes = {"weight_ih": (wide, input_size), "weight_hh": (wide, hidden_size), "bias_ih": (wide,)}
        for name, shape in {**shapes, "bias_hh": (wide,)}.items():
            there = bias or name.startswith("weight")
            made = Parameter(functions.empty(shape, dtype=dtype, device=device)) if there else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        reset_uniformly(self, self.hidden_size)

    def _check(self, name: str, tensor: Tensor) -> None:
        if tensor.dim() not in (1, 2):
            raise InvalidValue(f"{type(self).__name__}: Expected {name} to be 1D or 2D, got {tensor.dim()}D instead")

    def _step(self, cell: Callable[..., Any], input: Tensor, state: Any) -> Any:
        return cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def _step_of_one_state(self, cell: Callable[..., Any], input: Tensor, hx: Tensor | None) -> Tensor:
        self._check("input", input)
        if hx is not None:
            self._check("hidden", hx)
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            hx = functions.zeros((input.shape[0], self.hidden_size), dtype=input.dtype)
        else:
            hx = hx if batched else hx.unsqueeze(0)
        result: Tensor = self._step(cell, input, hx)
        return result if batched else result.squeeze(0)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


class RNNCell(RNNCellBase):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or its positive part for the nonlinearity "relu" (Elman 1990)."""

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
        """The next state (N, H) or (H), from an input (N, I) or (I) and a state, zeros by default."""
        cells: dict[str, Any] = {"tanh": functions.rnn_tanh_cell, "relu": functions.rnn_relu_cell}
        if self.nonlinearity not in cells:
            raise InvalidOperation(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step_of_one_state(cells[self.nonlinearity], input, hx)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class GRUCell(RNNCellBase):
    """A gated recurrent unit (Cho et al. 2014), its gates in the order reset, update, new."""

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state (N, H) or (H), from an input (N, I) or (I) and a state, zeros by default."""
        return self._step_of_one_state(functions.gru_cell, input, hx)


class LSTMCell(RNNCellBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), its gates in the order input, forget, new, output."""

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next state and cell (N, H) or (H), from an input (N, I) or (I) and both before, zeros by default."""
        self._check("input", input)
        for number, state in enumerate(hx or ()):
            self._check(f"hx[{number}]", state)
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        states: list[Tensor]
        if hx is None:
            states = [functions.zeros((input.shape[0], self.hidden_size), dtype=input.dtype)] * 2
        else:
            states = [state if batched else state.unsqueeze(0) for state in hx]
        h, c = self._step(functions.lstm_cell, input, states)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
