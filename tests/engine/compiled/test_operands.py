"""Programs whose numbers differ each time are planned once. What each run leaves is verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .remembering import Remembering

Turn = Callable[[Any, Any, Any, int], Any]
DATA = np.random.default_rng(0).standard_normal((100, 3))
LOOPS: dict[str, Turn] = {
    "a float times a tensor": lambda lib, w, x, i: (w * (0.5 + i / 7)).sum(),
    "a float before a tensor": lambda lib, w, x, i: ((1 / (i + 1)) - w).sum(),
    "an int": lambda lib, w, x, i: (w * i + i).sum(),
    "an int of an integer tensor": lambda lib, w, x, i: (lib.arange(4) * i - 7).sum() + w.sum(),
    "an int divided by": lambda lib, w, x, i: (w / (i + 1)).sum(),
    "alpha": lambda lib, w, x, i: lib.add(w, x[0], alpha=0.1 * i + 0.3).sum(),
    "an exponent": lambda lib, w, x, i: (w ** (2.5 + i / 10)).sum(),
    "a bound": lambda lib, w, x, i: w.clamp(min=0.1 * i).sum(),
    "a slice": lambda lib, w, x, i: (x[i : i + 16] * w).sum(),
    "a slice with a step": lambda lib, w, x, i: (x[i : i + 16 : 3] * w).sum(),
    "a row": lambda lib, w, x, i: (x[i] * w).sum(),
    "a row from the end": lambda lib, w, x, i: (x[i - 50] * w).sum(),
    "an element": lambda lib, w, x, i: x[i, 1] * w.sum(),
    "a slice of what has a gradient": lambda lib, w, x, i: (w.repeat(20)[i : i + 4] ** 2).sum(),
    "a threshold": lambda lib, w, x, i: lib.nn.functional.threshold(w, 0.05 * i, 0.1 * i).sum(),
    "a slope": lambda lib, w, x, i: lib.nn.functional.leaky_relu(x[:4] * w, 0.01 * i).sum(),
    "smoothing": lambda lib, w, x, i: lib.nn.functional.cross_entropy(
        x[:4] * w, lib.tensor([0, 1, 2, 0]), label_smoothing=0.1 + 0.01 * i
    ),
    "an interpolation": lambda lib, w, x, i: lib.lerp(w, x[1], 0.03 * i).sum(),
    "a fill": lambda lib, w, x, i: (lib.full((3,), 0.1 * i + 0.05) * w).sum(),
    "dropped noise": lambda lib, w, x, i: (x[i : i + 4] * (0.9**i) + 0.01 * i).detach().square().mean() + w.sum(),
    "a shift": lambda lib, w, x, i: (x.roll(i, 1) * w).square().mean(),
    "several": lambda lib, w, x, i: ((x[i : i + 4] * 0.5 + i) * w - 0.25 * i).clamp(max=3.0 + i).mean() / (i + 1),
}
BRANCHES: dict[str, Turn] = {
    "a short last batch": lambda lib, w, x, i: (x[16 * (i % 7) : 16 * (i % 7) + 16] * w).sum(),
    "an exponent that decides": lambda lib, w, x, i: (w ** [2, 3.5, 0.0, 1][i % 4]).sum(),
    "a sign of zero that decides": lambda lib, w, x, i: (w * [0.0, -0.0][i % 2]).sum(),
    "a label to ignore": lambda lib, w, x, i: lib.nn.functional.cross_entropy(
        x[:6] * w, lib.tensor([-100 if n == i * 5 % 6 else n * i % 3 for n in range(6)])
    ),
}
"""Loops in which a number, a shape or a value decides what is computed."""


@pytest.mark.parametrize("name", [*LOOPS, *BRANCHES])
def test_a_loop_whose_numbers_differ_is_planned(session: Remembering, name: str) -> None:
    loop = (LOOPS | BRANCHES)[name]
    w, x = tg.tensor([0.5, 1.0, 1.5], dtype=tg.float64, requires_grad=True), tg.tensor(DATA)
    for i in range(1, 61):
        w.grad = None
        loss = loop(tg, w, x, i)
        loss.backward()
        assert w.grad is not None
        assert np.isfinite([loss.item(), *w.grad.tolist()]).all()
    report = max(session.reports, key=lambda each: each.runs)
    assert report.planned_runs / report.runs >= 0.85, session.reports


def test_views_and_history_that_are_left_know_their_own_numbers(session: Remembering) -> None:
    w, x = tg.tensor([0.5, 1.0, 1.5], dtype=tg.float64, requires_grad=True), tg.tensor(DATA)
    views, losses = [], []
    for i in range(12):
        view = x[i : i + 2]
        loss = (view * w * (i + 0.5)).sum()
        loss.backward(retain_graph=False)
        tg.current().flush()
        views.append(view)
        losses.append(loss)
    x.mul_(2)
    for i, view in enumerate(views):
        np.testing.assert_array_equal(view.tolist(), DATA[i : i + 2] * 2)
    assert session.reports


def test_an_index_out_of_range_says_what_torch_says_and_the_loop_goes_on(session: Remembering) -> None:
    x = tg.tensor(DATA.astype(np.float32))
    for i in [*range(10), 100, *range(10, 20)]:
        if i < 100:
            assert x[i].tolist() == DATA[i].astype(np.float32).tolist()
        else:
            with pytest.raises(IndexError, match="index 100 is out of bounds for dimension 0 with size 100"):
                x[i].tolist()
    assert session.reports
