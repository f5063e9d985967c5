"""Registered functions in programs that run as one plan.

Internals: a function of the server is installed as its plugins are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.autograd import Function
from telegrad_engine.program.registered_functions.function import Installed
from telegrad_engine.schema.parameters import Array

from .remembering import Remembering, last, numbers, runs_planned


def valley(x: Any) -> Any:
    left, right = x[:-1], x[1:]
    return (100 * (right - left**2) ** 2 + (1 - left) ** 2).sum()


def gradients(lib: Any, function: Any, count: int) -> list[Any]:
    """The gradients at so many points."""
    found = []
    for seed in range(count):
        x = numbers(lib, (20,), seed).requires_grad_()
        found.append(np.array(lib.autograd.grad(function(x), x)[0].tolist()))
    return found


def test_a_function_is_part_of_the_plan(session: Remembering) -> None:
    tg.register_function("valley", valley)
    np.testing.assert_allclose(gradients(tg, tg.ops.valley, 7), gradients(torch, valley, 7), rtol=1e-5)
    assert runs_planned(session, 3)


def test_another_function_of_the_name_is_another_program(session: Remembering) -> None:
    for factor in (2.0, 3.0):
        tg.register_function("scaled", lambda x, factor=factor: (x * x * factor).sum())
        plain = lambda x, factor=factor: (x * x * factor).sum()  # noqa: E731
        np.testing.assert_allclose(gradients(tg, tg.ops.scaled, 6), gradients(torch, plain, 6), rtol=1e-6)
    assert runs_planned(session, 3)


class Clipped(tg.autograd.Function):
    """With a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clamp(min=0).sum()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x > 0) * 2


def test_so_is_its_own_backward(session: Remembering) -> None:
    tg.register_function("clipped", Clipped)
    for seed, gradient in enumerate(gradients(tg, tg.ops.clipped, 7)):
        np.testing.assert_array_equal(gradient, 2.0 * (numbers(torch, (20,), seed).numpy() > 0))
    assert runs_planned(session, 3)


def test_one_that_decides_by_values_runs_as_ever(session: Remembering) -> None:
    def either(x: Any) -> Any:
        if x.sum() > 0:
            return (x * 2).sum()
        return (x * x).sum()

    tg.register_function("either", either)
    np.testing.assert_allclose(gradients(tg, tg.ops.either, 7), gradients(torch, either, 7), rtol=1e-6)
    assert "depends on values" in str([report.reason for report in session.reports])


class Counting(Function):
    """Python on the server, which gives something else every time."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Array) -> Any:
        Counting.calls += 1
        return x * float(Counting.calls)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


@pytest.mark.parametrize("nested", [False, True])
def test_python_that_is_installed_is_called_every_time(session: Remembering, nested: bool) -> None:
    session.functions.shared.add(Installed("counting", Counting))
    Counting.calls = 0
    try:
        if nested:
            tg.register_function("around", lambda x: tg.ops.counting(x) * 0.5)
        function = tg.ops.around if nested else tg.ops.counting
        x = numbers(tg, (3,), 0)
        seen = {round(function(x + 0).sum().exp().log().item(), 5) for _ in range(7)}
        assert len(seen) == 7
        assert "was installed" in str([report.reason for report in session.reports]), last(session)
    finally:
        session.functions.shared.remove("counting")
