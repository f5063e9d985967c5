"""The base class of all schedulers: step counting, setting the optimizer's rate, warnings and state."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidArgument, InvalidValue

from ...tensor.handle import Tensor
from ..optimizer import Optimizer

ORDER = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
EPOCH_GIVEN = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)


class LRScheduler:
    """Set the ``lr`` of an optimizer's groups, once at the start and then in every ``step()``.

    A scheduler implements ``_rate``, which returns a group's new rate, or overrides ``get_lr`` for all groups.
    A ``last_epoch`` other than -1 resumes, and requires groups that have an ``initial_lr``.

    Examples:
        >>> class Halved(tg.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [group["lr"] / 2 for group in self.optimizer.param_groups]
        >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
        >>> Halved(optimizer).get_last_lr()
        [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _unsaved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = check_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for "
                    "a fresh training run (not recommended)"
                )
        self.base_lrs: list[float] = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    # Rates -------------------------------------------------------------------------------

    def _rate(self, index: int, lr: float, base: float) -> float:
        """The rate of a group at ``last_epoch``, from its current rate and its initial one."""
        raise NotImplementedError

    def _closed_rate(self, base: float) -> float | None:
        """The rate at ``last_epoch`` from the initial one alone, or None if there is no closed form."""
        return None

    def get_lr(self) -> list[float]:
        """Return the groups' rates at ``last_epoch``; use ``get_last_lr`` for the current ones."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        groups = zip(self.optimizer.param_groups, self.base_lrs, strict=True)
        return [self._rate(i, group["lr"], base) for i, (group, base) in enumerate(groups)]

    def get_last_lr(self) -> list[float]:
        """Return the groups' current rates.

        Examples:
            >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
            >>> tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5).get_last_lr()
            [1.0]
        """
        return self._last_lr

    # Stepping ----------------------------------------------------------------------------

    def step(self, epoch: Any = None) -> None:
        """Advance to the next epoch, or to ``epoch``, which is deprecated.

        Examples:
            >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = tg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> optimizer.step()
            >>> scheduler.step()
            >>> scheduler.get_last_lr()
            [0.5]
        """
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_GIVEN, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: Any = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = [None] if epoch is None else [self._closed_rate(base) for base in self.base_lrs]
        if None in closed:
            with self._asking():
                self._set(self.get_lr())
        else:
            self._set(closed)

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr: list[float] = rates_of(self.optimizer)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_notes_steps"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                f"Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. {ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
                "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to "
                f"do this will result in PyTorch skipping the first value of the learning rate schedule. {ORDER}",
                UserWarning,
                stacklevel=3,
            )

    # Saving ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer, under torch's names."""
        return {name: value for name, value in self.__dict__.items() if name not in self._unsaved}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a ``state_dict()`` of this library or of torch."""
        self.__dict__.update({name: value for name, value in state_dict.items() if name not in self._unsaved})


def check_optimizer(optimizer: Any) -> Optimizer:
    """Return the optimizer, or raise TypeError for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise InvalidArgument(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def rates_of(optimizer: Optimizer) -> list[float]:
    """Return copies of the groups' rates."""
    return [_copied(group["lr"]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Set a group's rate; a rate that is a tensor is filled in place."""
    known = group["lr"]
    if not isinstance(known, Tensor):
        group["lr"] = rate
        return
    with no_grad():
        if isinstance(rate, Tensor):
            known.copy_(rate.reshape(known.shape))
        else:
            known.fill_(rate)


def _copied(rate: Any) -> Any:
    """A copy of a rate that does not change with the group's."""
    return rate.detach().clone() if isinstance(rate, Tensor) else rate


def one_per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """Return a list with ``value`` for each group, or a list's own items; raise ValueError for another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise InvalidValue(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {count}."
        )
    return list(value)


def saved_callable(function: Any) -> dict[str, Any] | None:
    """Return the attributes of a callable object, or None for a function, which has none to save."""
    return None if function is None or isinstance(function, types.FunctionType) else function.__dict__.copy()


def restore_callable(function: Any, saved: Mapping[str, Any] | None) -> None:
    """Set the attributes of a callable object that :func:`saved_callable` returned."""
    for name, value in (saved or {}).items():
        setattr(function, name, value)


def _note_steps(optimizer: Optimizer) -> None:
    """Make the optimizer record that it stepped, without keeping it alive."""
    if hasattr(optimizer.step, "_notes_steps"):
        return
    owner = weakref.ref(optimizer)
    function: Callable[..., Any] = optimizer.step.__func__  # type: ignore[attr-defined]

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        known = owner()
        assert known is not None  # the optimizer is alive, since its method is being called
        known._opt_called = True
        return function(known, *args, **kwargs)

    step._notes_steps = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]
