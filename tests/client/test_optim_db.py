"""Every optimizer of PyTorch's database: each configuration updates parameters, or raises, as in torch.

The database is ``torch.testing._internal.common_optimizers.optim_db``.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, OptimizerInfo, optim_db

import telegrad as tg

from .parity import check, error_of

pytestmark = pytest.mark.usefixtures("session")

NAMES = [info.name for info in optim_db]
STEPS = 6
UNSUPPORTED: dict[str, str] = {}
"""Optimizers of the database that are omitted, with reasons: none."""


def info_of(name: str) -> OptimizerInfo:
    return next(info for info in optim_db if info.name == name)


def of(lib: Any, value: Any) -> Any:
    """Convert an option or a parameter of the database for the library."""
    if torch.is_tensor(value):
        if lib is torch:
            copied = value.detach().clone().requires_grad_(value.requires_grad)
        else:
            copied = tg.tensor(value.detach().numpy(), requires_grad=value.requires_grad)
        if value.grad is not None:
            copied.grad = of(lib, value.grad)
        return copied
    if isinstance(value, dict):
        return {key: of(lib, item) for key, item in value.items()}
    return type(value)(of(lib, item) for item in value) if isinstance(value, (list, tuple)) else value


def parameters(lib: Any, name: str) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4, 2), (5, 5)] if name == "Muon" else [(3, 4), (4,), (), (2, 3, 4)]
    return [lib.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]


def run(lib: Any, name: str, options: dict[str, Any]) -> tuple[list[Any], Any]:
    params = parameters(lib, name)
    optimizer = getattr(lib.optim, name)(params, **of(lib, options))

    def closure() -> Any:
        optimizer.zero_grad()
        if name == "LBFGS":  # a convex loss, since otherwise rounding errors decide the direction
            loss = sum((p * p / 2 + p.exp() / (i + 1)).sum() for i, p in enumerate(params))
        else:
            loss = sum(((i + 1) * p + p * p / 2).sin().sum() for i, p in enumerate(params))
        loss.backward()
        return loss

    for _ in range(1 if name == "LBFGS" else STEPS):
        optimizer.step(closure)
    return params, optimizer.state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_agrees(name: str) -> None:
    assert name not in UNSUPPORTED
    inputs = info_of(name).optim_inputs_func("cpu")
    assert inputs
    for given in inputs:
        if name == "SparseAdam":  # it needs sparse gradients, which are not supported
            theirs, ours = (error_of(lambda lib: run(lib, name, given.kwargs), lib) for lib in (torch, tg))  # noqa: B023
            assert (str(ours), isinstance(ours, RuntimeError)) == (str(theirs), True), given.desc
            continue
        ours, theirs = (run(lib, name, given.kwargs) for lib in (tg, torch))  # type: ignore[assignment]
        check(ours[0], theirs[0], 1e-6, given.desc)  # type: ignore[index]
        if name != "LBFGS":  # its state has internals of torch
            check(ours[1]["state"], theirs[1]["state"], 1e-5, given.desc)  # type: ignore[index]
            assert [sorted(group) for group in ours[1]["param_groups"]] == [  # type: ignore[index]
                sorted(group)
                for group in theirs[1]["param_groups"]  # type: ignore[index]
            ]


def mistake(lib: Any, name: str, given: Any) -> Any:
    """Make a mistake of the database, which raises an error."""
    params = of(lib, given.optimizer_error_input.params)
    if params is None:
        params = [lib.ones(2, 2, requires_grad=True)]
    params = shared(params, given.optimizer_error_input.params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = getattr(lib.optim, name)(params, **of(lib, given.optimizer_error_input.kwargs))
        if given.error_on is OptimizerErrorEnum.STEP_ERROR:
            optimizer.step()


def shared(copied: Any, original: Any) -> Any:
    """Restore sharing in a copied structure: a tensor that occurred twice occurs twice again."""
    known: dict[int, Any] = {}

    def walk(mine: Any, theirs: Any) -> Any:
        if torch.is_tensor(theirs):
            return known.setdefault(id(theirs), mine)
        if isinstance(theirs, dict):
            return {key: walk(mine[key], value) for key, value in theirs.items()}
        if isinstance(theirs, (list, tuple)):
            return type(theirs)(walk(m, t) for m, t in zip(mine, theirs, strict=True))
        return mine

    return walk(copied, original)


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_has_torchs_words(name: str) -> None:
    info = info_of(name)
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
