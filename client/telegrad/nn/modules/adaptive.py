"""Adaptive softmax: an efficient output layer for many classes (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from telegrad_engine.errors import InvalidOperation, InvalidValue
from telegrad_engine.shapes import torch_size

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class _ASMoutput(NamedTuple):
    """The log probability of each target, and the mean negative log probability."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over classes sorted by decreasing frequency and divided into clusters that end at ``cutoffs``.

    Cluster i, where the head is cluster 0, has ``in_features / div_value**i`` features. Raises ValueError unless the
    cutoffs are increasing integers between 1 and ``n_classes - 1``.

    ``forward`` takes an input (N, in_features) and classes (N), and returns the log-probability of each class and the
    mean loss (Grave et al. 2017). ``head_bias`` adds a bias to the head; ``device`` and ``dtype`` are those of the
    parameters.

    Examples:
        >>> loss = tg.nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs=[3])
        >>> loss(tg.ones(2, 4), tg.tensor([0, 9])).output.shape
        telegrad.Size([2])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise InvalidValue("cutoffs should be a sequence of length larger than 0")
        rising = all(a < b for a, b in pairwise(cutoffs))
        if not rising or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise InvalidValue(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        kind = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kind)
        self.tail = ModuleList()
        for i, (first, end) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            projection = Linear(in_features, width, bias=False, **kind)
            self.tail.append(Sequential(projection, Linear(width, end - first, bias=False, **kind)))

    def reset_parameters(self) -> None:
        """Set the parameters to new random values."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """Return the log probabilities and loss of classes (N) for inputs (N, in_features), or both without N.

        Fetches how many targets are in each cluster. Raises RuntimeError for incompatible sizes and for targets that
        are not classes.
        """
        _check(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        output = input.new_zeros(target.shape[0])
        places, used = target, 0
        for i, (first, end) in enumerate(pairwise([0, *self.cutoffs])):
            rows = ((target >= first) & (target < end)).nonzero().flatten()
            used += rows.numel()
            if i == 0 or rows.numel() == 0:
                continue
            chances = F.log_softmax(self.tail[i - 1](input.index_select(0, rows)), 1)
            own = chances.gather(1, (target.index_select(0, rows) - first).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, own)
            places = places.index_fill(0, rows, self.shortlist_size + i - 1)
        if used != target.shape[0]:
            raise InvalidOperation(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), 1)
        output = output + head.gather(1, places.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log probabilities (N, n_classes) of all classes for inputs (N, in_features)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            chance = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), 1) + chance)
        return functions.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """Return the class (N) that the head prefers or, where it prefers a cluster, the most likely class."""
        best = self.head(input).argmax(1)
        within = self.log_prob(input)
        return functions.where(best >= self.shortlist_size, within.argmax(1), best)


def _check(input: Tensor, target: Tensor) -> None:
    if target.dim() > 1:
        raise InvalidOperation("0D or 1D target tensor expected, multi-target not supported")
    if target.dim() == 1 and input.shape[0] != target.shape[0]:
        raise InvalidOperation("Input and target should have the same size in the batch dimension.")
    if input.dim() != target.dim() + 1:
        raise InvalidOperation(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with size "
            f"{torch_size(input.shape)}"
        )
