"""Helpers to compare a scenario in plain torch and under ``tg.compile``, and the training loop of most scenarios.

Internals: how often a compiled function was called instead of traced is not shown to its user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import telegrad as tg

RNG = np.random.default_rng(0)
STEPS = 20
XS = RNG.standard_normal((STEPS, 4, 6)).astype(np.float32)
YS = RNG.standard_normal((STEPS, 4, 3)).astype(np.float32)
OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "sgd": lambda lib, params: lib.optim.SGD(params, lr=0.1),
    "momentum": lambda lib, params: lib.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda lib, params: lib.optim.Adam(params, lr=0.01),
    "amsgrad": lambda lib, params: lib.optim.Adam(params, lr=0.01, amsgrad=True),
    "adafactor": lambda lib, params: lib.optim.Adafactor(params, lr=0.01),
    "rprop": lambda lib, params: lib.optim.Rprop(params, lr=0.01),
}


def model_of(lib: Any) -> Any:
    model = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3))
    with lib.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            values = np.random.default_rng(seed).standard_normal(tuple(parameter.shape)).astype(np.float32)
            parameter.copy_(lib.tensor(values))
    return model


def twins(scenario: Callable[[Any, Any], Any]) -> Any:
    """Run a scenario with plain torch functions and with ``tg.compile``, and compare the results."""
    compiled: list[Any] = []

    def compile_(function: Any) -> Any:
        compiled.append(tg.compile(function))
        return compiled[-1]

    expected, got = scenario(torch, lambda function: function), scenario(tg, compile_)
    assert len(expected) == len(got)
    for index, (theirs, ours) in enumerate(zip(expected, got, strict=True)):
        if theirs is None or isinstance(theirs, (bool, int, str)):
            assert ours == theirs, index
        else:
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-5, atol=1e-6, err_msg=str(index)
            )
            assert ours.requires_grad == theirs.requires_grad, index
            assert ours.is_leaf == theirs.is_leaf, index
            assert ours._version == theirs._version, index
    return compiled[0] if compiled else None


def calls(compiled: Any) -> int:
    """The number of calls that replayed a compiled program."""
    return sum(entry.calls for entries in compiled._entries.values() for entry in entries)


def training(lib: Any, compile_: Any, name: str, each: Any = lambda i, model, optimizer: None) -> list[Any]:
    model = model_of(lib)
    optimizer = OPTIMIZERS[name](lib, model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, seen = compile_(step), []
    for i in range(STEPS):
        each(i, model, optimizer)
        seen.append(run(lib.tensor(XS[i]), lib.tensor(YS[i])))
    return [*seen, *model.parameters(), *[p.grad for p in model.parameters()]]
