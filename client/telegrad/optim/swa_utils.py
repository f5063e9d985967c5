"""Averages of a model's weights over a training run: stochastic weight averaging and exponential moving averages.

Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima and Better Generalization". As ``torch.optim.swa_utils``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidChoice, InvalidValue

from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from ..tensor.handle import Tensor, functions
from .lr_scheduler.base import LRScheduler, one_per_group
from .optimizer import Optimizer

Average = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise InvalidValue(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return an exponential moving average: ``decay`` of the old value plus the rest of the new one.

    Raises ValueError for a decay outside [0, 1].

    Examples:
        >>> average = tg.optim.swa_utils.get_ema_avg_fn(0.9)
        >>> average(tg.tensor(1.0), tg.tensor(2.0), 1)
        tensor(1.1000)
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """Like :func:`get_ema_avg_fn`, for lists of parameters, in place.

    ``decay`` is the weight of the old value.

    Examples:
        >>> averages = [tg.tensor(1.0)]
        >>> tg.optim.swa_utils.get_ema_multi_avg_fn(0.9)(averages, [tg.tensor(2.0)], 1)
        >>> averages
        [tensor(1.1000)]
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], _: Any) -> None:
        for averaged, current in zip(ema_param_list, current_param_list, strict=True):
            if averaged.is_floating_point():
                averaged.lerp_(current, 1 - decay)
            else:
                averaged.copy_(averaged * decay + current * (1 - decay))

    return ema_update


def get_swa_avg_fn() -> Average:
    """Return the average that weighs all models equally.

    Examples:
        >>> average = tg.optim.swa_utils.get_swa_avg_fn()
        >>> average(tg.tensor(1.0), tg.tensor(2.0), 1)
        tensor(1.5000)
    """

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        averaged: Tensor = averaged_param + (current_param - averaged_param) / (num_averaged + 1)
        return averaged

    return swa_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """Like :func:`get_swa_avg_fn`, for lists of parameters, in place.

    Examples:
        >>> averages = [tg.tensor(1.0)]
        >>> tg.optim.swa_utils.get_swa_multi_avg_fn()(averages, [tg.tensor(2.0)], tg.tensor(1))
        >>> averages
        [tensor(1.5000)]
    """
    single = get_swa_avg_fn()

    @no_grad()
    def swa_update(
        averaged_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], num_averaged: Any
    ) -> None:
        for averaged, current in zip(averaged_param_list, current_param_list, strict=True):
            averaged.copy_(single(averaged, current, num_averaged))

    return swa_update


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are averages, updated from the model by each ``update_parameters``.

    ``avg_fn`` computes the new average of a parameter from the old average, the model's parameter and the number of
    models so far; ``multi_avg_fn`` updates lists of averages in place. Without either, all models weigh the same. With
    ``use_buffers`` buffers are averaged too, otherwise copied. Raises AssertionError if both functions are given.

    ``use_buffers`` says that buffers are averaged, too; ``device`` is that of the session.

    Examples:
        >>> model = tg.nn.Linear(2, 1)
        >>> average = tg.optim.swa_utils.AveragedModel(model)
        >>> average.update_parameters(model)
        >>> average(tg.ones(3, 2)).shape
        telegrad.Size([3, 1])
    """

    n_averaged: Tensor
    _counted: tuple[Any, int, int] | None = None
    """The version counter, version and value of ``n_averaged``, known without asking the session."""

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise InvalidChoice("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", functions.zeros((), dtype="int64", device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
        self._note(0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the averaged copy."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Update the averages with the model's current parameters; the first call copies them."""
        count = self._count()
        own, new = [
            [*part.parameters(), *(part.buffers() if self.use_buffers else ())] for part in (self.module, model)
        ]
        pairs = [(ours.detach(), theirs.detach()) for ours, theirs in zip(own, new, strict=False)]
        if count == 0:
            for averaged, current in pairs:
                averaged.copy_(current)
        elif self.multi_avg_fn is not None:
            self._average_groups(self.multi_avg_fn, pairs)
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for averaged, current in pairs:
                averaged.copy_(average(averaged, current, self.n_averaged))
        if not self.use_buffers:
            for buffer, source in zip(self.module.buffers(), model.buffers(), strict=True):
                buffer.detach().copy_(source.detach())
        self.n_averaged += 1
        self._note(count + 1)

    def _average_groups(self, average: MultiAverage, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Call ``average`` once for each dtype."""
        groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for pair in pairs:
            groups.setdefault(pair[0].dtype.name, []).append(pair)
        for group in groups.values():
            average([own for own, _ in group], [new for _, new in group], self.n_averaged)

    def _count(self) -> int:
        counter = self.n_averaged._version_counter
        known = self._counted
        if known is not None and known[0] is counter and known[1] == counter[0]:
            return known[2]
        return int(self.n_averaged.item())

    def _note(self, count: int) -> None:
        counter = self.n_averaged._version_counter
        self.__dict__["_counted"] = (counter, counter[0], count)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of a model's batch norms with one pass over the data.

    A batch of ``loader`` is a tensor, or a list or tuple whose first element is one.

    ``device`` is that of the session.

    Examples:
        >>> model = tg.nn.Sequential(tg.nn.BatchNorm1d(1))
        >>> tg.optim.swa_utils.update_bn([tg.tensor([[1.0], [3.0]])], model)
        >>> model[0].running_mean
        tensor([2.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


def _linear(t: float) -> float:
    return t


def _cosine(t: float) -> float:
    return (1 - math.cos(math.pi * t)) / 2


class SWALR(LRScheduler):
    """Move each group's rate to ``swa_lr`` in ``anneal_epochs``, along half a cosine ("cos") or a line ("linear").

    ``anneal_strategy`` is "cos" or "linear"; ``optimizer`` and ``last_epoch`` are those of ``LRScheduler``.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> tg.optim.swa_utils.SWALR(optimizer, swa_lr=0.1).get_last_lr()
        [1.0]
    """

    _unsaved = ("optimizer", "anneal_func")

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, one_per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._set_strategy(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise InvalidValue(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _set_strategy(self, strategy: str) -> None:
        self._anneal_strategy = strategy
        self.anneal_func = _cosine if strategy == "cos" else _linear

    def _rate(self, index: int, lr: float, base: float) -> float:
        """Remove the current share of ``swa_lr`` from the rate, and add the new share."""
        target: float = self.optimizer.param_groups[index]["swa_lr"]
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = [
            self.anneal_func(max(0, min(1, epoch / max(1, self.anneal_epochs)))) for epoch in (step - 1, step)
        ]
        start = target if before == 1 else (lr - before * target) / (1 - before)
        return target * now + start * (1 - now)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()`` of this library or of torch."""
        super().load_state_dict(state_dict)
        self._set_strategy(self._anneal_strategy)
