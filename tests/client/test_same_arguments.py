"""Calls with one tensor in several places, or a number on the left, repeated: as in torch, also with other tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from ..engine.twins import OURS as ENGINE

Of = Callable[[Any, Any, Any, Any], Any]
CALLS: dict[str, Of] = {
    "x - y": lambda lib, x, y, z: x - y,
    "x.sub(other=y)": lambda lib, x, y, z: x.sub(other=y),
    "x / y": lambda lib, x, y, z: x / y,
    "x ** y": lambda lib, x, y, z: x**y,
    "2 - x": lambda lib, x, y, z: 2 - x,
    "2.5 / x": lambda lib, x, y, z: 2.5 / x,
    "2 ** x": lambda lib, x, y, z: 2**x,
    "x.addcdiv(y, z)": lambda lib, x, y, z: x.addcdiv(y, z),
    "x.lerp(y, z)": lambda lib, x, y, z: x.lerp(y, z),
    "x.where(y > 1, z)": lambda lib, x, y, z: x.where(y > 1, z),
    "x.atan2(y)": lambda lib, x, y, z: x.atan2(y),
}
WITH_FUNCTIONS: dict[str, Of] = {
    "sub(other=y, input=x)": lambda lib, x, y, z: lib.sub(other=y, input=x),
    "addcmul(x, tensor2=z, tensor1=y)": lambda lib, x, y, z: lib.addcmul(x, tensor2=z, tensor1=y),
    "where(x > 1, y, z)": lambda lib, x, y, z: lib.where(x > 1, y, z),
    "x @ y": lambda lib, x, y, z: x @ y,
}


def outcomes(lib: Any, call: Of, needs: bool, repeated: bool) -> list[Any]:
    """The results and gradients of calls with one tensor everywhere, between those with three tensors."""
    rng = np.random.default_rng(0)
    found = []
    for turn in range(10):
        arrays = [rng.uniform(0.5, 2.0, (3, 3)) for _ in range(3)]
        own = [lib.tensor(array, requires_grad=needs) for array in arrays]
        x, y, z = [own[0]] * 3 if repeated is (turn < 5) else own
        result = call(lib, x, y, z)
        if needs:
            result.sum().backward()
        found += [result.detach().numpy().copy(), *[None if t.grad is None else t.grad.numpy().copy() for t in own]]
    return found


def held(ours: list[Any], theirs: list[Any]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.parametrize("repeated", [True, False], ids=["same first", "same last"])
@pytest.mark.parametrize("needs", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("name", [*CALLS, *WITH_FUNCTIONS])
def test_in_a_session(name: str, needs: bool, repeated: bool, session: tg.Session) -> None:
    call = (CALLS | WITH_FUNCTIONS)[name]
    held(outcomes(tg, call, needs, repeated), outcomes(torch, call, needs, repeated))


@pytest.mark.parametrize("repeated", [True, False], ids=["same first", "same last"])
@pytest.mark.parametrize("needs", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("name", CALLS)
def test_in_the_engine(name: str, needs: bool, repeated: bool) -> None:
    held(outcomes(ENGINE, CALLS[name], needs, repeated), outcomes(torch, CALLS[name], needs, repeated))
