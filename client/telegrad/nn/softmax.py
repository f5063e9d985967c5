"""Activations that look along a dimension."""

from __future__ import annotations

import warnings
from typing import ClassVar

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor
from . import functional as F
from .module import Module, options


class _AlongDim(Module):
    name: ClassVar[str]
    """The function, as torch's warning about a missing ``dim`` calls it."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _dim_of(self, input: Tensor) -> int:
        """The dimension; where none was given, torch's old choice, with its warning."""
        if self.dim is not None:
            return self.dim
        warnings.warn(
            f"Implicit dimension choice for {self.name} has been deprecated. Change the call to include dim=X as an "
            "argument.",
            stacklevel=4,
        )
        return 0 if input.dim() in (0, 1, 3) else 1

    def extra_repr(self) -> str:
        """The dimension."""
        return options(self, "dim")


class Softmax(_AlongDim):
    """The exponentials along ``dim``, scaled to add up to 1."""

    name = "softmax"

    def forward(self, input: Tensor) -> Tensor:
        """``exp(input) / sum(exp(input))``."""
        return F.softmax(input, self._dim_of(input))


class LogSoftmax(_AlongDim):
    """The logarithm of the softmax along ``dim``."""

    name = "log_softmax"

    def forward(self, input: Tensor) -> Tensor:
        """``input - logsumexp(input)``."""
        return F.log_softmax(input, self._dim_of(input))


class Softmin(_AlongDim):
    """The softmax of the negated input along ``dim``."""

    name = "softmin"

    def forward(self, input: Tensor) -> Tensor:
        """``softmax(-input)``."""
        return F.softmin(input, self._dim_of(input))


class Softmax2d(Module):
    """The softmax over the channels of images (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """The softmax along dim -3. Raises ValueError for other inputs."""
        if input.dim() not in (3, 4):
            raise InvalidValue(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class GLU(Module):
    """The first half of ``dim`` times the logistic function of the second (Dauphin et al. 2016)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Half as long along ``dim``, which must be even."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The dimension."""
        return options(self, "dim")
