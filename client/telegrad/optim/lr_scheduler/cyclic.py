"""Schedulers that cycle the rate: along a cosine, or between bounds, with the momentum in the opposite direction.

Loshchilov and Hutter 2017; Smith 2017, Smith and Topin 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..optimizer import Optimizer
from .base import LRScheduler, check_optimizer, one_per_group, restore_callable, saved_callable, set_rate


class CosineAnnealingLR(LRScheduler):
    """Lower the rate along half a cosine to ``eta_min`` in ``T_max`` epochs, then raise it again.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        """The rate from the current one, so that other schedulers may change it too; avoids 0/0 at the minimum."""
        epoch, period = self.last_epoch, self.T_max
        if self._is_initial:
            return lr
        if self._step_count == 1 and epoch > 0:
            return self.eta_min + (base - self.eta_min) * (1 + math.cos(epoch * math.pi / period)) / 2
        if (epoch - 1 - period) % (2 * period) == 0:
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / period)) / 2
        now, before = [1 + math.cos(math.pi * e / period) for e in (epoch, epoch - 1)]
        return now / before * (lr - self.eta_min) + self.eta_min

    def _closed_rate(self, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Lower the rate along half a cosine in ``T_0`` epochs, then restart, with each period ``T_mult`` times as long.

    ``eta_min`` is the lowest rate; ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=10).get_last_lr()
        [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise InvalidValue(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise InvalidValue(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise InvalidValue(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult = T_0, T_0, T_mult
        self.eta_min = eta_min
        self.T_cur: Any = last_epoch
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2

    def step(self, epoch: Any = None) -> None:
        """Advance to the next epoch, or to ``epoch``, which may be fractional."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise InvalidValue(f"Expected non-negative epoch, but got {epoch}")
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with self._asking():
            self._set(self.get_lr())

    def _go_to(self, epoch: Any) -> None:
        """Set the period that contains ``epoch``: the period lengths are a geometric series."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


class _WithMomentum(LRScheduler):
    """Sets the groups' momentum, or Adam's first beta, along with the rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _take_momentum(
        self, optimizer: Optimizer, base: Any, largest: Any, last_epoch: int
    ) -> tuple[list[float], list[float]]:
        """Return the momentum's bounds for each group, and start at the largest."""
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise InvalidValue("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        lowest = one_per_group("base_momentum", optimizer, base)
        highest = one_per_group("max_momentum", optimizer, largest)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                group["max_momentum"], group["base_momentum"] = highest[i], lowest[i]
                self._set_momentum(group, highest[i])
        return lowest, highest

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(_WithMomentum):
    """Cycle between ``base_lr`` and ``max_lr``; ``mode`` or ``scale_fn`` sets the height of each cycle.

    ``scale_fn`` gets the number of the cycle, from 1, or of the iteration, depending on ``scale_mode``.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Args:
        base_lr: The lowest rate, of all groups or of each.
        max_lr: The highest rate, of all groups or of each.
        step_size_up: The number of steps up.
        step_size_down: The number of steps down; None is that up.
        mode: "triangular", "triangular2" (each cycle half as high) or "exp_range" (by ``gamma`` with each step).
        gamma: The factor for "exp_range".
        scale_mode: "cycle" or "iterations".
        cycle_momentum: Whether the momentum moves in the opposite direction.
        base_momentum: The lowest momentum.
        max_momentum: The highest momentum.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
        >>> tg.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=1.0).get_last_lr()
        [0.1]
    """

    _unsaved = ("optimizer", "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        base_lrs = one_per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        self.max_lrs = one_per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in MODES and scale_fn is None:
            raise InvalidValue("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._take_momentum(
                optimizer, base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Return the height of a cycle or an iteration."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return float(1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x)

    def _rate(self, index: int, lr: float, base: float) -> float:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            largest = self.max_momentums[index]
            momentum = largest - (largest - self.base_momentums[index]) * height * scale
            self._set_momentum(self.optimizer.param_groups[index], momentum)
        rate: float = base + (self.max_lrs[index] - base) * height * scale
        return rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state; a ``scale_fn`` that is an object is saved by its attributes, a function is not saved."""
        return super().state_dict() | {"_scale_fn_custom": saved_callable(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()``; the scheduler keeps its own ``scale_fn``."""
        held = state_dict["_scale_fn_custom"]
        super().load_state_dict(state_dict)
        if self._scale_fn_custom is not None:
            restore_callable(self._scale_fn_custom, held)


class OneCycleLR(_WithMomentum):
    """One cycle: from ``max_lr / div_factor`` up to ``max_lr``, then far down. Call ``step`` after every batch.

    ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Args:
        max_lr: The highest rate, of all groups or of each.
        total_steps: The number of steps; None is ``epochs * steps_per_epoch``.
        epochs: The number of epochs.
        steps_per_epoch: The number of steps in an epoch.
        pct_start: The part of the cycle in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: Whether the momentum moves in the opposite direction.
        base_momentum: The lowest momentum.
        max_momentum: The highest momentum.
        div_factor: The highest rate over the first one.
        final_div_factor: The first rate over the last one.
        three_phase: Whether the rate returns to the first one before it falls to the last.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
        >>> tg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10).get_last_lr()
        [0.040000000000000036]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise InvalidValue(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        # The end of each phase, and the group entries between which rate and momentum move.
        ends = [("initial_lr", "max_momentum"), ("max_lr", "base_momentum"), ("min_lr", "max_momentum")]
        steps = [float(pct_start * self.total_steps) - 1, self.total_steps - 1]
        if three_phase:
            ends.insert(2, ("initial_lr", "max_momentum"))
            steps.insert(1, float(2 * pct_start * self.total_steps) - 2)
        self._schedule_phases: list[dict[str, Any]] = [
            {"end_step": step, "start_lr": lr, "end_lr": next_lr, "start_momentum": momentum, "end_momentum": following}
            for step, (lr, momentum), (next_lr, following) in zip(steps, ends[:-1], ends[1:], strict=True)
        ]
        self._anneal_func_type = anneal_strategy
        largest = one_per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, largest, strict=True):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._take_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, lr: float, base: float) -> float:
        step, phases = self.last_epoch, self._schedule_phases
        if step > self.total_steps:
            raise InvalidValue(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        current = next((i for i, phase in enumerate(phases) if step <= phase["end_step"]), len(phases) - 1)
        phase, start = phases[current], phases[current - 1]["end_step"] if current else 0.0
        part = (step - start) / (phase["end_step"] - start)
        group = self.optimizer.param_groups[index]
        if self.cycle_momentum:
            momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], part)
            self._set_momentum(group, momentum)
        return self._between(group[phase["start_lr"]], group[phase["end_lr"]], part)

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


def _total(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    def positive(name: str, value: int) -> int:
        if not isinstance(value, int) or value <= 0:
            raise InvalidValue(f"Expected positive integer {name}, but got {value}")
        return value

    if total_steps is not None:
        return positive("total_steps", total_steps)
    if epochs is None or steps_per_epoch is None:
        raise InvalidValue("You must define either total_steps OR (epochs AND steps_per_epoch)")
    return positive("epochs", epochs) * positive("steps_per_epoch", steps_per_epoch)
