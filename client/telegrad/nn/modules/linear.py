"""Linear layers: affine maps of the last dimension."""

from __future__ import annotations

import math
from typing import Any

from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init
from ..parameter import Parameter, add_parameters
from .module import Module, options


class Linear(Module):
    """``input @ weight.T + bias``: input (…, in), weight (out, in), bias (out), result (…, out).

    Both start as uniform numbers within ±1/√in_features, as in torch.

    Args:
        in_features: The number of features of the input.
        out_features: The number of features of the result.
        bias: Whether there is a bias that is added.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> layer = tg.nn.Linear(4, 2)
        >>> layer(tg.ones(3, 4)).shape
        telegrad.Size([3, 2])
        >>> layer.weight.shape
        telegrad.Size([2, 4])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        add_parameters(self, self._shapes(), device, dtype, () if bias else ("bias",))
        self.reset_parameters()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine map of the last dimension."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``x1 @ weight @ x2 + bias`` for each output: x1 (…, in1), x2 (…, in2), weight (out, in1, in2), bias (out).

    Both start as uniform numbers within ±1/√in1_features.

    Args:
        in1_features: The number of features of the first input.
        in2_features: The number of features of the second input.
        out_features: The number of features of the result.
        bias: Whether there is a bias that is added.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> tg.nn.Bilinear(4, 3, 2)(tg.ones(5, 4), tg.ones(5, 3)).shape
        telegrad.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise InvalidValue(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        shapes = {"weight": (out_features, in1_features, in2_features), "bias": (out_features,)}
        add_parameters(self, shapes, device, dtype, () if bias else ("bias",))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return the bilinear form of the last dimensions."""
        result: Tensor = functions.einsum("...i,oij,...j->...o", input1, self.weight, input2)
        return result if self.bias is None else result + self.bias

    def extra_repr(self) -> str:
        sizes = options(self, "in1_features", "in2_features", "out_features")
        return f"{sizes}, bias={self.bias is not None}"
