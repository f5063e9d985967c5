"""Shared parts of the recurrent layers: order of steps, checks, and gradients of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cancellation import check_cancelled
from ..dtypes import FLOATING, from_numpy
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..shapes import expanded_shape
from .linalg import linear_rule


def steps_of(length: int, reverse: bool) -> Iterator[int]:
    """The places in the order of the steps, each unless the program is cancelled."""
    for place in range(length - 1, -1, -1) if reverse else range(length):
        check_cancelled()
        yield place


def by_place(steps: list[Any], reverse: bool) -> list[Any]:
    """What was made step by step, by place in the sequence."""
    return steps[::-1] if reverse else steps


def check_layer(gates: int, projected: Any, hidden: Any, weight: Any, bias: Any, whole: bool = False) -> None:
    """Refuse what does not fit together; whole numbers too unless ``whole``."""
    if len(projected.shape) != 3 or len(hidden.shape) != 2 or len(weight.shape) != 2:
        raise ShapeMismatch("a layer takes gates (T, N, G), a state (N, H) and a weight (G, H)")
    if not projected.shape[0]:
        raise InvalidOperation("Expected sequence length to be larger than 0 in RNN")
    if projected.dtype not in FLOATING and not whole:
        kind = from_numpy(projected.dtype).kernel_name
        raise DTypeMismatch(f"result type Float can't be cast to the desired output type {kind}")
    simple = bias is None or len(bias.shape) == 1
    made = linear_rule(hidden, weight, bias if simple else None).shape
    if not simple:
        expanded_shape(bias.shape, bias.dtype, made)
    for x in (hidden, bias):
        if x is not None and x.dtype != projected.dtype:
            names = [from_numpy(dtype).c_name for dtype in (projected.dtype, x.dtype)]
            raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")
    if made != tuple(projected.shape[1:]) or made[-1] != gates * weight.shape[1]:
        raise ShapeMismatch(
            f"The size of tensor a ({projected.shape[-1]}) must match the size of tensor b ({weight.shape[0]}) at "
            "non-singleton dimension 1"
        )


def states_before(F: Any, first: Any, states: Any, reverse: bool) -> Any:
    """The states (T, N, H) that the steps started from."""
    first = F.unsqueeze(first, 0)
    return F.cat((states[1:], first), 0) if reverse else F.cat((first, states[:-1]), 0)


def scores_of(F: Any, before: Any, weight: Any, bias: Any) -> Any:
    """What the states come to in the gates: (T, N, G·H)."""
    scores = F.matmul(before, F.transpose(weight, 0, 1))
    return scores if bias is None else scores + bias


def weight_grads(F: Any, needs: Any, by_scores: Any, before: Any, weight: Any, bias: Any) -> Any:
    """The gradients of weight and bias, from those of all steps' scores."""
    flat = F.reshape(by_scores, (-1, weight.shape[0]))
    by_weight = F.matmul(F.transpose(flat, 0, 1), F.reshape(before, (-1, weight.shape[1]))) if needs[0] else None
    return by_weight, F.sum(flat, (0,)) if bias is not None and needs[1] else None
