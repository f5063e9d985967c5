"""Loss modules and their base classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ...tensor.handle import Tensor
from .. import functional as F
from ..composed_functions import LinearCrossEntropyOptions
from .distance import PairwiseDistance
from .function_module import FunctionModule
from .linear import Linear
from .module import Module

Flag = bool | None
"""The type of ``size_average`` and ``reduce``, torch's older arguments for ``reduction``."""


class _Loss(FunctionModule):
    """A loss whose ``reduction`` combines the elements' losses: "mean", "sum", or "none" to keep them.

    ``size_average`` and ``reduce`` are torch's older arguments for this; they take precedence if given.
    """

    _keywords: ClassVar[tuple[str, ...]] = ("reduction",)

    def __init__(self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean") -> None:
        super().__init__()
        if reduce is False:
            reduction = "none"
        elif size_average is not None or reduce is not None:
            reduction = "sum" if size_average is False else "mean"
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        return cast(Tensor, self._call(input, target))


class _WeightedLoss(_Loss):
    """A loss with weights, in the buffer ``weight``."""

    _arguments: ClassVar[tuple[str, ...]] = ("weight",)
    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss, function="mse_loss"):
    """The squared differences of two tensors of the same shape.

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.MSELoss()(tg.tensor([1.0, 2.0]), tg.tensor([2.0, 4.0]))
        tensor(2.5000)
    """


class L1Loss(_Loss, function="l1_loss"):
    """The absolute differences of two tensors of the same shape.

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.L1Loss()(tg.tensor([1.0, 2.0]), tg.tensor([2.0, 4.0]))
        tensor(1.5000)
    """


