"""The arguments of optimizers: torch's signatures, options and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg

from .parity import same_error

pytestmark = pytest.mark.usefixtures("session")
NAMES = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS"]
ALL = [*NAMES, "ASGD", "Rprop", "Adafactor", "Muon", "SparseAdam"]
MOMENTA = ["rho", "alpha", "momentum", "momentum_decay"]
NEVER_NEGATIVE = ["lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", *MOMENTA]


def made(lib: Any, name: str, **options: Any) -> Any:
    return getattr(lib.optim, name)([lib.ones(2, 2, requires_grad=True)], **options)


def groups(lib: Any, build: Callable[[Any], Any]) -> Any:
    return lib.optim.SGD(build(lib.ones(2, requires_grad=True)), lr=0.1)


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: made(lib, "SGD", lr=-1),
        lambda lib: made(lib, "SGD", momentum=-1),
        lambda lib: made(lib, "SGD", weight_decay=-1.5),
        lambda lib: made(lib, "SGD", nesterov=True),
        lambda lib: made(lib, "SGD", nesterov=True, momentum=0.9, dampening=0.1),
        lambda lib: made(lib, "Adam", lr=-1.0),
        lambda lib: made(lib, "Adam", lr=float("nan")),
        lambda lib: made(lib, "Adam", eps=-1),
        lambda lib: made(lib, "Adam", betas=(1.0, 0.9)),
        lambda lib: made(lib, "AdamW", betas=(0.9, -0.1)),
        lambda lib: made(lib, "AdamW", weight_decay=-1),
        lambda lib: made(lib, "RMSprop", alpha=-1),
        lambda lib: made(lib, "RMSprop", momentum=-1),
        lambda lib: made(lib, "Adagrad", lr_decay=-1),
        lambda lib: made(lib, "Adagrad", initial_accumulator_value=-1),
        lambda lib: made(lib, "Adagrad", fused=True, foreach=True),
        lambda lib: made(lib, "Adam", fused=True, differentiable=True),
        lambda lib: made(lib, "Adadelta", rho=1.5),
        lambda lib: made(lib, "Adamax", betas=(0.9, 1.0)),
        lambda lib: made(lib, "NAdam", momentum_decay=-0.5),
        lambda lib: made(lib, "RAdam", eps=-1),
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
def test_mistakes_are_torchs(function: Callable[[Any], Any]) -> None:
    same_error(function)


def test_what_is_missing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="differentiable"):
        made(tg, "Adam", differentiable=True)


def parameters_of(lib: Any, name: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(lib.optim, name)).parameters.values())


@pytest.mark.parametrize("name", ALL)
def test_signatures_and_options_are_torchs(name: str) -> None:
    for ours, theirs in zip(parameters_of(tg, name), parameters_of(torch, name), strict=True):
        assert (ours.name, ours.kind, ours.default) == (theirs.name, theirs.kind, theirs.default)
    assert made(tg, name).defaults == made(torch, name).defaults
    with pytest.raises(TypeError, match=rf"{name}.__init__\(\) got an unexpected keyword argument 'rate'"):
        made(tg, name, rate=1.0)


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, p.name) for name in NAMES for p in parameters_of(torch, name) if p.name in NEVER_NEGATIVE],
)
def test_no_option_is_below_zero(name: str, option: str) -> None:
    same_error(lambda lib: made(lib, name, **{option: -1.5}), "-1.5")
