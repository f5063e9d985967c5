"""L-BFGS, compared with torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import check, same_error

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.full]

OPTIONS: list[dict[str, Any]] = [
    {"lr": 0.1, "max_iter": 4},
    {"lr": 0.5, "max_iter": 6, "history_size": 2},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 7, "history_size": 3, "lr": 0.3},
    {"line_search_fn": "strong_wolfe", "max_eval": 4},
]


def rosenbrock(lib: Any) -> tuple[list[Any], Any]:
    """Rosenbrock's function of two parameters, and an unused parameter."""
    x = lib.tensor([-1.2], dtype=lib.float64, requires_grad=True)
    y = lib.tensor(1.0, dtype=lib.float64, requires_grad=True)
    unused = lib.tensor([[2.0, 3.0]], dtype=lib.float64, requires_grad=True)
    return [x, y, unused], lambda: ((1 - x) ** 2 + 100 * (y - x**2) ** 2).sum()


def regression(lib: Any) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(0)
    data, target = lib.tensor(rng.standard_normal((20, 3))), lib.tensor(rng.standard_normal((20, 2)))
    w, b = (
        lib.tensor(rng.standard_normal((3, 2)), requires_grad=True),
        lib.zeros(2, dtype=lib.float64, requires_grad=True),
    )
    return [w, b], lambda: (((data @ w + b).tanh() - target) ** 2).mean()


def closure_of(optimizer: Any, loss: Any) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


@pytest.mark.parametrize("problem", [rosenbrock, regression])
@pytest.mark.parametrize("options", OPTIONS)
def test_five_steps_equal_torchs(problem: Any, options: dict[str, Any]) -> None:
    results = []
    for lib in (tg, torch):
        params, loss = problem(lib)
        if problem is rosenbrock and "line_search_fn" not in options:
            options = {**options, "lr": 1e-3}
        optimizer = lib.optim.LBFGS(params, **options)
        losses = [optimizer.step(closure_of(optimizer, loss)).item() for _ in range(5)]
        state = dict(sorted(optimizer.state_dict()["state"][0].items()))
        state["t"] = float(state["t"])
        results.append(([losses, params, optimizer.state_dict()["param_groups"]], state))
    check(results[0][0], results[1][0], 1e-6)
    check(results[0][1], results[1][1], 1e-3)  # differences of nearly equal gradients


def test_it_goes_on_from_torchs_state() -> None:
    params, loss = regression(torch)
    theirs = torch.optim.LBFGS(params, max_iter=5, line_search_fn="strong_wolfe")
    theirs.step(closure_of(theirs, loss))
    own, own_loss = regression(tg)
    ours = tg.optim.LBFGS(own)
    ours.load_state_dict(theirs.state_dict())
    with tg.no_grad():
        for mine, other in zip(own, params, strict=True):
            mine.copy_(tg.tensor(other))
    theirs.step(closure_of(theirs, loss))
    ours.step(closure_of(ours, own_loss))
    check(own, params, 1e-7)


def test_mistakes_are_torchs() -> None:
    same_error(lambda lib: lib.optim.LBFGS(rosenbrock(lib)[0], lr=-1))
    same_error(lambda lib: lib.optim.LBFGS([{"params": [p]} for p in rosenbrock(lib)[0]]))
    same_error(lambda lib: lib.optim.LBFGS(rosenbrock(lib)[0]).step())

    def unknown_search(lib: Any) -> None:
        params, loss = rosenbrock(lib)
        optimizer = lib.optim.LBFGS(params, line_search_fn="golden")
        optimizer.step(closure_of(optimizer, loss))

    same_error(unknown_search)
