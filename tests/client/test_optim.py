"""Optimizers, compared with torch's over many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import check, held, same_error

pytestmark = pytest.mark.usefixtures("session")

Options = dict[str, Any]

SGDS: list[Options] = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.1},
    {"lr": 0.1, "maximize": True, "weight_decay": 0.01},
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
    {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True},
    {"lr": 0.0, "momentum": 0.9},
]
ADAMS: list[Options] = [
    {},
    {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3},
    {"lr": 0.05, "weight_decay": 0.1},
    {"lr": 0.05, "maximize": True, "weight_decay": 0.1},
    {"lr": 0.05, "betas": (0.0, 0.0)},
    {"lr": 0.05, "weight_decay": 0.0},
]
RMSPROPS: list[Options] = [
    {},
    {"lr": 0.05, "alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1},
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.02, "centered": True, "maximize": True},
    {"lr": 0.02, "centered": True, "momentum": 0.5},
]
ADAGRADS: list[Options] = [
    {},
    {"lr": 0.5, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    {"lr": 0.1, "maximize": True, "eps": 1e-3},
]
OPTIMIZERS = [
    *[("SGD", o) for o in SGDS],
    *[("Adam", o) for o in [*ADAMS, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}]],
    *[("AdamW", o) for o in ADAMS],
    *[(name, {**o, "amsgrad": True}) for name in ("Adam", "AdamW") for o in ADAMS[1:4]],
    *[("RMSprop", o) for o in RMSPROPS],
    *[("Adagrad", o) for o in ADAGRADS],
    *[("Adadelta", o) for o in ({}, {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}, {"maximize": True, "lr": 0.1})],
    *[("Adamax", o) for o in ADAMS[:4]],
    *[
        ("NAdam", o)
        for o in [
            *ADAMS[:3:2],
            {"lr": 0.01, "maximize": True},
            {"momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
        ]
    ],
    *[("RAdam", o) for o in [*ADAMS[:4], {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}]],
]
SHAPES = [(3, 4), (4,), (), (2, 0)]
STEPS = 40


class Problem:
    """Parameters, and a loss that uses the last of them only in every third step."""

    def __init__(self, lib: Any, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.lib = lib
        self.params = [lib.tensor(rng.standard_normal(s), requires_grad=True) for s in SHAPES]
        self.never = lib.tensor(rng.standard_normal(2), requires_grad=True)
        self.sometimes = lib.tensor(rng.standard_normal(2), requires_grad=True)
        self.data = lib.tensor(rng.standard_normal((5, 3)))
        self.all = [*self.params, self.never, self.sometimes]

    def loss(self, step: int) -> Any:
        w, b, c, empty = self.params
        # Bounded, so that optimizers that maximize do not diverge and amplify rounding errors.
        loss = ((self.data @ w + b).sin() * c.sin()).mean() + empty.sum() + b.cos().mean()
        return loss + self.sometimes.sin().sum() if step % 3 == 1 else loss

    def run(self, optimizer: Any, steps: int = STEPS, first: int = 0) -> list[Any]:
        for step in range(first, first + steps):
            optimizer.zero_grad()
            self.loss(step).backward()
            optimizer.step()
        return self.all


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_many_steps_equal_torchs(session: tg.Session, name: str, options: Options) -> None:
    results = []
    for lib in (tg, torch):
        problem = Problem(lib)
        results.append((problem.run(getattr(lib.optim, name)(problem.all, **options)), problem))
    assert session.recorder.waits == 0
    check(results[0][0], results[1][0], 1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", SGDS[4]),
        ("Adam", ADAMS[2]),
        ("AdamW", ADAMS[1]),
        ("Adam", {"amsgrad": True}),
        *[("RMSprop", o) for o in RMSPROPS[3:]],
        ("Adagrad", ADAGRADS[1]),
        ("Adadelta", {}),
        ("Adamax", {}),
        ("NAdam", {}),
        ("RAdam", {}),
    ],
)
def test_the_state_moves_between_optimizers_and_libraries(name: str, options: Options) -> None:
    ours, theirs = Problem(tg), Problem(torch)
    mine, other = (
        getattr(tg.optim, name)(ours.all, **options),
        getattr(torch.optim, name)(theirs.all, **options),
    )
    ours.run(mine, 5)
    theirs.run(other, 5)
    state, expected = mine.state_dict(), other.state_dict()
    assert list(state) == list(expected)
    assert state["param_groups"] == expected["param_groups"]
    check(state["state"], expected["state"], 1e-12)

    fresh = getattr(tg.optim, name)(ours.all, lr=99.0)
    fresh.load_state_dict(state)
    ours.run(fresh, 5, first=5)
    theirs.run(other, 5, first=5)
    check(ours.all, theirs.all, 1e-12)

    from_torch = getattr(tg.optim, name)(ours.all, lr=99.0)
    from_torch.load_state_dict(other.state_dict())
    ours.run(from_torch, 5, first=10)
    theirs.run(other, 5, first=10)
    check(ours.all, theirs.all, 1e-12)

    into_torch = getattr(torch.optim, name)(theirs.all, lr=99.0)
    into_torch.load_state_dict(as_torch(from_torch.state_dict()))
    ours.run(from_torch, 5, first=15)
    theirs.run(into_torch, 5, first=15)
    check(ours.all, theirs.all, 1e-12)


def as_torch(value: Any) -> Any:
    if isinstance(value, tg.Tensor):
        return torch.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {k: as_torch(v) for k, v in value.items()}
    return [as_torch(v) for v in value] if isinstance(value, list) else value


def test_a_loaded_state_is_a_copy() -> None:
    problem = Problem(tg)
    first = tg.optim.Adam(problem.all)
    problem.run(first, 2)
    second = tg.optim.Adam(problem.all)
    second.load_state_dict(first.state_dict())
    before = first.state[problem.params[0]]["exp_avg"].tolist()
    problem.run(second, 2)
    assert first.state[problem.params[0]]["exp_avg"].tolist() == before


def test_groups_have_options_of_their_own() -> None:
    results = []
    for lib in (tg, torch):
        problem = Problem(lib)
        w, b, c, empty = problem.params
        optimizer = lib.optim.SGD([{"params": [w, c], "lr": 0.5}, {"params": b, "momentum": 0.9}], lr=0.01)
        problem.run(optimizer, 10)
        optimizer.add_param_group({"params": [problem.sometimes, empty], "weight_decay": 0.1})
        optimizer.param_groups[0]["lr"] = 0.1
        problem.run(optimizer, 10)
        results.append((problem.all, [sorted(g) for g in optimizer.param_groups], repr(optimizer)))
    check(results[0], results[1], 1e-12)


def test_a_step_and_zeroing_are_one_instruction_each(session: tg.Session) -> None:
    problem = Problem(tg)
    optimizer = tg.optim.Adam(problem.all)
    problem.run(optimizer, 2)
    session.flush()
    optimizer.zero_grad()
    problem.loss(0).backward()
    optimizer.step()
    recorded = [instruction.op for instruction in session.recorder.pending]
    assert recorded.count("optim_step") == recorded.count("zero_grad") == 1
    assert recorded[0] == "zero_grad"
    assert recorded[-1] == "optim_step"
    assert recorded[-2] == "backward"


def test_every_step_of_a_loop_is_the_same_instruction(session: tg.Session) -> None:
    x = tg.ones(3, requires_grad=True)
    optimizer = tg.optim.Adam([x])
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()
        seen.append(repr(session.recorder.pending[-1]))
        session.flush()
    assert seen[1] == seen[2] == seen[3]


def test_only_parameters_with_a_gradient_get_state(session: tg.Session) -> None:
    x, y = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True)
    optimizer = tg.optim.Adam([x, y])
    optimizer.step()
    assert session.recorder.pending[-1].op != "optim_step"
    (x * 2).sum().backward()
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [0]
    assert y.tolist() == [1.0, 1.0, 1.0]


def test_a_step_counts_as_an_in_place_change() -> None:
    def run(lib: Any) -> None:
        x = lib.ones(2, requires_grad=True)
        y = (x * x).sum()
        y.backward(retain_graph=True)
        lib.optim.SGD([x], lr=0.1).step()
        assert x._version == 1
        y.backward()

    same_error(run, "modified by an inplace operation")


def test_a_closure_computes_the_loss() -> None:
    results = []
    for lib in (tg, torch):
        x = lib.tensor([3.0, 4.0], dtype=lib.float64, requires_grad=True)
        optimizer = lib.optim.SGD([x], lr=0.1)

        def closure(lib: Any = lib, x: Any = x, optimizer: Any = optimizer) -> Any:
            assert lib.is_grad_enabled()
            optimizer.zero_grad()
            loss = (x * x).sum()
            loss.backward()
            return loss

        with lib.no_grad():
            losses = [optimizer.step(closure).item() for _ in range(3)]
        results.append((losses, x, optimizer.step()))
    check(results[0], results[1], 1e-12)


def test_zeroing_in_place_keeps_the_gradient() -> None:
    x = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([x], lr=0.1)
    (x * 3).sum().backward()
    grad = x.grad
    optimizer.zero_grad(set_to_none=False)
    assert grad is x.grad
    assert grad is not None
    assert grad.tolist() == [0.0, 0.0]
    (x * 3).sum().backward()
    assert grad.tolist() == [3.0, 3.0]
    optimizer.zero_grad()
    assert x.grad is None
    assert grad.tolist() == [3.0, 3.0]


def test_an_optimizer_that_dies_frees_its_state(session: tg.Session) -> None:
    x = tg.ones(3, requires_grad=True)
    optimizer = tg.optim.Adam([x])
    (x * x).sum().backward()
    optimizer.step()
    assert len(held(session)) == 4
    del optimizer
    assert len(held(session)) == 1
