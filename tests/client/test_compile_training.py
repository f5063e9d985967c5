"""``tg.compile`` of training steps: losses, gradients, parameters and the graph are the same as in plain torch."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg

from .compiling import OPTIMIZERS, STEPS, XS, YS, calls, model_of, training, twins

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(name: str) -> None:
    compiled = twins(lambda lib, compile_: training(lib, compile_, name))
    assert calls(compiled) == STEPS - 2  # traced once without gradients and once with


def test_a_learning_rate_that_changes_is_not_traced_again() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        def warm(i: int, _: Any, optimizer: Any) -> None:
            optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

        return training(lib, compile_, "momentum", warm)

    assert calls(twins(scenario)) == STEPS - 2


def test_a_scheduler_outside_and_inside() -> None:
    def outside(lib: Any, compile_: Any) -> list[Any]:
        schedulers: list[Any] = []

        def decay(i: int, _: Any, optimizer: Any) -> None:
            if not i:
                schedulers.append(lib.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5))
            else:
                schedulers[0].step()

        return training(lib, compile_, "sgd", decay)

    assert calls(twins(outside)) >= STEPS - 5

    def inside(lib: Any, compile_: Any) -> list[Any]:
        w = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

        def step() -> Any:
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            scheduler.step()
            return w.sum()

        run = compile_(step)
        return [run() for _ in range(8)]

    compiled = twins(inside)
    assert calls(compiled) == 0
    assert "it changes" in compiled.explain()


def test_a_learning_rate_that_the_code_reads_is_seen() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        w = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (w * x).sum() * optimizer.param_groups[0]["lr"]
            loss.backward()
            optimizer.step()
            return loss

        run, seen = compile_(step), []
        for i in range(6):
            if i == 4:
                optimizer.param_groups[0]["lr"] = 0.7
            seen.append(run(lib.ones(3)))
        return seen

    twins(scenario)


def test_other_settings_are_seen() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        def nesterov(i: int, _: Any, optimizer: Any) -> None:
            optimizer.param_groups[0]["nesterov"] = i > 10

        return training(lib, compile_, "momentum", nesterov)

    twins(scenario)


def test_accumulation() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

        def accumulate(x: Any, y: Any) -> Any:
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        run, seen = compile_(accumulate), []
        for i in range(9):
            seen.append(run(lib.tensor(XS[i]), lib.tensor(YS[i])))
            if i % 3 == 2:
                seen += [p.grad.clone() for p in model.parameters()]
                optimizer.step()
                optimizer.zero_grad()
        return [*seen, *model.parameters()]

    compiled = twins(scenario)
    assert calls(compiled) >= 4


def test_gradients_that_the_step_looks_at() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().sum()
            loss.backward()
            norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss, norm

        run, seen = compile_(step), []
        for i in range(6):
            seen += run(lib.tensor(XS[i]))
            seen += [p.grad.clone() for p in model.parameters()]
        return seen

    assert calls(twins(scenario)) >= 3


def test_one_message_a_step_and_no_waiting(server: str) -> None:
    with tg.connect(server) as session:
        model = model_of(tg)
        optimizer = tg.optim.Adam(model.parameters())

        @tg.compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        x = tg.tensor(XS[0])
        for _ in range(4):
            step(x).item()
        before = session.recorder.waits
        for _ in range(10):
            step(x)
        assert session.recorder.waits == before
        session.flush()
        before = session.requests
        for _ in range(10):
            step(x).item()
        assert session.requests == before + 10
