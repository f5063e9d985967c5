"""A gradient scaler in the SDK: it computes the same as torch, without waiting to know whether a step is skipped.

Internals: an instruction that the SDK never makes names its tensors by their ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import InvalidArgument

from .parity import check

OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda lib, w: lib.optim.SGD([w], lr=0.1, momentum=0.9),
    "Adam": lambda lib, w: lib.optim.Adam([w], lr=0.1),
    "a rate that is a tensor": lambda lib, w: lib.optim.Adam([w], lr=lib.tensor(0.1)),
}
FACTORS = [1.0, 1.0, math.inf, 1.0, math.nan, 1.0, 1.0, 1.0]
"""The factor of the loss in each turn."""


def train(lib: Any, make: Callable[[Any, Any], Any], growth: float = 2.0, backoff: float = 0.5) -> list[Any]:
    """The weights after each turn, and the final states of the scaler and the optimizer."""
    w = lib.tensor([1.0, -2.0, 0.5], requires_grad=True)
    optimizer = make(lib, w)
    scaler = lib.amp.GradScaler("cpu", init_scale=64.0, growth_factor=growth, backoff_factor=backoff, growth_interval=2)
    found: list[Any] = []
    for factor in FACTORS:
        optimizer.zero_grad()
        scaler.scale((w * w).sum() * factor).backward()
        scaler.unscale_(optimizer)
        lib.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()
        found.append(w.detach().clone())
    return [*found, scaler.state_dict(), scaler.get_scale(), optimizer.state_dict()["state"]]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_skipped_as_in_torch(session: tg.Session, name: str) -> None:
    check(train(tg, OPTIMIZERS[name]), train(torch, OPTIMIZERS[name]))


def test_scales_are_rounded_once(session: tg.Session) -> None:
    assert train(tg, OPTIMIZERS["SGD"], 1.1, 0.7)[-2] == train(torch, OPTIMIZERS["SGD"], 1.1, 0.7)[-2]


def test_nobody_waits(session: tg.Session) -> None:
    w = tg.tensor([1.0, -2.0], requires_grad=True)
    optimizer, scaler = tg.optim.SGD([w], lr=0.1), tg.amp.GradScaler("cpu")
    session.flush()
    before = session.recorder.waits
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert session.recorder.waits == before
    assert scaler.get_scale() == 2.0**16


def test_hooks_are_called_for_steps_that_are_made(session: tg.Session) -> None:
    def steps(lib: Any) -> list[int]:
        w = lib.tensor([1.0], requires_grad=True)
        optimizer, scaler = lib.optim.SGD([w], lr=0.1), lib.amp.GradScaler("cpu")
        made: list[int] = []
        optimizer.register_step_post_hook(lambda *_: made.append(1))
        for factor in FACTORS:
            optimizer.zero_grad()
            scaler.scale((w * w).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        return made

    assert steps(tg) == steps(torch) == [1] * 6


def test_a_step_of_ones_own_is_made_or_not(session: tg.Session) -> None:
    def run(lib: Any) -> tuple[int, list[float]]:
        class Counting(lib.optim.SGD):
            made = 0

            def step(self, closure: Any = None) -> Any:
                self.made += 1
                return super().step(closure)

        w = lib.tensor([1.0], requires_grad=True)
        optimizer, scaler = Counting([w], lr=0.1), lib.amp.GradScaler("cpu")
        for factor in FACTORS:
            optimizer.zero_grad()
            scaler.scale((w * w).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        return optimizer.made, w.tolist()

    check(run(tg), run(torch))


@pytest.mark.parametrize("condition", [[1.0], [True, False]])
def test_a_condition_is_one_bool(session: tg.Session, condition: list[Any]) -> None:
    w, found = tg.tensor([1.0], requires_grad=True), tg.tensor(condition)
    (w * w).sum().backward()
    attrs = {"algorithm": "sgd", "settings": {"lr": 0.1}}
    session.recorder.emit("optim_step", [(w._id,), (), None, found._id], (), attrs)
    with pytest.raises(InvalidArgument, match="optim_step: the condition is a bool tensor of one element"):
        session.flush()
    assert w.tolist() == [1.0]
