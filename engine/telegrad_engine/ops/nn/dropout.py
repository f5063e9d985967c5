"""Dropout of elements and channels, alpha dropout, and activations with random numbers."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import bool_, is_floating
from ...errors import DTypeMismatch, InvalidOperation, InvalidValue
from ...schema.declaration import FUNCTION, INPLACE_ARGUMENT, INTERNAL, LIST, MAY_ALIAS, NN_FUNCTION, hiding, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, OptionalBool
from ...shapes import Spec
from ..guards import check_floats, kernel_name
from .activation import SELU_ALPHA, SELU_SCALE


def _check_chance(p: float) -> None:
    if math.isnan(p):
        raise InvalidOperation(f"dropout probability has to be between 0 and 1, but got {p}")
    if not 0 <= p <= 1:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")


def _drop_rule(input: Any, p: float) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kernel_name(input)}")
    return Spec(input.shape, input.dtype)


@op(
    _drop_rule,
    variants=INTERNAL,
    node="MulBackward0",
    results=hiding("mask", rule=lambda input, p: (Spec(input.shape, input.dtype),)),
    memory=scratch(4.0),
)
def drop(xp: Any, rng: Any, input: Array, p: Number) -> Any:
    """Each element zeroed with probability ``p``, the rest scaled by 1 / (1 - p)."""
    mask = xp.asarray(rng.random(input.shape, dtype="float32") >= p).astype(input.dtype) / (1 - p)
    return input * mask, mask


drop.derivative(input=lambda F, grad, mask: grad * mask)


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def dropout(F: Any, input: Array, p: Number = 0.5, training: Bool = True) -> Any:
    """Each element zeroed with probability ``p`` while training, the rest scaled by 1 / (1 - p)."""
    _check_chance(p)
    if not training or p == 0 or 0 in input.shape:
        return input
    return input * 0 if p == 1 else F.drop(input, p)


def _dropped(F: Any, input: Any, p: float, training: bool, lead: int, alpha: bool = False) -> Any:
    """Apply dropout or alpha dropout, with one draw for each index of the first ``lead`` dimensions."""
    if not training or p == 0 or 0 in input.shape:
        return input
    if p == 1:
        return input * 0
    if alpha and input.dim() < lead:
        raise InvalidOperation("Feature dropout requires at least 2 dimensions in the input")
    drawn = F.drop(F.new_ones(input, (*input.shape[:lead], *(1,) * (input.dim() - lead))), p)
    if not alpha:
        return input * drawn
    # Dropped elements become selu's lower limit; then mean and variance are restored.
    least = -SELU_ALPHA * SELU_SCALE
    scale = 1 / math.sqrt((1 - p) * (1 + p * least * least))
    kept = drawn * (1 - p)
    return (input * kept + least * (1 - kept)) * scale - scale * p * least


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def dropout1d(F: Any, input: Array, p: Number = 0.5, training: Bool = True) -> Any:
    """Whole channels of (N, C, L) or (C, L) zeroed with probability ``p``, the rest scaled by 1 / (1 - p)."""
    _check_chance(p)
    if input.dim() not in (2, 3):
        raise InvalidOperation(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional "
            "batch dimension (i.e. 2D or 3D inputs)."
        )
    return _dropped(F, input, p, training, input.dim() - 1)


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def dropout2d(F: Any, input: Array, p: Number = 0.5, training: Bool = True) -> Any:
    """Whole channels of (N, C, …) zeroed with probability ``p``, the rest scaled by 1 / (1 - p)."""
    _check_chance(p)
    return _dropped(F, input, p, training, 2)


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def dropout3d(F: Any, input: Array, p: Number = 0.5, training: Bool = True) -> Any:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) zeroed with probability ``p``, the rest scaled."""
    _check_chance(p)
    return _dropped(F, input, p, training, 2 if input.dim() == 5 else 1)


@composite(variants=FUNCTION | NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def alpha_dropout(F: Any, input: Array, p: Number = 0.5, training: Bool = False) -> Any:
    """Elements set, with probability ``p``, to what selu tends to below, and all brought back to mean 0, variance 1.

    Klambauer et al. 2017.
    """
    _check_chance(p)
    return _dropped(F, input, p, training, input.dim(), alpha=True)


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT, memory=MAY_ALIAS)
def feature_alpha_dropout(F: Any, input: Array, p: Number = 0.5, training: Bool = False) -> Any:
    """As ``alpha_dropout``, for whole channels of (N, C, …)."""
    _check_chance(p)
    return _dropped(F, input, p, training, 2, alpha=True)


@composite(variants=FUNCTION, memory=MAY_ALIAS)
def feature_dropout(F: Any, input: Array, p: Number, train: Bool) -> Any:
    """Whole channels of (N, C, …) zeroed with probability ``p``, the rest scaled by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise InvalidOperation(f"dropout probability has to be between 0 and 1, but got {p}")
    if train and p and input.numel() and input.dim() < 2:
        raise InvalidOperation("Feature dropout requires at least 2 dimensions in the input")
    return _dropped(F, input, p, train, 2)


@composite(variants=FUNCTION, results=LIST)
def native_dropout(F: Any, input: Array, p: Number, train: OptionalBool) -> Any:
    """``nn.functional.dropout``, and what it keeps."""
    if train is False:
        return F.clone(input), F.ones_like(input, dtype=bool_)
    if not input.dtype.is_floating_point:
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kernel_name(input)}")
    if not 0 <= p <= 1:
        raise InvalidOperation(f"bernoulli_ expects p to be in [0, 1], but got p={1 - p:g}")
    if not p:
        return F.clone(input), F.ones_like(input, dtype=bool_)
    if p == 1:
        return input * 0, F.zeros_like(input, dtype=bool_)
    scaled = F.drop(F.ones_like(input), p)
    return input * scaled, F.ne(scaled, 0)


# Random activations, which use the session's generator ---------------------------------------------------


def _check_bounds(lower: float, upper: float) -> None:
    for which, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise InvalidOperation(f"rrelu: {which} bound must be finite, got {bound}")


def _slopes_rule(input: Any, lower: float, upper: float) -> Spec:
    _check_bounds(lower, upper)
    check_floats("rrelu_with_noise_out_cpu", input)
    return Spec(input.shape, input.dtype)


@op(
    _slopes_rule,
    variants=INTERNAL,
    node="RreluWithNoiseBackward0",
    results=hiding("slopes", rule=lambda input: (Spec(input.shape, input.dtype),)),
    memory=scratch(2.0),
)
def leaky_drawn(xp: Any, rng: Any, input: Array, lower: Number, upper: Number) -> Any:
    """The input where positive, else times a slope drawn for each element between ``lower`` and ``upper``."""
    drawn = xp.asarray(lower + (upper - lower) * rng.random(input.shape)).astype(input.dtype)
    slopes = xp.where(input <= 0, drawn, xp.one(input))
    return input * slopes, slopes


leaky_drawn.derivative(input=lambda F, grad, slopes: grad * slopes)


@composite(variants=NN_FUNCTION | INPLACE_ARGUMENT)
def rrelu(F: Any, input: Array, lower: Number = 1 / 8, upper: Number = 1 / 3, training: Bool = False) -> Any:
    """``leaky_relu`` with a slope drawn for each element while training, and the mean slope otherwise.

    Xu et al. 2015.
    """
    _check_bounds(lower, upper)
    if lower > upper:
        raise InvalidOperation("Lower bound should be less than or equal to the upper bound")
    return F.leaky_drawn(input, lower, upper) if training else F.leaky_relu(input, (lower + upper) / 2)


@composite(variants=NN_FUNCTION)
def gumbel_softmax(
    F: Any, logits: Array, tau: Number = 1, hard: Bool = False, eps: Number = 1e-10, dim: Int = -1
) -> Any:
    """A draw from the Gumbel-Softmax distribution of these logits, at temperature ``tau``; ``eps`` is not used.

    With ``hard`` the result is one-hot and has the soft result's gradient. Jang et al. 2017.
    """
    noise = -F.log(F.exponential(F.empty_like(logits)))
    soft = F.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    most = F.argmax(soft, dim, True)
    picked = F.scatter(F.zeros_like(logits), dim, most, 1.0)
    return picked - soft.detach() + soft
