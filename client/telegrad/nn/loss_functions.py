"""The loss functions of ``nn.functional`` that are composed of catalogue ops."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import OPS, Tensor, functions


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return ``max(d(anchor, positive) - d(anchor, negative) + margin, 0)`` for a distance ``d``.

    ``distance_function`` is the Euclidean distance by default. With ``swap``, the distance from positive to negative
    replaces the distance from anchor to negative where it is smaller. Raises ValueError unless ``margin`` is positive,
    RuntimeError for different numbers of dimensions.
    """
    if reduction not in ("mean", "sum", "none"):
        raise InvalidValue(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise InvalidValue(f"margin must be greater than 0, got {margin}")
    dims = [tensor.dim() for tensor in (anchor, positive, negative)]
    if len({*dims}) > 1:
        raise InvalidOperation(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    distance: Any = distance_function or functions.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    loss: Tensor = (margin + near - far).clamp_min(0)
    return loss if reduction == "none" else getattr(loss, reduction)()


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """torch's chunking options for ``linear_cross_entropy``, which are validated and have no effect."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise InvalidValue(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise InvalidValue(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise InvalidValue(f"batch_chunk_size must be positive int or None, got {size!r}")


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """Return the cross entropy between ``linear(input, linear_weight, linear_bias)`` and ``target``.

    input (N, in) or (in), linear_weight (C, …, in), target (N, …) of class indices or (N, C, …) of probabilities.
    Raises RuntimeError for incompatible shapes.
    """
    _check_linear(input, linear_weight, linear_bias)
    classes, *places = linear_weight.shape[:-1]
    shape = (*input.shape[:-1], classes, *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise InvalidOperation("ignore_index cannot be specified when target contains probabilities")
    indices = target.dtype.name == "int64"
    if options is not None and (
        places or reduction not in ("mean", "sum", "none") or label_smoothing != 0.0 or not indices
    ):
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            f"label_smoothing == 0, target.dtype == int64, out_features == (). Got reduction={reduction!r}, "
            f"label_smoothing={label_smoothing}, target.dtype={target.dtype}, out_features={tuple(places)}",
            stacklevel=2,
        )
    flat = None if linear_bias is None else linear_bias.reshape(-1)
    logits = OPS.linear(input, linear_weight.reshape(-1, input.shape[-1]), flat).reshape(shape)
    loss: Tensor = OPS.cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if input.dim() not in (1, 2):
        raise InvalidOperation(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if weight.dim() < 2:
        raise InvalidOperation(f"expected linear_weight with dimensionality at least 2, got {weight.dim()}")
    if input.shape[-1] != weight.shape[-1]:
        raise InvalidOperation(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise InvalidOperation(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")
    if weight.dim() > 2 and input.dim() == 1:
        raise InvalidOperation(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )
