"""Optimizers, compared with torch's over many steps: every configuration and mistake of torch's own database, and more.

The database is ``torch.testing._internal.common_optimizers.optim_db``.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, OptimizerInfo, optim_db

import telegrad as tg

from .parity import check, error_of, held, same, same_error
from .torch_values import converted

pytestmark = pytest.mark.usefixtures("session")

Options = dict[str, Any]
INFOS: dict[str, OptimizerInfo] = {info.name: info for info in optim_db}
OTHER_BETAS: list[Options] = [{"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}, {"lr": 0.05, "betas": (0.0, 0.0)}]
MORE: dict[str, list[Options]] = {
    "SGD": [{"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}, {"lr": 0.0, "momentum": 0.9}],
    "Adam": [*OTHER_BETAS, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "AdamW": OTHER_BETAS,
    "RMSprop": [{"lr": 0.05, "alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1}],
    "Adagrad": [{"lr": 0.1, "maximize": True, "eps": 1e-3}],
    "Adadelta": [{"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}],
    **dict.fromkeys(["Adamax", "NAdam", "RAdam"], OTHER_BETAS[:1]),
}
"""Options that the database does not have."""
EXACT = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS"]
"""Optimizers whose numbers are torch's up to rounding in float64."""
MOMENTA = ["rho", "alpha", "momentum", "momentum_decay"]
NEVER_NEGATIVE = ["lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", *MOMENTA]
STEPS = 12