class SmoothL1Loss(_Loss, function="smooth_l1_loss"):
    """``difference ** 2 / (2 * beta)`` where ``|difference| < beta``, else ``|difference| - beta / 2``.

    ``beta`` is not negative. ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.SmoothL1Loss()(tg.tensor([1.0, 2.0]), tg.tensor([1.5, 4.0]))
        tensor(0.8125)
    """

    _keywords = ("reduction", "beta")

    def __init__(
        self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta


class HuberLoss(_Loss, function="huber_loss"):
    """Half the squared differences up to ``delta``, linear beyond (Huber 1964).

    ``delta`` is above 0. ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.HuberLoss(delta=1.0)(tg.tensor([1.0, 2.0]), tg.tensor([1.5, 4.0]))
        tensor(0.8125)
    """

    _keywords = ("reduction", "delta")

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss"):
    """The negative log likelihood of targets under normal distributions of mean ``input`` and variance ``var``.

    Variances are at least ``eps``; ``full`` adds the constant term.

    ``forward`` takes the means, the targets and the variances. ``reduction`` is "mean", "sum" or "none". Raises
    ValueError for a negative variance.

    Examples:
        >>> tg.nn.GaussianNLLLoss()(tg.tensor([1.0]), tg.tensor([3.0]), tg.tensor([4.0]))
        tensor(1.1931)
    """

    _keywords = ("full", "eps", "reduction")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        return cast(Tensor, self._call(input, target, var))


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts under Poisson distributions with the rate ``exp(input)``.

    Without ``log_input``, the rate is ``input``, to which ``eps`` is added before the logarithm. ``full`` adds
    Stirling's term.

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.PoissonNLLLoss()(tg.tensor([0.0]), tg.tensor([2.0]))
        tensor(1.)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: Flag = None,
        eps: float = 1e-8,
        reduce: Flag = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        kind = (self.log_input, self.full)
        return F.poisson_nll_loss(log_input, target, *kind, eps=self.eps, reduction=self.reduction)


class _MarginLoss(_Loss):
    _arguments = ("margin",)

    def __init__(
        self, margin: float = 0.0, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class _PairLoss(_MarginLoss):
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        return cast(Tensor, self._call(input1, input2, target))


class CosineEmbeddingLoss(_PairLoss, function="cosine_embedding_loss"):
    """``1 - cosine`` of two vectors where the target is 1, ``max(0, cosine - margin)`` where it is -1.

    The vectors are (N, D) or (D), the target (N) or (). ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.CosineEmbeddingLoss()(tg.tensor([[1.0, 0.0]]), tg.tensor([[0.0, 1.0]]), tg.tensor([1]))
        tensor(1.)
    """


class MarginRankingLoss(_PairLoss, function="margin_ranking_loss"):
    """``max(0, -target * (input1 - input2) + margin)``, with targets 1 and -1.

    All three tensors have the same shape. ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.MarginRankingLoss(margin=0.5)(tg.tensor([1.0]), tg.tensor([2.0]), tg.tensor([1.0]))
        tensor(1.5000)
    """


class HingeEmbeddingLoss(_MarginLoss, function="hinge_embedding_loss"):
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1.

    The target has the shape of the input. ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.HingeEmbeddingLoss()(tg.tensor([0.25, 0.25]), tg.tensor([1, -1]))
        tensor(0.5000)
    """

    def __init__(
        self, margin: float = 1.0, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)


class TripletMarginLoss(_Loss):
    """``max(d(anchor, positive) - d(anchor, negative) + margin, 0)`` for a distance ``d``.

    The distance is the ``p``-norm of the difference plus ``eps``. With ``swap``, ``d(positive, negative)`` replaces
    ``d(anchor, negative)`` where it is smaller. Raises ValueError unless ``margin`` is positive.

    All three tensors are (N, D) or (D). ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.TripletMarginLoss()(tg.tensor([[0.0]]), tg.tensor([[1.0]]), tg.tensor([[1.5]]))
        tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: Flag = None,
        reduce: Flag = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise InvalidValue(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        distance = (self.margin, self.p, self.eps, self.swap)
        return F.triplet_margin_loss(anchor, positive, negative, *distance, reduction=self.reduction)


class TripletMarginWithDistanceLoss(Module):
    """``TripletMarginLoss`` with any function of two tensors as the distance, by default ``PairwiseDistance``.

    ``distance_function`` is the function; ``margin``, ``swap`` and ``reduction`` are those of ``TripletMarginLoss``.

    Examples:
        >>> loss = tg.nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(1))
        >>> loss(tg.tensor([[0.0]]), tg.tensor([[1.0]]), tg.tensor([[1.5]]))
        tensor(0.5000)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if margin <= 0:
            raise InvalidValue(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap, self.reduction = margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        kind: Any = {"margin": self.margin, "swap": self.swap, "reduction": self.reduction}
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, **kind
        )


class CrossEntropyLoss(_WeightedLoss, function="cross_entropy"):
    """The cross entropy of logits (N, C, …) and class indices (N, …), or class probabilities (N, C, …).

    ``weight`` (C) scales the classes; targets equal to ``ignore_index`` do not count; ``label_smoothing`` mixes the
    target with the uniform distribution.

    ``reduction`` is "mean", "sum" or "none"; the mean is weighted by ``weight``. Raises IndexError for a class that
    there is not.

    Examples:
        >>> tg.nn.CrossEntropyLoss()(tg.tensor([[2.0, 0.0], [0.0, 1.0]]), tg.tensor([0, 1]))
        tensor(0.2201)
    """

    _keywords = ("ignore_index", "reduction", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Flag = None,
        ignore_index: int = -100,
        reduce: Flag = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing


class NLLLoss(_WeightedLoss, function="nll_loss"):
    """The negative log probability of the target class: input (N, C, …), target (N, …), ``weight`` (C).

    Targets equal to ``ignore_index`` do not count. ``reduction`` is "mean", "sum" or "none"; the mean is weighted.

    Examples:
        >>> tg.nn.NLLLoss()(tg.tensor([[-0.5, -1.0]]), tg.tensor([1]))
        tensor(1.)
    """

    _keywords = ("ignore_index", "reduction")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Flag = None,
        ignore_index: int = -100,
        reduce: Flag = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class BCELoss(_WeightedLoss, function="binary_cross_entropy"):
    """The binary cross entropy of probabilities and targets of the same shape; ``weight`` scales the elements.

    ``reduction`` is "mean", "sum" or "none". Raises RuntimeError for inputs that are not between 0 and 1.

    Examples:
        >>> tg.nn.BCELoss()(tg.tensor([0.5, 0.9]), tg.tensor([1.0, 1.0]))
        tensor(0.3993)
    """


class BCEWithLogitsLoss(_WeightedLoss, function="binary_cross_entropy_with_logits"):
    """The binary cross entropy of logits and targets; ``pos_weight`` scales the loss of positive targets.

    ``weight`` scales the elements; ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.BCEWithLogitsLoss()(tg.tensor([0.0, 2.0]), tg.tensor([1.0, 1.0]))
        tensor(0.4100)
    """

    _keywords = ("reduction", "pos_weight")

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Flag = None,
        reduce: Flag = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)


class KLDivLoss(_Loss, function="kl_div"):
    """``target * (log(target) - input)`` for log probabilities ``input``; ``reduction`` may also be "batchmean".

    With ``log_target``, the targets are log probabilities too.

    "mean" is that of all elements, "batchmean" the sum over the size of the batch, which is the divergence.

    Examples:
        >>> tg.nn.KLDivLoss(reduction="batchmean")(tg.tensor([[0.5, 0.5]]).log(), tg.tensor([[0.25, 0.75]]))
        tensor(0.1308)
    """

    _keywords = ("reduction", "log_target")

    def __init__(
        self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean", log_target: bool = False
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target


class CTCLoss(_Loss):
    """The negative log likelihood of all alignments of a target to log probabilities (T, N, C) (Graves et al. 2006).

    ``blank`` is the class for no label; ``zero_infinity`` sets the infinite loss of targets that are too long to 0.

    ``forward`` also takes the targets (N, S), and the lengths of inputs and targets. ``reduction`` "mean" divides
    each loss by the length of its target.

    Examples:
        >>> tg.nn.CTCLoss()(tg.zeros(4, 1, 3).log_softmax(2), tg.tensor([[1, 2]]), (4,), (2,))
        tensor(0.8432)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """Return the loss."""
        lengths = (input_lengths, target_lengths)
        return F.ctc_loss(log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity)


class MultiMarginLoss(_WeightedLoss, function="multi_margin_loss"):
    """``sum(max(0, margin - x[target] + x[i]) ** p) / C`` over the other classes ``i`` of scores ``x`` (N, C).

    ``p`` is 1 or 2, ``weight`` (C) scales the classes, and ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.MultiMarginLoss()(tg.tensor([[1.0, 0.5]]), tg.tensor([0]))
        tensor(0.2500)
    """

    _arguments = ("p", "margin", "weight")

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: Flag = None,
        reduce: Flag = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise InvalidValue("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise InvalidValue(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D instead")
        self.p, self.margin = p, margin


class MultiLabelMarginLoss(_Loss, function="multilabel_margin_loss"):
    """The hinge loss of other classes' scores (N, C) against those of the classes that ``target`` lists before a -1.

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.MultiLabelMarginLoss()(tg.tensor([[1.0, 0.5]]), tg.tensor([[0, -1]]))
        tensor(0.2500)
    """


class SoftMarginLoss(_Loss, function="soft_margin_loss"):
    """``log(1 + exp(-target * input))``, with targets 1 and -1.

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.SoftMarginLoss()(tg.tensor([0.0]), tg.tensor([1.0]))
        tensor(0.6931)
    """


class MultiLabelSoftMarginLoss(_WeightedLoss, function="multilabel_soft_margin_loss"):
    """The binary cross entropy of logits (N, C) and targets, its mean over the classes weighted by ``weight`` (C).

    ``reduction`` is "mean", "sum" or "none".

    Examples:
        >>> tg.nn.MultiLabelSoftMarginLoss()(tg.tensor([[0.0, 0.0]]), tg.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """


class NLLLoss2d(NLLLoss):
    """Old name of ``NLLLoss``.

    Examples:
        >>> tg.nn.NLLLoss2d()(tg.zeros(1, 3, 2, 2), tg.zeros(1, 2, 2, dtype=tg.int64))
        tensor(-0.)
    """


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear layer's output: input (N, in_features), target (N, *out_features).

    ``options`` are torch's chunking options, which have no effect. Raises RuntimeError if ``weight`` has the wrong
    shape or ``label_smoothing`` is out of range.

    Args:
        in_features: The number of features of the input.
        num_classes: The number of classes.
        out_features: The sizes of a target besides the batch.
        bias: Whether there is a bias that is added.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.
        reduction: "mean" or "sum" of all losses, or "none" for each by itself.
        weight: A weight for each class; None weighs all equally.
        ignore_index: A class whose targets do not count.
        label_smoothing: The part of the target, from 0 to 1, that is spread evenly over all classes.
        options: LinearCrossEntropyOptions, which have no effect.

    Examples:
        >>> tg.nn.LinearCrossEntropyLoss(4, 3)(tg.ones(2, 4), tg.tensor([0, 2])).shape
        telegrad.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise InvalidOperation(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise InvalidOperation(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        width = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, width, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss."""
        shape = (self.num_classes, *self.out_features)
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )
