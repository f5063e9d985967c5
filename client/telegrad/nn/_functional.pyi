"""The functions of torch.nn.functional that the catalogue has. Written by ``make stubs``; do not edit."""

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from ..tensor import Tensor


class MaxResult(NamedTuple):
    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    values: Tensor
    indices: Tensor


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = 'mean', label_smoothing: float = 0.0) -> Tensor: ...
def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor: ...
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = 'mean') -> Tensor: ...
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = 'mean') -> Tensor: ...