class Problem:
    """Parameters, and a loss that uses one of them never and one only in every third step."""

    def __init__(self, lib: Any, name: str = "Adam") -> None:
        rng = np.random.default_rng(0)
        shapes: list[tuple[int, ...]] = [(3, 4), (4,), (), (2, 3, 4)]
        if name == "Muon":
            shapes = [(3, 4), (4, 2), (5, 5)]
        elif name not in ("Adafactor", "LBFGS"):
            shapes.append((2, 0))
        self.params = [lib.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
        self.sometimes, self.never = (lib.tensor(rng.standard_normal((2, 2)), requires_grad=True) for _ in range(2))
        self.all = [*self.params, self.never, self.sometimes]
        self.convex = name == "LBFGS"  # since otherwise rounding errors decide the direction

    def loss(self, step: int) -> Any:
        if self.convex:
            return sum((p * p / 2 + p.exp() / (i + 1)).sum() for i, p in enumerate(self.params))
        # Bounded, so that optimizers that maximize do not diverge and amplify rounding errors.
        loss = sum(((i + 1) * p + p * p / 2).sin().sum() for i, p in enumerate(self.params))
        return loss + self.sometimes.sin().sum() if step % 3 == 1 else loss

    def run(self, optimizer: Any, steps: int = STEPS, first: int = 0) -> list[Any]:
        for step in range(first, first + steps):

            def closure(step: int = step) -> Any:
                optimizer.zero_grad()
                loss = self.loss(step)
                loss.backward()
                return loss

            optimizer.step(closure)
        return self.all


def run(lib: Any, name: str, options: Options) -> tuple[list[Any], Any]:
    problem = Problem(lib, name)
    optimizer = getattr(lib.optim, name)(problem.all, **converted(lib, options))
    return problem.run(optimizer, {"LBFGS": 1, "Muon": 6}.get(name, STEPS)), optimizer.state_dict()


@cache
def configurations(name: str) -> list[tuple[Options, Any]]:
    """An optimizer's options, and what torch gives with them, for the sessions of all addresses."""
    given = [each.kwargs for each in INFOS[name].optim_inputs_func("cpu")]
    assert given
    return [(each, None if name == "SparseAdam" else run(torch, name, each)) for each in [*given, *MORE.get(name, [])]]


@pytest.mark.parametrize("name", INFOS)
def test_every_configuration_agrees(session: tg.Session, name: str) -> None:
    for options, of_torch in configurations(name):
        if name == "SparseAdam":  # it needs sparse gradients, which are not supported
            same_error(lambda lib: run(lib, name, options), whole=True)  # noqa: B023
            continue
        waits = session.recorder.waits
        (ours, state), (theirs, their_state) = run(tg, name, options), of_torch
        exact = not any(map(torch.is_tensor, options.values()))
        assert name == "LBFGS" or session.recorder.waits == waits or not exact
        check(ours, theirs, 1e-12 if exact and name in EXACT else 1e-6, str(options))
        if name != "LBFGS":  # its state has internals of torch
            check(state["state"], their_state["state"], 1e-5, str(options))
            assert [sorted(group) for group in state["param_groups"]] == [
                sorted(group) for group in their_state["param_groups"]
            ]


def mistake(lib: Any, name: str, given: Any) -> Any:
    """Make a mistake of the database, which raises an error."""
    params = converted(lib, given.optimizer_error_input.params)
    if params is None:
        params = [lib.ones(2, 2, requires_grad=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = getattr(lib.optim, name)(params, **converted(lib, given.optimizer_error_input.kwargs))
        if given.error_on is OptimizerErrorEnum.STEP_ERROR:
            optimizer.step()


@pytest.mark.parametrize("name", INFOS)
def test_every_mistake_has_torchs_words(name: str) -> None:
    info = INFOS[name]
    tried = 0
    for given in info.optim_error_inputs_func("cpu", torch.float64) if info.optim_error_inputs_func else ():
        if re.search("complex|dense params", f"{given.error_regex} {given.optimizer_error_input.desc}"):
            continue  # such tensors are not supported
        theirs, ours = (error_of(lambda lib: mistake(lib, name, given), lib) for lib in (torch, tg))  # noqa: B023
        assert isinstance(ours, given.error_type), (given.optimizer_error_input.desc, ours)
        ends = len(str(theirs)) if "duplicate parameters" not in str(theirs) else 60
        assert str(ours)[:ends].replace("telegrad", "torch") == str(theirs)[:ends], given.optimizer_error_input.desc
        tried += 1
    assert tried


def made(lib: Any, name: str, **options: Any) -> Any:
    return getattr(lib.optim, name)([lib.ones(2, 2, requires_grad=True)], **options)


def groups(lib: Any, build: Callable[[Any], Any]) -> Any:
    return lib.optim.SGD(build(lib.ones(2, requires_grad=True)), lr=0.1)


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: made(lib, "SGD", nesterov=True),
        lambda lib: made(lib, "SGD", nesterov=True, momentum=0.9, dampening=0.1),
        lambda lib: made(lib, "Adam", lr=float("nan")),
        lambda lib: made(lib, "AdamW", betas=(0.9, -0.1)),
        lambda lib: lib.optim.SGD([], lr=0.1),
        lambda lib: lib.optim.SGD(lib.ones(2, requires_grad=True), lr=0.1),
        lambda lib: lib.optim.SGD([3], lr=0.1),
        lambda lib: groups(lib, lambda x: [x * 2]),
        lambda lib: groups(lib, lambda x: [{"params": x}, {"params": [x]}]),
        lambda lib: groups(lib, lambda x: [{"params": {x}}]),
        lambda lib: groups(lib, lambda x: [{"lr": 1.0}]),
        lambda lib: groups(lib, lambda x: [x]).add_param_group(3),
        lambda lib: groups(lib, lambda x: [x]).load_state_dict({"param_groups": [], "state": {}}),
        lambda lib: groups(lib, lambda x: [x]).load_state_dict({"param_groups": [{"params": [0, 1]}], "state": {}}),
    ],
)
def test_mistakes_with_arguments_are_torchs(function: Callable[[Any], Any]) -> None:
    same_error(function)


def test_what_is_missing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="differentiable"):
        made(tg, "Adam", differentiable=True)


def parameters_of(lib: Any, name: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(lib.optim, name)).parameters.values())


