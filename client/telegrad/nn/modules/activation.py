"""Activation functions as modules, softmaxes included."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from telegrad_engine.errors import InvalidChoice, InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init as fill
from ..parameter import Parameter
from .module import Module, options


class _Activation(Module):
    """Without options."""

    def __init__(self) -> None:
        super().__init__()

    shown: tuple[str, ...] = ()
    """The options that are printed."""

    def extra_repr(self) -> str:
        """The options."""
        return options(self, *self.shown)


class _InplaceActivation(_Activation):
    """With the one option to write the result into the input."""

    shown: tuple[str, ...] = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InplaceActivation):
    """The input where positive, else 0; written into the input if ``inplace``."""

    def forward(self, input: Tensor) -> Tensor:
        """``max(input, 0)``."""
        return F.relu(input, inplace=self.inplace)


class SiLU(_InplaceActivation):
    """The input times its logistic function; also called swish."""

    def forward(self, input: Tensor) -> Tensor:
        """``input * sigmoid(input)``."""
        return F.silu(input, inplace=self.inplace)


class SELU(_InplaceActivation):
    """The scaled exponential linear unit, which keeps mean 0 and variance 1 (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """``scale * elu(input, alpha)``, with the paper's two constants."""
        return F.selu(input, inplace=self.inplace)


class Mish(_InplaceActivation):
    """The input times tanh of its softplus (Misra 2019)."""

    def forward(self, input: Tensor) -> Tensor:
        """``input * tanh(softplus(input))``."""
        return F.mish(input, inplace=self.inplace)


class Hardsigmoid(_InplaceActivation):
    """The logistic function in three straight pieces."""

    shown: tuple[str, ...] = ()

    def forward(self, input: Tensor) -> Tensor:
        """``clamp(input / 6 + 1/2, 0, 1)``."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(_InplaceActivation):
    """SiLU with the logistic function in three straight pieces (Howard et al. 2019)."""

    shown: tuple[str, ...] = ()

    def forward(self, input: Tensor) -> Tensor:
        """``input * hardsigmoid(input)``."""
        return F.hardswish(input, inplace=self.inplace)


class Tanh(_Activation):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """``tanh(input)``."""
        return F.tanh(input)


class Sigmoid(_Activation):
    """The logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        """``1 / (1 + exp(-input))``."""
        return F.sigmoid(input)


class LogSigmoid(_Activation):
    """The logarithm of the logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        """``-log(1 + exp(-input))``."""
        return F.logsigmoid(input)


class Softsign(_Activation):
    """The input over one more than its size."""

    def forward(self, input: Tensor) -> Tensor:
        """``input / (1 + |input|)``."""
        return F.softsign(input)


class Tanhshrink(_Activation):
    """The input less its hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """``input - tanh(input)``."""
        return F.tanhshrink(input)


class GELU(_Activation):
    """The input times the normal distribution function, exactly or by tanh (Hendrycks and Gimpel 2016)."""

    shown: tuple[str, ...] = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """``input * Φ(input)``."""
        return F.gelu(input, approximate=self.approximate)


class LeakyReLU(_Activation):
    """The input where positive, else the input times ``negative_slope``."""

    shown: tuple[str, ...] = ("negative_slope", "inplace")

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """``max(input, 0) + negative_slope * min(input, 0)``."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)


class RReLU(_Activation):
    """``LeakyReLU`` with slopes drawn between ``lower`` and ``upper`` while training (Xu et al. 2015)."""

    shown: tuple[str, ...] = ("lower", "upper", "inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input where positive, else the input times a drawn slope, in evaluation mode the mean one."""
        return F.rrelu(input, self.lower, self.upper, self.training, inplace=self.inplace)


class ELU(_Activation):
    """The input where positive, else an exponential that levels off at ``-alpha`` (Clevert et al. 2015)."""

    shown: tuple[str, ...] = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """``alpha * (exp(input) - 1)`` where the input is negative."""
        return F.elu(input, self.alpha, inplace=self.inplace)


class CELU(ELU):
    """ELU with a continuous slope at 0 for every ``alpha`` (Barron 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """``alpha * (exp(input / alpha) - 1)`` where the input is negative."""
        return F.celu(input, self.alpha, inplace=self.inplace)


class PReLU(_Activation):
    """LeakyReLU with a learnt slope, one for all channels (dim 1) or ``num_parameters``, one each (He et al. 2015)."""

    shown: tuple[str, ...] = ("num_parameters",)
    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(functions.empty((num_parameters,), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to ``init``."""
        fill.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """``max(input, 0) + weight * min(input, 0)``."""
        return F.prelu(input, self.weight)


class Hardtanh(_Activation):
    """The input kept within ``min_val`` and ``max_val``. Raises AssertionError where these are out of order."""

    shown: tuple[str, ...] = ("min_val", "max_val", "inplace")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        min_val = _renamed("min_value", min_value, "min_val", min_val)
        max_val = _renamed("max_value", max_value, "max_val", max_val)
        if not max_val > min_val:
            raise InvalidChoice(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:
        """``clamp(input, min_val, max_val)``."""
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)


def _renamed(old: str, given: float | None, new: str, value: float) -> float:
    """The value of an option that may have been given by its old name."""
    if given is None:
        return value
    warnings.warn(f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning, stacklevel=3)
    return given


class ReLU6(Hardtanh):
    """The input kept within 0 and 6."""

    shown: tuple[str, ...] = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(_Activation):
    """The input where it is above ``threshold``, else ``value``."""

    shown: tuple[str, ...] = ("threshold", "value", "inplace")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input with what is too small replaced."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)


class Softplus(_Activation):
    """A smooth ReLU, straight where ``beta * input`` exceeds ``threshold``."""

    shown: tuple[str, ...] = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """``log(1 + exp(beta * input)) / beta``."""
        return F.softplus(input, self.beta, self.threshold)


class _Shrink(_Activation):
    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The threshold."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """The input where it is further than ``lambd`` from 0, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        """The input without what is near 0."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """The input brought nearer to 0 by ``lambd``."""

    def forward(self, input: Tensor) -> Tensor:
        """``sign(input) * max(|input| - lambd, 0)``."""
        return F.softshrink(input, self.lambd)


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
