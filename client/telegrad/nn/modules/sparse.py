"""Embeddings: learned vectors, looked up by index."""

from __future__ import annotations

from typing import Any, Self

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidChoice

from ...tensor.handle import Tensor, functions
from .. import init
from ..parameter import Parameter
from .function_module import FunctionModule
from .module import changed_options


class _Table(FunctionModule):
    """A weight (num_embeddings, embedding_dim), whose row ``padding_idx`` gets no gradient."""

    weight: Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def _set_weight(self, given: Tensor | None, requires_grad: bool, device: Any, dtype: Any) -> None:
        """Set the weight to ``given``, or to new initial values."""
        size = (self.num_embeddings, self.embedding_dim)
        if given is not None and tuple(given.shape) != size:
            raise InvalidChoice("Shape of weight does not match num_embeddings and embedding_dim")
        data = functions.empty(size, dtype=dtype, device=device) if given is None else given
        self.weight = Parameter(data, requires_grad)
        if given is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the weight with normal numbers and set the row ``padding_idx`` to zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table, function="embedding"):
    """A table of ``num_embeddings`` vectors: input (…) of indices, weight (num, dim), result (…, dim).

    The weight starts as normal numbers; its row ``padding_idx`` starts as zeros and gets no gradient. See
    ``functional.embedding`` for the options.

    Raises IndexError for an index that there is not.

    Args:
        num_embeddings: The number of vectors.
        embedding_dim: The size of a vector.
        padding_idx: A vector that starts as zeros and gets no gradient; None is no vector.
        max_norm: The largest norm of a vector that is used: larger ones are scaled down; None is no limit.
        norm_type: The order of the norm.
        scale_grad_by_freq: Whether the gradient of a vector is divided by how often it occurs in the input.
        sparse: Only False: gradients are dense.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> table = tg.nn.Embedding(10, 3)
        >>> table(tg.tensor([[1, 2, 4], [4, 3, 2]])).shape
        telegrad.Size([2, 3, 3])
    """

    _arguments = ("weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")

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
        self._set_weight(_weight, not _freeze, device, dtype)

    def extra_repr(self) -> str:
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        return f"{self.num_embeddings}, {self.embedding_dim}" + changed_options(self, **usual)

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
        """Create an Embedding with the weight ``embeddings`` (num, dim), which requires no grad if ``freeze``."""
        if embeddings.dim() != 2:
            raise InvalidChoice("Embeddings parameter is expected to be 2-dimensional")
        count, dim = embeddings.shape
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(count, dim, *options, embeddings, freeze)


class EmbeddingBag(_Table, function="embedding_bag"):
    """The sum, mean or maximum of the vectors for each bag of indices: (bags, dim).

    Bags are the rows of an input (B, n), or the parts of an input (n) that start at ``offsets``. See
    ``functional.embedding_bag`` for the options.

    Args:
        num_embeddings: The number of vectors.
        embedding_dim: The size of a vector.
        max_norm: The largest norm of a vector that is used: larger ones are scaled down; None is no limit.
        norm_type: The order of the norm.
        scale_grad_by_freq: Whether the gradient of a vector is divided by how often it occurs in the input.
        mode: "sum", "mean" or "max".
        sparse: Only False: gradients are dense.
        include_last_offset: Whether ``offsets`` has the end of the last bag, too.
        padding_idx: A vector that bags leave out; None is no vector.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> bags = tg.nn.EmbeddingBag(10, 3, mode="sum")
        >>> bags(tg.tensor([1, 2, 4, 5]), tg.tensor([0, 3])).shape
        telegrad.Size([2, 3])
    """

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
        self._set_weight(_weight, True, device, dtype)

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
        """Create an EmbeddingBag with the weight ``embeddings`` (num, dim), which requires no grad if ``freeze``.

        Raises AssertionError unless ``embeddings`` has 2 dimensions.
        """
        if embeddings.dim() != 2:
            raise InvalidChoice("Embeddings parameter is expected to be 2-dimensional")
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
        count, dim = embeddings.shape
        bag = cls(count, dim, *options)
        bag.weight.requires_grad = not freeze
        return bag

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Any:
        """Return one row per bag."""
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse)
        ends = (per_sample_weights, self.include_last_offset, self.padding_idx)
        return self._call(input, self.weight, offsets, *options, *ends)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        text += changed_options(self, max_norm=None, norm_type=2, scale_grad_by_freq=False)
        return f"{text}, mode={self.mode!r}" + changed_options(self, padding_idx=None)


def _row(padding_idx: int | None, count: int) -> int | None:
    """Return ``padding_idx`` as a nonnegative index. Raises AssertionError if it is out of range."""
    if padding_idx is not None and not -count <= padding_idx < count:
        raise InvalidChoice("Padding_idx must be within num_embeddings")
    return padding_idx if padding_idx is None or padding_idx >= 0 else count + padding_idx