@pytest.mark.parametrize("name", INFOS)
def test_signatures_and_options_are_torchs(name: str) -> None:
    for ours, theirs in zip(parameters_of(tg, name), parameters_of(torch, name), strict=True):
        assert (ours.name, ours.kind, ours.default) == (theirs.name, theirs.kind, theirs.default)
    assert made(tg, name).defaults == made(torch, name).defaults
    with pytest.raises(TypeError, match=rf"{name}.__init__\(\) got an unexpected keyword argument 'rate'"):
        made(tg, name, rate=1.0)


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, p.name) for name in EXACT for p in parameters_of(torch, name) if p.name in NEVER_NEGATIVE],
)
def test_no_option_is_below_zero(name: str, option: str) -> None:
    same_error(lambda lib: made(lib, name, **{option: -1.5}), "-1.5")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", OTHER_BETAS[0]),
        ("RMSprop", {"lr": 0.02, "centered": True, "maximize": True}),
        ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5}),
        ("Adagrad", {"lr": 0.5, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
        *[(name, {}) for name in ("Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor")],
    ],
)
def test_the_state_moves_between_optimizers_and_libraries(name: str, options: Options) -> None:
    ours, theirs = Problem(tg, name), Problem(torch, name)

    def made(lib: Any, **options: Any) -> Any:
        return getattr(lib.optim, name)((ours if lib is tg else theirs).all, **options)

    def loaded(lib: Any, state: Any) -> Any:
        optimizer = made(lib, lr=99.0)
        optimizer.load_state_dict(state)
        return optimizer

    def step(mine: Any, other: Any, first: int) -> None:
        ours.run(mine, 5, first)
        theirs.run(other, 5, first)
        check(ours.all, theirs.all, 1e-12 if name in EXACT else 1e-6)

    mine, other = made(tg, **options), made(torch, **options)
    step(mine, other, 0)
    state, expected = mine.state_dict(), other.state_dict()
    assert list(state) == list(expected)
    assert state["param_groups"] == expected["param_groups"]
    check(state["state"], expected["state"], 1e-12 if name in EXACT else 1e-5)
    step(loaded(tg, state), other, 5)
    from_torch = loaded(tg, other.state_dict())
    step(from_torch, other, 10)
    step(from_torch, loaded(torch, as_torch(from_torch.state_dict())), 15)


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
    def run(lib: Any) -> Any:
        problem = Problem(lib)
        w, b, c, *rest = problem.params
        optimizer = lib.optim.SGD([{"params": [w, c], "lr": 0.5}, {"params": b, "momentum": 0.9}], lr=0.01)
        problem.run(optimizer, 10)
        optimizer.add_param_group({"params": [problem.sometimes, *rest], "weight_decay": 0.1})
        optimizer.param_groups[0]["lr"] = 0.1
        problem.run(optimizer, 10)
        return problem.all, [sorted(g) for g in optimizer.param_groups], repr(optimizer)

    same(run, 1e-12)


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
    def run(lib: Any) -> Any:
        x = lib.tensor([3.0, 4.0], dtype=lib.float64, requires_grad=True)
        optimizer = lib.optim.SGD([x], lr=0.1)

        def closure() -> Any:
            assert lib.is_grad_enabled()
            optimizer.zero_grad()
            loss = (x * x).sum()
            loss.backward()
            return loss

        with lib.no_grad():
            losses = [optimizer.step(closure).item() for _ in range(3)]
        return losses, x, optimizer.step()

    same(run, 1e-12)


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


# L-BFGS -----------------------------------------------------------------------------------------

SEARCHES: list[Options] = [
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


@pytest.mark.full
@pytest.mark.parametrize("problem", [rosenbrock, regression])
@pytest.mark.parametrize("options", SEARCHES)
def test_five_searches_equal_torchs(problem: Any, options: Options) -> None:
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


def test_a_search_goes_on_from_torchs_state() -> None:
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


def test_mistakes_in_a_search_are_torchs() -> None:
    same_error(lambda lib: lib.optim.LBFGS([{"params": [p]} for p in rosenbrock(lib)[0]]))
    same_error(lambda lib: lib.optim.LBFGS(rosenbrock(lib)[0]).step())

    def unknown_search(lib: Any) -> None:
        params, loss = rosenbrock(lib)
        optimizer = lib.optim.LBFGS(params, line_search_fn="golden")
        optimizer.step(closure_of(optimizer, loss))

    same_error(unknown_search)
