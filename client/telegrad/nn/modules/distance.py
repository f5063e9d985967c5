"""Distances of vectors as modules."""

from __future__ import annotations

from ...tensor.handle import Tensor
from .. import functional as F
from .module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between two tensors along ``dim``, with norms clamped to at least ``eps``.

    The shapes of the two broadcast; the result lacks ``dim``.

    Examples:
        >>> tg.nn.CosineSimilarity()(tg.tensor([[1.0, 0.0]]), tg.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the cosines."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The ``p``-norm of the difference plus ``eps`` along the last dimension.

    The result lacks the last dimension, or has size 1 there if ``keepdim``.

    Examples:
        >>> tg.nn.PairwiseDistance()(tg.tensor([[0.0, 0.0]]), tg.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the distances."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
