"""Batch and instance normalization, with running statistics for evaluation mode."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .module import options
from .normalization import _Affine


class _NormBase(_Affine):
    """Base class of normalization per channel; ``dims`` are the numbers of dimensions that an input may have."""

    dims: ClassVar[tuple[int, ...]]
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = {"dtype": dtype, "device": device}
        kept: dict[str, Tensor | None] = {"running_mean": None, "running_var": None, "num_batches_tracked": None}
        if track_running_stats:
            kept["running_mean"] = functions.zeros((num_features,), **kind)
            kept["running_var"] = functions.ones((num_features,), **kind)
            kept["num_batches_tracked"] = functions.zeros((), dtype="int64", device=device)
        for name, buffer in kept.items():
            self.register_buffer(name, buffer)
        self._add_parameters((num_features,), affine, affine and bias, device, dtype)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,))

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0, and reset the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running mean to 0, the running variance to 1 and the batch count to 0."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with no_grad():
                self.running_mean.zero_()
                self.running_var.fill_(1)
                self.num_batches_tracked.zero_()

    def _check(self, input: Tensor) -> None:
        if input.dim() not in self.dims:
            wanted = " or ".join(f"{n}D" for n in self.dims)
            raise InvalidValue(f"expected {wanted} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        text = f"{self.num_features}, {options(self, 'eps', 'momentum', 'affine')}"
        return f"{text}, bias={self.bias is not None}, {options(self, 'track_running_stats')}"


class _BatchNorm(_NormBase):
    """Normalizes each channel by the batch's moments in training mode, otherwise by the running ones.

    Ioffe and Szegedy 2015.

    With ``momentum`` None, the running moments are the average over all batches.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input, times its channel's weight plus bias. Raises ValueError for other dims."""
        self._check(input)
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        averages = self.momentum is None and self.training
        kept: tuple[Tensor | None, Tensor | None] = (None, None)
        if (not self.training or self.track_running_stats) and not averages:
            kept = self.running_mean, self.running_var
        output: Tensor = F.batch_norm(input, *kept, self.weight, self.bias, of_batch, self.momentum or 0.0, self.eps)
        if averages:
            self._average(input)
        return output

    def _average(self, input: Tensor) -> None:
        """Update the running moments so that all batches count equally, without fetching the batch count."""
        mean, var, count = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or var is None or count is None:
            return
        others = [dim for dim in range(input.dim()) if dim != 1]
        with no_grad():
            share = count.to(mean.dtype).reciprocal()
            mean.lerp_(input.mean(others).to(mean.dtype), share)
            var.lerp_(input.var(others).to(var.dtype), share)


class BatchNorm1d(_BatchNorm, dims=(2, 3)):
    """Batch normalization of inputs (N, C) or (N, C, L).

    The arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.BatchNorm1d(1)(tg.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.0000],
                [ 1.0000]])
    """


class BatchNorm2d(_BatchNorm, dims=(4,)):
    """Batch normalization of images (N, C, H, W).

    In training, each channel is brought to mean 0 and variance 1 over the batch, and the running statistics are
    updated; in evaluation, by the running statistics (Ioffe and Szegedy 2015). Raises ValueError for an input of
    other dimensions, or, in training, with one value per channel.

    Args:
        num_features: The number of channels.
        eps: A small number that is added to the variance.
        momentum: The weight of the current batch in the running statistics; None averages all batches.
        affine: Whether there are a learned factor and summand for each channel.
        track_running_stats: Whether running statistics are kept, for use in evaluation.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.
        bias: Whether, if ``affine``, there is a summand.

    Examples:
        >>> norm = tg.nn.BatchNorm2d(3)
        >>> norm(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4])
        >>> norm.running_mean
        tensor([0.1000, 0.1000, 0.1000])
    """


class BatchNorm3d(_BatchNorm, dims=(5,)):
    """Batch normalization of volumes (N, C, D, H, W).

    The arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.BatchNorm3d(3)(tg.ones(2, 3, 4, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4, 4])
    """


class _InstanceNorm(_NormBase):
    """Normalizes each channel of each sample (Ulyanov et al. 2016), or uses tracked statistics in evaluation mode."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input, times its channel's weight plus bias. Raises ValueError for other dims."""
        self._check(input)
        self._check_channels(input)
        if input.dim() == min(self.dims):
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)

    def _check_channels(self, input: Tensor) -> None:
        channels = input.dim() - min(self.dims)
        found = input.shape[channels]
        if found == self.num_features:
            return
        if self.affine:
            raise InvalidValue(
                f"expected input's size at dim={channels} to match num_features ({self.num_features}), but got: "
                f"{found}."
            )
        warnings.warn(
            f"input's size at dim={channels} does not match num_features. You can silence this warning by not "
            "passing in num_features, which is not used because affine=False",
            stacklevel=4,
        )

    def _normalise(self, input: Tensor) -> Tensor:
        of_sample = self.training or not self.track_running_stats
        momentum = self.momentum or 0.0
        kept = (self.running_mean, self.running_var)
        return F.instance_norm(input, *kept, self.weight, self.bias, of_sample, momentum, self.eps)


class InstanceNorm1d(_InstanceNorm, dims=(2, 3)):
    """Instance normalization of sequences (N, C, L) or (C, L).

    Each channel of each sample is brought to mean 0 and variance 1. The arguments are those of ``BatchNorm2d``; by
    default there are neither a learned factor and summand nor running statistics.

    Examples:
        >>> tg.nn.InstanceNorm1d(1)(tg.tensor([[1.0, 3.0]]))
        tensor([[-1.0000,  1.0000]])
    """


class InstanceNorm2d(_InstanceNorm, dims=(3, 4)):
    """Instance normalization of images (N, C, H, W) or (C, H, W).

    The arguments are those of ``InstanceNorm1d``: see ``BatchNorm2d``.

    Examples:
        >>> tg.nn.InstanceNorm2d(3)(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4])
    """


class InstanceNorm3d(_InstanceNorm, dims=(4, 5)):
    """Instance normalization of volumes (N, C, D, H, W) or (C, D, H, W).

    The arguments are those of ``InstanceNorm1d``: see ``BatchNorm2d``.

    Examples:
        >>> tg.nn.InstanceNorm3d(3)(tg.ones(2, 3, 4, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4, 4])
    """
