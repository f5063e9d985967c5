"""Schedulers that multiply the rate: by a function, at milestones, along a ramp, or when a metric stops improving."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue

from ..optimizer import Optimizer
from .base import EPOCH_GIVEN, LRScheduler, check_optimizer, rates_of, restore_callable, saved_callable, set_rate

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """Set the rate to the initial rate times ``lr_lambda(epoch)``; ``lr_lambda`` is one function or one per group.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 2)).get_last_lr()
        [0.5]
    """

    _unsaved = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)) and len(lr_lambda) != count:
            raise InvalidValue(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}")
        self.lr_lambdas: list[Factor] = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        return base * self.lr_lambdas[index](self.last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state; callable objects are saved by their attributes, functions are not saved."""
        return super().state_dict() | {"lr_lambdas": [saved_callable(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()``; the scheduler keeps its own functions."""
        super().load_state_dict(state_dict)
        for function, held in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            restore_callable(function, held)


class MultiplicativeLR(LambdaLR):
    """Multiply the current rate by ``lr_lambda(epoch)``.

    ``lr_lambda`` is one function or one for each group; ``optimizer`` and ``last_epoch`` are those of
    ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        for function in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(function):
                raise InvalidArgument(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        return lr if self._is_initial else lr * self.lr_lambdas[index](self.last_epoch)


class StepLR(LRScheduler):
    """Multiply the rate by ``gamma`` every ``step_size`` epochs.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        due = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if due else lr

    def _closed_rate(self, base: float) -> float:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Multiply the rate by ``gamma`` at each milestone, and twice at a milestone that is given twice.

    ``milestones`` are epochs; ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[30, 80]).get_last_lr()
        [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        times = self.milestones.get(self.last_epoch)
        return lr if times is None else lr * self.gamma**times

    def _closed_rate(self, base: float) -> float:
        return base * self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(LRScheduler):
    """Multiply the rate by ``factor`` until epoch ``total_iters``.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2).get_last_lr()
        [0.1]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise InvalidValue("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1.0 / self.factor) if self.last_epoch == self.total_iters else lr

    def _closed_rate(self, base: float) -> float:
        return base * (self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor))


class LinearLR(LRScheduler):
    """Multiply the rate by a factor from ``start_factor`` to ``end_factor``, linear over ``total_iters`` epochs.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25).get_last_lr()
        [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise InvalidValue("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise InvalidValue("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        rise = self.end_factor - self.start_factor
        return lr * (1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _closed_rate(self, base: float) -> float:
        rise = self.end_factor - self.start_factor
        return base * (self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters)


class ExponentialLR(LRScheduler):
    """Multiply the rate by ``gamma`` every epoch.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        return lr if self._is_initial else lr * self.gamma

    def _closed_rate(self, base: float) -> float:
        return base * self.gamma**self.last_epoch


class PolynomialLR(LRScheduler):
    """Lower the rate to zero in ``total_iters`` epochs, as a power ``power`` of the remaining share of epochs.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.75]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        left, before = [1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1)]
        rate: float = lr * (left / before) ** self.power
        return rate

    def _closed_rate(self, base: float) -> float:
        rate: float = base * (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power
        return rate


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rate by ``factor`` when the metric has not improved for more than ``patience`` steps.

    An improvement is a value lower (``mode`` "min") or higher ("max") than the best so far by more than ``threshold``,
    relative to the best (``threshold_mode`` "rel") or absolute ("abs"). After a reduction, bad steps do not count for
    ``cooldown`` steps. Rates never go below ``min_lr``.

    ``step`` takes the metric. ``min_lr`` is the least rate, of all groups or of each, and ``eps`` the least change.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        >>> for loss in (1.0, 2.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise InvalidValue("Factor should be < 1.0.")
        self.factor = factor
        self.optimizer = check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != count:
                raise InvalidValue(f"expected {count} min_lrs, got {len(min_lr)}")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * count
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        if mode not in ("min", "max"):
            raise InvalidValue(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise InvalidValue(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
        """Update the rate for a metric, a number or a tensor with one element, whose value is fetched."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_GIVEN, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        sign, best = -1.0 if self.mode == "min" else 1.0, self.best
        bar = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        if current < bar if self.mode == "min" else current > bar:
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates_of(self.optimizer)

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise InvalidOperation(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new param group "
                    "being added to the optimizer. Please modify the `min_lrs` field to match the length of the "
                    "`optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            reduced = max(group["lr"] * self.factor, lowest)
            if group["lr"] - reduced > self.eps:
                set_rate(group, reduced)

    @property
    def in_cooldown(self) -> bool:
        """Whether bad steps do not count because of a recent reduction."""
        return self.cooldown_counter > 0

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()`` of this library or of torch."""
        super().load_state_dict(state_dict)
        self.mode_worse = math.inf if self.mode == "min" else -math.inf
