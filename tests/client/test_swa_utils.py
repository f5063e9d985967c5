"""Averages of weights, tensors as rates, and hooks of optimizers, compared with torch's."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .parity import bodies, same, same_error

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.full]


def model(lib: Any) -> Any:
    made = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2)).double()
    rng = np.random.default_rng(0)
    state = made.state_dict()
    made.load_state_dict(
        {k: lib.tensor(rng.standard_normal(tuple(v.shape))) if v.is_floating_point() else v for k, v in state.items()}
    )
    return made


def data(lib: Any, seed: int = 0) -> Any:
    return lib.tensor(np.random.default_rng(seed).standard_normal((5, 3)))


def trained(lib: Any, averaged: Any, net: Any, steps: int = 3) -> Any:
    optimizer = lib.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        net(data(lib, step)).square().mean().backward()
        optimizer.step()
        averaged.update_parameters(net)
    return dict(averaged.state_dict())


def averages(options: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
    def run(lib: Any) -> Any:
        net = model(lib)
        return trained(lib, lib.optim.swa_utils.AveragedModel(net, **options(lib)), net)

    return run


@pytest.mark.parametrize(
    "options",
    [
        lambda lib: {},
        lambda lib: {"use_buffers": True},
        lambda lib: {"avg_fn": lib.optim.swa_utils.get_ema_avg_fn(0.9)},
        lambda lib: {"multi_avg_fn": lib.optim.swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
        lambda lib: {"multi_avg_fn": lib.optim.swa_utils.get_swa_multi_avg_fn()},
        lambda lib: {"avg_fn": lambda old, new, count: (old * count + new) / (count + 1)},
    ],
)
def test_averages_are_torchs(options: Callable[[Any], dict[str, Any]]) -> None:
    same(averages(options), 1e-7)  # torch computes the reciprocal of the count in float32


def test_averaging_waits_for_nothing(session: tg.Session) -> None:
    net = model(tg)
    averaged = tg.optim.swa_utils.AveragedModel(net)
    session.flush()
    before = session.recorder.waits
    trained(tg, averaged, net)
    assert session.recorder.waits == before


class Same:
    """Functions whose results must be the same in both libraries."""

    def a_copy_and_a_loaded_average_go_on(lib: Any) -> Any:
        net = model(lib)
        averaged = lib.optim.swa_utils.AveragedModel(net)
        trained(lib, averaged, net)
        fresh = lib.optim.swa_utils.AveragedModel(net)
        fresh.load_state_dict(averaged.state_dict())
        copied = copy.deepcopy(averaged)
        return trained(lib, fresh, net), trained(lib, copied, net)

    def batch_norms_are_updated(lib: Any) -> Any:
        net = model(lib).eval()
        lib.optim.swa_utils.update_bn([data(lib, 1), (data(lib, 2), 0)], net)
        return dict(net.state_dict()), net.training, net[1].momentum

    def hooks_are_called_around_steps_and_state_dicts(lib: Any) -> Any:
        calls: list[Any] = []
        w = lib.ones(2, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)
        handles = [
            optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(("pre", o is args[0], kwargs))),
            optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(("post", len(args)))),
            optimizer.register_state_dict_pre_hook(lambda o: calls.append("before state")),
            optimizer.register_state_dict_pre_hook(lambda o: calls.append("first"), prepend=True),
            optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1}),
            optimizer.register_load_state_dict_pre_hook(lambda o, d: {k: v for k, v in d.items() if k != "more"}),
            optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded")),
        ]
        optimizers = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        general = optimizers.register_optimizer_step_pre_hook(lambda o, a, k: calls.append("any"))
        w.sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        for handle in [*handles, general]:
            handle.remove()
        optimizer.step()
        return calls, sorted(state)

    def parameters_may_have_names(lib: Any) -> Any:
        net = lib.nn.Linear(2, 1)
        optimizer = lib.optim.SGD(net.named_parameters(), lr=0.1)
        net(lib.ones(1, 2)).sum().backward()
        optimizer.step()
        return optimizer.param_groups[0]["param_names"], optimizer.state_dict()["param_groups"]


@pytest.mark.every
@pytest.mark.parametrize("function", bodies(Same))
def test_it_is_torchs(function: Callable[[Any], Any]) -> None:
    same(function, 1e-9)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 3])
@pytest.mark.parametrize("by_tensor", [False, True])
def test_rates_are_annealed(strategy: str, epochs: int, by_tensor: bool) -> None:
    def run(lib: Any) -> Any:
        rate = lib.tensor(0.5, dtype=lib.float64) if by_tensor else 0.5
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=rate)
        scheduler = lib.optim.swa_utils.SWALR(optimizer, 0.05, epochs, strategy)
        rates = []
        for _ in range(5):
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
        assert (optimizer.param_groups[0]["lr"] is rate) or not by_tensor
        return rates, sorted(scheduler.state_dict())

    same(run, 1e-6)


class Mistakes:
    def both(lib: Any) -> Any:
        return lib.optim.swa_utils.AveragedModel(lib.nn.Linear(1, 1), None, print, print)

    def decay(lib: Any) -> Any:
        return lib.optim.swa_utils.get_ema_avg_fn(1.5)

    def strategy(lib: Any) -> Any:
        return lib.optim.swa_utils.SWALR(lib.optim.SGD([lib.zeros(1)], lr=1.0), 0.1, anneal_strategy="square")

    def epochs(lib: Any) -> Any:
        return lib.optim.swa_utils.SWALR(lib.optim.SGD([lib.zeros(1)], lr=1.0), 0.1, -1)

    def rates(lib: Any) -> Any:
        return lib.optim.swa_utils.SWALR(lib.optim.SGD([lib.zeros(1)], lr=1.0), [0.1, 0.2])

    def hook(lib: Any) -> Any:
        optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=1.0)
        optimizer.register_step_pre_hook(lambda *_: 3)
        return optimizer.step()


@pytest.mark.parametrize("function", bodies(Mistakes))
def test_mistakes_are_torchs(function: Callable[[Any], Any]) -> None:
    if function.__name__ == "hook":
        with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\), but got 3"):
            function(tg)
    else:
        same_error(function)


def test_a_rate_that_is_a_tensor_may_change(session: tg.Session) -> None:
    def run(lib: Any) -> Any:
        w = lib.tensor([1.0, -2.0], dtype=lib.float64, requires_grad=True)
        rate = lib.tensor(0.1)
        optimizer = lib.optim.Adam([w], lr=rate)
        schedule = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        seen = []
        for _ in range(4):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            schedule.step()
            seen.append(w.detach().clone())
        loaded = lib.optim.Adam([w], lr=1.0)
        loaded.load_state_dict(optimizer.state_dict())
        assert loaded.param_groups[0]["lr"] is not rate
        return seen, rate, loaded.param_groups[0]["lr"], schedule.base_lrs

    same(run, 1e-6)


def test_a_step_of_a_subclass_is_hooked_once() -> None:
    class Mine(tg.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    calls: list[str] = []
    optimizer = Mine([tg.ones(1, requires_grad=True)], lr=0.1)
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.step()
    assert calls == ["post"]
