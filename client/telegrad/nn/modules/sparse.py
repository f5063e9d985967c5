"""Embeddings: learnt rows, looked up by number."""

from __future__ import annotations

from typing import Any, Self

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidChoice

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module


class Embedding(Module):
    """A vector for each of ``num_embeddings`` numbers: input (…) of ints, weight (num, dim), result (…, dim).

    The weight starts as normal numbers, its row ``padding_idx``, which gets no gradient, as zeros. See
    ``functional.embedding`` for the options.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        size = (num_embeddings, embedding_dim)
        if _weight is not None:
            if tuple(_weight.shape) != size:
                raise InvalidChoice("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        empty = functions.empty(size, dtype=dtype, device=device)
        self.weight = Parameter(empty, requires_grad=not _freeze)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        _draw(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        """The rows."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        given = {name: getattr(self, name) for name in usual}
        return text + "".join(f", {name}={value}" for name, value in given.items() if value != usual[name])

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """An embedding whose weight is ``embeddings`` (num, dim), which is not trained further if ``freeze``."""
        if embeddings.dim() != 2:
            raise InvalidChoice("Embeddings parameter is expected to be 2-dimensional")
        count, dim = embeddings.shape
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(count, dim, *options, embeddings, freeze)


class EmbeddingBag(Module):
    """The sum, mean or maximum of the vectors that each bag of numbers names: (bags, dim).

    Bags are the rows of an input (B, n), or lie between ``offsets`` in an input (n). See ``functional.embedding_bag``
    for the options.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset
        self.padding_idx = _row(padding_idx, num_embeddings)
        size = (num_embeddings, embedding_dim)
        if _weight is not None:
            if tuple(_weight.shape) != size:
                raise InvalidChoice("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight)
            return
        self.weight = Parameter(functions.empty(size, dtype=dtype, device=device))
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """An EmbeddingBag whose weight is ``embeddings`` (num, dim), which does not require grad if ``freeze``.

        Raises AssertionError for other than 2 dimensions.
        """
        if embeddings.dim() != 2:
            raise InvalidChoice("Embeddings parameter is expected to be 2-dimensional")
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
        count, dim = embeddings.shape
        bag = cls(count, dim, *options)
        bag.weight.requires_grad = not freeze
        return bag

    def reset_parameters(self) -> None:
        """Draw new values."""
        _draw(self.weight, self.padding_idx)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """A row for each bag."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "mode": "", "padding_idx": None}
        given = {name: getattr(self, name) for name in usual}
        return text + "".join(f", {name}={value!r}" for name, value in given.items() if value != usual[name])


def _draw(weight: Parameter, padding_idx: int | None) -> None:
    """Normal numbers, and zeros in the padding's row."""
    init.normal_(weight)
    if padding_idx is not None:
        with no_grad():
            weight[padding_idx].fill_(0)


def _row(padding_idx: int | None, count: int) -> int | None:
    """The padding's row counted from the first."""
    if padding_idx is not None and not -count <= padding_idx < count:
        raise InvalidChoice("Padding_idx must be within num_embeddings")
    return padding_idx if padding_idx is None or padding_idx >= 0 else count + padding_idx
