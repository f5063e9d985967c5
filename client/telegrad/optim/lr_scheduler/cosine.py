"""Cosine annealing with or without restarts: Loshchilov and Hutter 2017."""

from __future__ import annotations

import math
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..optimizer import Optimizer
from .base import LRScheduler


class CosineAnnealingLR(LRScheduler):
    """Lower the rate along half a cosine to ``eta_min`` in ``T_max`` epochs, then raise it again."""

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
    """Lower the rate along half a cosine in ``T_0`` epochs, then restart, with each period ``T_mult`` times as long."""

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
