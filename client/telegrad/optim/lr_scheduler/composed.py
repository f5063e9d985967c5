"""Schedulers made of other schedulers: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidArgument, InvalidValue

from ..optimizer import Optimizer
from .base import LRScheduler, rates_of, set_rate
from .factors import ReduceLROnPlateau


class _Composed(LRScheduler):
    """Checks and saves the schedulers that it combines."""

    _unsaved = ("optimizer", "_schedulers")
    _schedulers: Sequence[LRScheduler]

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None, purpose: str) -> None:
        name = type(self).__name__
        if len(schedulers) < 1:
            raise InvalidValue(f"{name} expects at least one scheduler{purpose}, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise InvalidArgument(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise InvalidValue(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
                )
            if optimizer != scheduler.optimizer:
                raise InvalidValue(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different from "
                    f"{type(optimizer).__name__}."
                )
        self._schedulers, self.optimizer = schedulers, optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return the state, including that of each scheduler."""
        return super().state_dict() | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()`` of this library or of torch."""
        super().load_state_dict(state_dict)
        for scheduler, held in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(held)


class SequentialLR(_Composed):
    """Use one of ``schedulers`` until the first milestone, the next one until the second, and so on.

    ``milestones`` are the epochs at which the next scheduler takes over; ``last_epoch`` is as in ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> first = tg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> second = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> tg.optim.lr_scheduler.SequentialLR(optimizer, [first, second], milestones=[2]).get_last_lr()
        [0.1]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._take(schedulers, optimizer, "")
        if len(milestones) != len(schedulers) - 1:
            raise InvalidValue(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # Every scheduler has made its first step by now; only the first scheduler's counts.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Advance to the next epoch with the active scheduler."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler: LRScheduler) -> None:
    """Undo the first step of the simple schedulers that this one combines."""
    if isinstance(scheduler, _Composed):
        for part in scheduler._schedulers:
            _undo(part)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Composed):
    """Apply all schedulers at every step, each to the rates that the previous one set.

    ``optimizer`` is that of the schedulers.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> first = tg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> second = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> tg.optim.lr_scheduler.ChainedScheduler([first, second], optimizer).get_last_lr()
        [0.1]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._take(schedulers, optimizer, " to be chained")
        self._last_lr = rates_of(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Step each scheduler."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates_of(self.optimizer)
