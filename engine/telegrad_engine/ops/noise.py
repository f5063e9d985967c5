"""Activations that draw: numbers come from the session's generator."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import from_numpy, is_floating
from ..errors import InvalidOperation, NotImplementedForDType
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, Number
from ..shapes import Spec


def _slopes_rule(input: Any, lower: float, upper: float) -> Spec:
    for what, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise InvalidOperation(f"rrelu: {what} bound must be finite, got {bound:g}")
    if not is_floating(input.dtype):
        kind = from_numpy(input.dtype).kernel_name
        raise NotImplementedForDType(f"\"rrelu_with_noise_out_cpu\" not implemented for '{kind}'")
    return Spec(input.shape, input.dtype)


@op(
    _slopes_rule,
    random=True,
    internal=True,
    method=False,
    hidden=("slopes",),
    hidden_rule=lambda input, lower, upper: (Spec(input.shape, input.dtype),),
    node="RreluWithNoiseBackward0",
    scratch=2.0,
)
def leaky_drawn(xp: Any, rng: Any, input: Array, lower: Number, upper: Number) -> Any:
    """The input where positive, else times a slope drawn for each element between ``lower`` and ``upper``."""
    drawn = xp.asarray(lower + (upper - lower) * rng.random(input.shape)).astype(input.dtype)
    slopes = xp.where(input > 0, xp.one(input), drawn)
    return input * slopes, slopes


leaky_drawn.derivative(input=lambda F, grad, slopes: grad * slopes)


@composite(
    namespace="torch.nn.functional",
    takes_inplace=True,
)
def rrelu(F: Any, input: Array, lower: Number = 1 / 8, upper: Number = 1 / 3, training: Bool = False) -> Any:
    """``leaky_relu`` with a slope drawn for each element while training, and the mean slope otherwise.

    Xu et al. 2015.
    """
    for which, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise InvalidOperation(f"rrelu: {which} bound must be finite, got {bound}")
    if lower > upper:
        raise InvalidOperation("Lower bound should be less than or equal to the upper bound")
    return F.leaky_drawn(input, lower, upper) if training else F.leaky_relu(input, (lower + upper) / 2)


@composite(
    namespace="torch.nn.functional",
)
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
