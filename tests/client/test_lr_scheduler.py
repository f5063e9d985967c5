"""Learning rate schedulers: exactly torch's rates, and its warnings."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg

from .parity import bodies, same, same_error

Make = Callable[[Any, Any], Any]


class Halver:
    """A factor with state to save."""

    def __init__(self, by: float = 0.5) -> None:
        self.by = by

    def __call__(self, epoch: int) -> float:
        return self.by**epoch


def of(name: str, *args: Any, **options: Any) -> Make:
    return lambda lib, optimizer: getattr(lib.optim.lr_scheduler, name)(optimizer, *args, **options)


def sequential(lib: Any, optimizer: Any) -> Any:
    s = lib.optim.lr_scheduler
    return s.SequentialLR(
        optimizer,
        [
            s.LinearLR(optimizer, 0.1, total_iters=4),
            s.ExponentialLR(optimizer, 0.9),
            s.CosineAnnealingLR(optimizer, 7),
        ],
        [5, 12],
    )


def chained(lib: Any, optimizer: Any) -> Any:
    s = lib.optim.lr_scheduler
    return s.ChainedScheduler([s.ConstantLR(optimizer, 0.1, total_iters=3), s.ExponentialLR(optimizer, 0.9)])


def chained_in_sequence(lib: Any, optimizer: Any) -> Any:
    s = lib.optim.lr_scheduler
    chain = s.ChainedScheduler([s.ConstantLR(optimizer, 0.5, total_iters=3), s.StepLR(optimizer, 2)])
    return s.SequentialLR(optimizer, [chain, s.LinearLR(optimizer)], [40])


SCHEDULERS: dict[str, Make] = {
    "lambda": of("LambdaLR", lambda e: 0.95**e),
    "lambdas": of("LambdaLR", [lambda e: 1 / (e + 1), Halver(0.7)]),
    "multiplicative": of("MultiplicativeLR", lambda e: 0.95),
    "step": of("StepLR", 4, gamma=0.3),
    "milestones": of("MultiStepLR", [3, 8, 8, 20], gamma=0.5),
    "constant": of("ConstantLR", factor=0.25, total_iters=7),
    "linear": of("LinearLR", start_factor=0.3, end_factor=0.8, total_iters=9),
    "exponential": of("ExponentialLR", 0.93),
    "cosine": of("CosineAnnealingLR", 7, eta_min=0.001),
    "restarts": of("CosineAnnealingWarmRestarts", 4, 2, eta_min=0.01),
    "restarts of one length": of("CosineAnnealingWarmRestarts", 5),
    "one cycle": of("OneCycleLR", 0.5, total_steps=31),
    "one cycle of three phases": of(
        "OneCycleLR", [0.5, 0.2], epochs=4, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "cyclic": of("CyclicLR", 0.01, 0.1, 4, 6),
    "cyclic, halved": of("CyclicLR", [0.01, 0.02], 0.1, 3, mode="triangular2"),
    "cyclic, decaying": of("CyclicLR", 0.01, 0.1, 5, mode="exp_range", gamma=0.97, cycle_momentum=False),
    "cyclic by a function": of("CyclicLR", 0.01, 0.1, 5, scale_fn=Halver(), scale_mode="iterations"),
    "polynomial": of("PolynomialLR", 12, power=1.7),
    "sequential": sequential,
    "chained": chained,
    "chained in sequence": chained_in_sequence,
}


def optimizer_of(lib: Any, name: str = "SGD") -> Any:
    params = [{"params": [lib.ones(2, requires_grad=True)]}, {"params": [lib.ones(3, requires_grad=True)], "lr": 0.4}]
    options = {"momentum": 0.9} if name == "SGD" else {}
    return getattr(lib.optim, name)(params, lr=0.1, **options)


def settings(optimizer: Any) -> list[Any]:
    return [(g["lr"], g.get("momentum"), g.get("betas"), g.get("initial_lr")) for g in optimizer.param_groups]


@pytest.mark.parametrize("optimizer_name", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_thirty_epochs_have_torchs_rates_and_states_exactly(name: str, optimizer_name: str) -> None:
    def run(lib: Any) -> Any:
        optimizer = optimizer_of(lib, optimizer_name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "chained in sequence" makes torch warn about its own code
            scheduler, history = SCHEDULERS[name](lib, optimizer), []
            for epoch in range(31):
                if epoch:
                    optimizer.step()
                    scheduler.step()
                state = copy.deepcopy(scheduler.state_dict())
                history.append((settings(optimizer), list(scheduler.get_last_lr()), state))
        return history

    same(run, 0)


@pytest.mark.parametrize(("source", "target"), [(tg, tg), (tg, torch), (torch, tg)], ids=lambda lib: lib.__name__)
@pytest.mark.parametrize("name", [n for n in SCHEDULERS if n != "chained in sequence"])
def test_a_scheduler_goes_on_where_it_was_saved_in_either_library(name: str, source: Any, target: Any) -> None:
    first_optimizer, second_optimizer = optimizer_of(source), optimizer_of(target)
    first, second = SCHEDULERS[name](source, first_optimizer), SCHEDULERS[name](target, second_optimizer)
    for _ in range(9):
        first_optimizer.step()
        first.step()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second_optimizer.load_state_dict(copy.deepcopy(first_optimizer.state_dict()))
    for optimizer, scheduler in ((first_optimizer, first), (second_optimizer, second)):
        for _ in range(5):
            optimizer.step()
            scheduler.step()
    assert second.get_last_lr() == first.get_last_lr()
    assert second.state_dict() == first.state_dict()


@pytest.mark.parametrize("name", ["step", "milestones", "constant", "linear", "exponential", "cosine", "polynomial"])
def test_an_epoch_that_is_given_warns_and_takes_the_closed_form(name: str) -> None:
    def run(lib: Any) -> Any:
        optimizer = optimizer_of(lib)
        scheduler = SCHEDULERS[name](lib, optimizer)
        optimizer.step()
        with pytest.warns(UserWarning, match="The epoch parameter in") as seen:
            scheduler.step(6)
        assert seen[0].filename == __file__
        return scheduler.get_last_lr(), str(seen[0].message)

    same(run, 0)


@pytest.mark.parametrize("epochs", [[0.5, 3.25, 4, 11.5, 30], [2, 12.75, 3]])
def test_restarts_take_fractions_of_epochs(epochs: list[float]) -> None:
    def run(lib: Any) -> Any:
        scheduler = SCHEDULERS["restarts"](lib, optimizer_of(lib))
        return [(scheduler.step(epoch), scheduler.get_last_lr()) for epoch in epochs]

    same(run, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "max", "patience": 2},
        {"patience": 1, "cooldown": 3, "factor": 0.5, "threshold_mode": "abs", "threshold": 0.1},
        {"patience": 0, "min_lr": [0.01, 0.2]},
    ],
)
def test_a_plateau_lowers_the_rate(options: dict[str, Any]) -> None:
    def run(lib: Any) -> Any:
        optimizer = optimizer_of(lib)
        scheduler, history = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options), []
        for epoch in range(40):
            scheduler.step(lib.tensor(math.cos(epoch / 5) + 2, dtype=lib.float64))
            history.append((settings(optimizer), scheduler.get_last_lr(), scheduler.num_bad_epochs, scheduler.best))
        return history, scheduler.state_dict()

    same(run, 0)


@pytest.mark.parametrize("how", ["too early", "overridden", "get_lr"])
def test_torchs_warnings(how: str) -> None:
    def run(lib: Any) -> str:
        optimizer = optimizer_of(lib)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 3)
        if how == "overridden":
            optimizer.step = lambda: None
        with pytest.warns(UserWarning) as seen:
            scheduler.get_lr() if how == "get_lr" else scheduler.step()
        return str(seen[0].message)

    same(run)


def test_resuming_needs_the_initial_rates() -> None:
    same_error(lambda lib: lib.optim.lr_scheduler.StepLR(optimizer_of(lib), 3, last_epoch=4))

    def run(lib: Any) -> Any:
        optimizer = optimizer_of(lib)
        for group in optimizer.param_groups:
            group["initial_lr"] = 1.0
        scheduler = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9, last_epoch=4)
        optimizer.step()
        scheduler.step()
        return scheduler.get_last_lr()

    same(run, 0)


def test_a_scheduler_of_ones_own() -> None:
    class Own(tg.optim.lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

    optimizer = optimizer_of(tg)
    scheduler = Own(optimizer)
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.2]


def test_a_copy_of_a_watched_optimizer_steps_itself() -> None:
    optimizer = optimizer_of(tg)
    tg.optim.lr_scheduler.StepLR(optimizer, 3)
    assert "step" not in copy.copy(optimizer).__dict__


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("LambdaLR", ([lambda e: 1],), {}),
        ("MultiplicativeLR", (3,), {}),
        ("ConstantLR", (2.0,), {}),
        ("LinearLR", (0.0,), {}),
        ("LinearLR", (0.5, 1.5), {}),
        ("CosineAnnealingWarmRestarts", (0,), {}),
        ("CosineAnnealingWarmRestarts", (5, 0), {}),
        ("CosineAnnealingWarmRestarts", (5, 1, "a"), {}),
        ("OneCycleLR", (0.1,), {}),
        ("OneCycleLR", (0.1, 0), {}),
        ("OneCycleLR", (0.1,), {"epochs": 2, "steps_per_epoch": -1}),
        ("OneCycleLR", (0.1, 10), {"pct_start": 2.0}),
        ("OneCycleLR", (0.1, 10), {"anneal_strategy": "up"}),
        ("OneCycleLR", ([0.1], 10), {}),
        ("CyclicLR", (0.1, [0.2]), {}),
        ("CyclicLR", (0.1, 0.2), {"mode": "round"}),
        ("ReduceLROnPlateau", (), {"factor": 1.0}),
        ("ReduceLROnPlateau", (), {"mode": "mid"}),
        ("ReduceLROnPlateau", (), {"threshold_mode": "mid"}),
        ("ReduceLROnPlateau", (), {"min_lr": [0.1]}),
        ("SequentialLR", ([], []), {}),
        ("SequentialLR", ([3], []), {}),
    ],
)
def test_mistakes_are_torchs(name: str, args: Any, options: dict[str, Any]) -> None:
    same_error(lambda lib: getattr(lib.optim.lr_scheduler, name)(optimizer_of(lib), *args, **options))


class Mistakes:
    def no_optimizer(lib: Any) -> Any:
        return lib.optim.lr_scheduler.StepLR(3, 3)

    def nothing_chained(lib: Any) -> Any:
        return lib.optim.lr_scheduler.ChainedScheduler([])

    def too_far(lib: Any) -> None:
        optimizer = optimizer_of(lib)
        scheduler = lib.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2)
        for _ in range(4):
            optimizer.step()
            scheduler.step()

    def no_momentum(lib: Any) -> Any:
        return lib.optim.lr_scheduler.CyclicLR(lib.optim.Adagrad([lib.ones(2, requires_grad=True)]), 0.1, 0.2)

    def plateau_in_sequence(lib: Any) -> Any:
        optimizer = optimizer_of(lib)
        s = lib.optim.lr_scheduler
        return s.SequentialLR(optimizer, [s.ReduceLROnPlateau(optimizer)], [])


@pytest.mark.parametrize("body", bodies(Mistakes))
def test_other_mistakes_are_torchs(body: Any) -> None:
    same_error(body)
