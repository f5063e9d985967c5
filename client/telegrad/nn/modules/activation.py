"""Activation functions as modules, including softmax."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from telegrad_engine.errors import InvalidChoice, InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init as fill
from ..parameter import Parameter
from .function_module import FunctionModule
from .module import Module


class _InplaceActivation(FunctionModule):
    """An activation whose only option, ``inplace``, writes the result into the input."""

    _arguments = ("inplace",)
    _shown: ClassVar[tuple[str, ...]] = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InplaceActivation, function="relu"):
    """``max(input, 0)``; written into the input if ``inplace``.

    Examples:
        >>> tg.nn.ReLU()(tg.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """


class SiLU(_InplaceActivation, function="silu"):
    """``input * sigmoid(input)``; also called swish.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.SiLU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.2689,  1.7616])
    """


class SELU(_InplaceActivation, function="selu"):
    """``scale * elu(input, alpha)``, whose constants keep mean 0 and variance 1 (Klambauer et al. 2017).

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.SELU()(tg.tensor([-1.0, 2.0]))
        tensor([-1.1113,  2.1014])
    """


class Mish(_InplaceActivation, function="mish"):
    """``input * tanh(softplus(input))`` (Misra 2019).

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.Mish()(tg.tensor([-1.0, 2.0]))
        tensor([-0.3034,  1.9440])
    """


class Hardsigmoid(_InplaceActivation, function="hardsigmoid"):
    """A piecewise linear logistic function: ``clamp(input / 6 + 1/2, 0, 1)``.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.Hardsigmoid()(tg.tensor([-4.0, 0.0, 1.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """

    _shown = ()


class Hardswish(_InplaceActivation, function="hardswish"):
    """``input * hardsigmoid(input)`` (Howard et al. 2019).

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.Hardswish()(tg.tensor([-4.0, 0.0, 3.0]))
        tensor([-0., 0., 3.])
    """

    _shown = ()


class Tanh(FunctionModule, function="tanh"):
    """The hyperbolic tangent.

    Examples:
        >>> tg.nn.Tanh()(tg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """


class Sigmoid(FunctionModule, function="sigmoid"):
    """The logistic function: ``1 / (1 + exp(-input))``.

    Examples:
        >>> tg.nn.Sigmoid()(tg.tensor([0.0, 1.0]))
        tensor([0.5000, 0.7311])
    """


class LogSigmoid(FunctionModule, function="logsigmoid"):
    """The logarithm of the logistic function: ``-log(1 + exp(-input))``.

    Examples:
        >>> tg.nn.LogSigmoid()(tg.tensor([0.0, 1.0]))
        tensor([-0.6931, -0.3133])
    """


class Softsign(FunctionModule, function="softsign"):
    """``input / (1 + |input|)``.

    Examples:
        >>> tg.nn.Softsign()(tg.tensor([-1.0, 3.0]))
        tensor([-0.5000,  0.7500])
    """


class Tanhshrink(FunctionModule, function="tanhshrink"):
    """``input - tanh(input)``.

    Examples:
        >>> tg.nn.Tanhshrink()(tg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384])
    """


class GELU(FunctionModule, function="gelu"):
    """``input * Φ(input)``, with Φ approximated for ``approximate="tanh"`` (Hendrycks and Gimpel 2016).

    Examples:
        >>> tg.nn.GELU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.1587,  1.9545])
    """

    _keywords = _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate


class LeakyReLU(FunctionModule, function="leaky_relu"):
    """``max(input, 0) + negative_slope * min(input, 0)``.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.LeakyReLU(0.1)(tg.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000])
    """

    _arguments = _shown = ("negative_slope", "inplace")

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace


class RReLU(FunctionModule, function="rrelu"):
    """``LeakyReLU`` with slopes drawn between ``lower`` and ``upper`` in training mode (Xu et al. 2015).

    In evaluation mode the slope is their mean.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.RReLU().eval()(tg.tensor([-1.0, 2.0]))
        tensor([-0.2292,  2.0000])
    """

    _arguments = ("lower", "upper", "training", "inplace")
    _shown = ("lower", "upper", "inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace


class ELU(FunctionModule, function="elu"):
    """The input where it is positive, else ``alpha * (exp(input) - 1)`` (Clevert et al. 2015).

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.ELU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    _arguments = _shown = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace


class CELU(ELU, function="celu"):
    """The input where positive, else ``alpha * (exp(input / alpha) - 1)`` (Barron 2017): smooth for every ``alpha``.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.CELU()(tg.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """


class PReLU(FunctionModule, function="prelu"):
    """``max(input, 0) + weight * min(input, 0)``, with a learned weight (He et al. 2015).

    ``num_parameters`` is 1 for a weight shared by all channels (dim 1), or the number of channels for one weight each.
    All weights start as ``init``.

    ``device`` and ``dtype`` are those of the weight.

    Examples:
        >>> tg.nn.PReLU()(tg.tensor([-1.0, 2.0])).detach()
        tensor([-0.2500,  2.0000])
    """

    _arguments, _shown = ("weight",), ("num_parameters",)
    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(functions.empty((num_parameters,), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to ``init``."""
        fill.constant_(self.weight, self.init)


class Hardtanh(FunctionModule, function="hardtanh"):
    """``clamp(input, min_val, max_val)``. Raises AssertionError unless ``max_val`` is greater than ``min_val``.

    With ``inplace``, the result is written to the input. ``min_value`` and ``max_value`` are deprecated names of the
    bounds.

    Examples:
        >>> tg.nn.Hardtanh()(tg.tensor([-2.0, 0.5]))
        tensor([-1.0000,  0.5000])
    """

    _arguments = ("min_val", "max_val", "inplace")
    _shown: ClassVar[tuple[str, ...]] = _arguments

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


def _renamed(old: str, given: float | None, new: str, value: float) -> float:
    """Return the value of an option that may be given by its old name."""
    if given is None:
        return value
    warnings.warn(f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning, stacklevel=3)
    return given


class ReLU6(Hardtanh):
    """``clamp(input, 0, 6)``.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.ReLU6()(tg.tensor([-1.0, 8.0]))
        tensor([0., 6.])
    """

    _shown = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(FunctionModule, function="threshold"):
    """The input where it is above ``threshold``, else ``value``.

    With ``inplace``, the result is written to the input.

    Examples:
        >>> tg.nn.Threshold(0.0, 9.0)(tg.tensor([-1.0, 2.0]))
        tensor([9., 2.])
    """

    _arguments = _shown = ("threshold", "value", "inplace")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace


class Softplus(FunctionModule, function="softplus"):
    """A smooth ReLU: ``log(1 + exp(beta * input)) / beta``; the input where ``beta * input`` exceeds ``threshold``.

    Examples:
        >>> tg.nn.Softplus()(tg.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """

    _arguments = _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold


class _Shrink(FunctionModule):
    _arguments = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink, function="hardshrink"):
    """The input where its magnitude exceeds ``lambd``, else 0.

    Examples:
        >>> tg.nn.Hardshrink()(tg.tensor([-1.0, 0.25]))
        tensor([-1.,  0.])
    """


class Softshrink(_Shrink, function="softshrink"):
    """``sign(input) * max(|input| - lambd, 0)``.

    Examples:
        >>> tg.nn.Softshrink()(tg.tensor([-1.0, 0.25]))
        tensor([-0.5000,  0.0000])
    """


class _AlongDim(FunctionModule):
    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Any:
        """Apply the function along ``dim``. If it is None, use torch's deprecated implicit choice, with its warning."""
        if self.dim is not None:
            return self._call(input, self.dim)
        warnings.warn(
            f"Implicit dimension choice for {self._function} has been deprecated. Change the call to include dim=X as "
            "an argument.",
            stacklevel=3,
        )
        return self._call(input, 0 if input.dim() in (0, 1, 3) else 1)


class Softmax(_AlongDim, function="softmax"):
    """``exp(input) / sum(exp(input))``, summed along ``dim``.

    Examples:
        >>> tg.nn.Softmax(dim=0)(tg.tensor([0.0, 1.0]))
        tensor([0.2689, 0.7311])
    """


class LogSoftmax(_AlongDim, function="log_softmax"):
    """The logarithm of the softmax along ``dim``: ``input - logsumexp(input)``.

    Examples:
        >>> tg.nn.LogSoftmax(dim=0)(tg.tensor([0.0, 1.0]))
        tensor([-1.3133, -0.3133])
    """


class Softmin(_AlongDim, function="softmin"):
    """``softmax(-input)`` along ``dim``.

    Examples:
        >>> tg.nn.Softmin(dim=0)(tg.tensor([0.0, 1.0]))
        tensor([0.7311, 0.2689])
    """


class Softmax2d(Module):
    """The softmax over the channels of images (N, C, H, W) or (C, H, W).

    Examples:
        >>> tg.nn.Softmax2d()(tg.zeros(2, 1, 1)).flatten()
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax along dim -3. Raises ValueError for other inputs."""
        if input.dim() not in (3, 4):
            raise InvalidValue(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class GLU(FunctionModule, function="glu"):
    """The first half along ``dim`` times the logistic function of the second half; the size of ``dim`` must be even.

    Dauphin et al. 2016.

    Examples:
        >>> tg.nn.GLU()(tg.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    _arguments = _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim
