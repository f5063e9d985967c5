"""Optimizers with a learning rate per element, and Muon for matrices, declared as in algorithms.py.

Each is the published algorithm in the form that matches PyTorch's numbers: papers and libraries differ in the position
of ``eps`` and in which bias is corrected.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes

from ..dtypes import DType, bfloat16
from ..errors import InvalidArgument, InvalidValue
from .algorithms import Betas, Moved, Pair, blend, blend_square, factor, namespace, number, optimizer


@optimizer("adam_amsgrad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "t", decoupled=None)
def adam_amsgrad(
    p: Any, g: Any, *states: Any, lr: float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8
) -> Moved:
    """AMSGrad, Reddi et al. 2018, algorithm 2: Adam, or AdamW if decoupled, with the largest second moment so far."""
    m, v, largest, t = states
    beta1, beta2 = betas
    t += 1
    count = number(t)
    m = blend(m, g, 1 - beta1)
    v = blend_square(v, g, beta2)
    largest = largest.clip(v)
    denominator = largest**0.5
    denominator /= factor((1 - beta2**count) ** 0.5, denominator)
    denominator += factor(eps, denominator)
    p -= (lr / (1 - beta1**count)) * m / denominator
    return p, m, v, largest, t


@optimizer("rmsprop", "square_avg", "t", momentum_buffer="momentum", grad_avg="centered")
def rmsprop(
    p: Any,
    g: Any,
    *states: Any,
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    momentum: float = 0.0,
    centered: bool = False,
) -> Moved:
    """RMSprop: Tieleman and Hinton 2012; the centered form is Graves 2013, equations 38 to 45."""
    square_avg, t, *optional = states
    t += 1
    square_avg = blend_square(square_avg, g, alpha)
    variance = square_avg
    if centered:
        optional[-1] = blend(optional[-1], g, 1 - alpha)
        variance = square_avg - optional[-1] * optional[-1]
    change = g / (variance**0.5 + eps)
    if momentum:
        optional[0] *= momentum
        optional[0] += change
        change = optional[0]
    p -= lr * change
    return p, square_avg, t, *optional


@optimizer("adagrad", "sum", "t")
def adagrad(
    p: Any, g: Any, total: Any, t: Any, *, lr: float = 1e-2, lr_decay: float = 0.0, eps: float = 1e-10
) -> Moved:
    """Adagrad: Duchi, Hazan and Singer 2011, figure 1, the diagonal form."""
    t += 1
    total += g * g
    p -= (lr / (1 + (number(t) - 1) * lr_decay)) * g / (total**0.5 + eps)
    return p, total, t


@optimizer("adadelta", "square_avg", "acc_delta", "t")
def adadelta(
    p: Any, g: Any, square_avg: Any, acc_delta: Any, t: Any, *, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6
) -> Moved:
    """Adadelta: Zeiler 2012, algorithm 1."""
    t += 1
    square_avg = blend_square(square_avg, g, rho)
    change = ((acc_delta + eps) / (square_avg + eps)) ** 0.5 * g
    acc_delta = blend_square(acc_delta, change, rho)
    p -= lr * change
    return p, square_avg, acc_delta, t


@optimizer("adamax", "exp_avg", "exp_inf", "t")
def adamax(
    p: Any, g: Any, m: Any, largest: Any, t: Any, *, lr: float = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8
) -> Moved:
    """Adamax: Kingma and Ba 2015, algorithm 2."""
    beta1, beta2 = betas
    t += 1
    m = blend(m, g, 1 - beta1)
    largest = (largest * beta2).clip(abs(g) + eps)
    p -= (lr / (1 - beta1 ** number(t))) * m / largest
    return p, m, largest, t


@optimizer("nadam", "exp_avg", "exp_avg_sq", "mu_product", "t", decoupled=None)
def nadam(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    mu_product: Any,
    t: Any,
    *,
    lr: float = 2e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    momentum_decay: float = 4e-3,
) -> Moved:
    """NAdam: Dozat 2016, section 3.2, with the momentum schedule; ``mu_product`` is 1 before the first step."""
    beta1, beta2 = betas
    t += 1
    count = number(t)
    now, following = [beta1 * (1 - 0.5 * 0.96 ** (n * momentum_decay)) for n in (count, count + 1)]
    mu_product *= factor(now, mu_product)
    product = number(mu_product)
    m = blend(m, g, 1 - beta1)
    v = blend_square(v, g, beta2)
    denominator = (v / (1 - beta2**count)) ** 0.5 + eps
    p -= (lr * (1 - now) / (1 - product)) * g / denominator
    p -= (lr * following / (1 - product * following)) * m / denominator
    return p, m, v, mu_product, t


@optimizer("radam", "exp_avg", "exp_avg_sq", "t", decoupled=None)
def radam(
    p: Any, g: Any, m: Any, v: Any, t: Any, *, lr: float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8
) -> Moved:
    """RAdam: Liu et al. 2020, algorithm 2; adaptive once the length of the approximated average exceeds 5."""
    beta1, beta2 = betas
    t += 1
    count = number(t)
    m = blend(m, g, 1 - beta1)
    v = blend_square(v, g, beta2)
    correction = 1 - beta2**count
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * count * beta2**count / correction
    change = (lr / (1 - beta1**count)) * m

    def adaptive() -> Any:
        shrink = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return change * ((shrink * correction) ** 0.5 / (v**0.5 + eps))

    p -= namespace().select(length > 5, adaptive, lambda: change)
    return p, m, v, t


@optimizer("rprop", "prev", "step_size", "t")
def rprop(
    p: Any, g: Any, *states: Any, etas: Pair = (0.5, 1.2), step_sizes: Pair = (1e-6, 50.0), lr: float = 1e-2
) -> Moved:
    """Rprop without weight backtracking: Riedmiller and Braun 1993; ``step_size`` is ``lr`` before the first step.

    Where the gradient changes sign, the parameter does not move, and the next gradient is treated as the first one.
    """
    xp = namespace()
    prev, step_size, t = states
    t += 1
    agreement = g * prev
    turned = agreement < 0
    one = p.dtype.type(1)
    factor = xp.where(turned, one * etas[0], xp.where(agreement > 0, one * etas[1], one))
    step_size *= factor.astype(p.dtype)
    step_size = step_size.clip(*step_sizes)
    g = xp.where(turned, p.dtype.type(0), g)
    p -= step_size * xp.sign(g)
    return p, g, step_size, t


def epsilon(dtype: DType) -> float:
    """The machine epsilon of a floating dtype: the default lower bound of Adafactor's variance."""
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


def _root_mean_square(array: Any) -> Any:
    return (array * array).mean() ** 0.5


@optimizer("adafactor_vector", "variance", "t")
@optimizer("adafactor", "row_var", "col_var", "t")
def adafactor(
    p: Any,
    g: Any,
    *states: Any,
    lr: float = 1e-2,
    beta2_decay: float = -0.8,
    eps: Pair = (1.2e-7, 1e-3),
    d: float = 1.0,
    weight_decay: float = 0.0,
) -> Moved:
    """Adafactor: Shazeer and Stern 2018, algorithm 4, with relative steps, over the last two dimensions.

    The average of squares is factored into the averages of its rows and of its columns, except for a vector.
    """
    *averages, t = states
    t += 1
    count = number(t)
    weight = count**beta2_decay
    square = g * g
    scale = _root_mean_square(p).clip(eps[1]) if p.size else p
    if len(averages) == 1:
        averages = [blend(averages[0], square, weight)]
        variance = averages[0]
    else:
        averages = [blend(average, square.mean(-i, keepdims=True), weight) for i, average in enumerate(averages, 1)]
        row_var, col_var = averages
        variance = row_var * col_var / row_var.mean(-2, keepdims=True).clip(eps[0])
    if p.size:
        rate = namespace().select(count * lr * lr > 1, lambda: count**-0.5, lambda: lr)
        if weight_decay:
            p *= factor(1 - lr * weight_decay, p)
        change = g / variance.clip(eps[0] * eps[0]) ** 0.5
        length = _root_mean_square(change) / d
        change = change * (scale * rate / length.clip(1.0))
        p -= change.astype(p.dtype)
    return p, *averages, t


MAX_ITERATIONS = 100


def _rounded(array: Any) -> Any:
    """Round to bfloat16, the precision of the iterations, and return float32, in which products are summed."""
    return array.astype(bfloat16.numpy).astype("float32")


def _orthogonalized(matrix: Any, coefficients: tuple[float, float, float], iterations: int, eps: float) -> Any:
    """Approximate the nearest semi-orthogonal matrix by the Newton-Schulz iteration with a quintic polynomial.

    The form and the precision are those of Jordan et al. 2024, "Muon: An optimizer for hidden layers".
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = _rounded(matrix.T if tall else matrix)
    x = _rounded(x / _rounded(_rounded((x * x).sum() ** 0.5).clip(eps)))
    for _ in range(iterations):
        gram = _rounded(x @ x.T)
        polynomial = _rounded(b * gram + c * (gram @ gram))
        x = _rounded(a * x + polynomial @ x)
    return x.T if tall else x


@optimizer("muon", "momentum_buffer", weight_decay=0.1, decoupled=True)
def muon(
    p: Any,
    g: Any,
    buffer: Any,
    *,
    lr: float = 1e-3,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    eps: float = 1e-7,
    ns_steps: int = 5,
    match_rms_adamw: bool = False,
) -> Moved:
    """Muon: Jordan et al. 2024; ``match_rms_adamw`` scales the steps as in Liu et al. 2025, equation 4."""
    if p.ndim != 2:
        raise InvalidArgument("Param gradient must be a 2D matrix")
    if ns_steps >= MAX_ITERATIONS:
        raise InvalidValue("Number of steps must be less than 100 for computational efficiency")
    rows, columns = p.shape
    buffer += (1 - momentum) * (g - buffer)
    change = g + momentum * (buffer - g) if nesterov else buffer
    change = _orthogonalized(change, ns_coefficients, int(ns_steps), eps)
    ratio = 0.2 * max(rows, columns) ** 0.5 if match_rms_adamw else max(1.0, rows / max(columns, 1)) ** 0.5
    p -= (lr * ratio * change).astype(p.dtype)
    return p, buffer
