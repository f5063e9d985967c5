"""Anomaly mode in a session: torch's errors, with the line of the user's code that caused them."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

import telegrad as tg

from .parity import bodies, same
from .test_function_client import function, leaf

pytestmark = pytest.mark.usefixtures("session")


def told(run: Any) -> list[str]:
    """The error of a function, if any, and its warnings, without the parts that depend on the environment."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            run()
            error = []
        except Exception as raised:  # every exception is compared
            error = [f"{raised}".partition("Hint:")[0]]
    return error + [_cleaned(str(w.message)) for w in found]


def _cleaned(text: str) -> str:
    """A warning without torch's own frames and C++ location, and without the test runner's frames."""
    text = text.partition("(Triggered internally")[0]
    head, _, stack = text.partition("\n  File")
    lines = [line for file, line in re.findall(r'File "([^"]*)", line (\d+)', "  File" + stack) if file == __file__]
    return f"{head.strip()} {lines[-1] if lines else 'no line'}"


class Bodies:
    """Functions whose messages must be the same in both libraries."""

    def nan_in_a_derivative(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.detect_anomaly():
            y = x * 0
            z = y.sqrt()
            (z * 0).sum().backward()

    def nan_is_not_looked_for(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.set_detect_anomaly(True, check_nan=False):
            ((x * 0).sqrt() * 0).sum().backward()

    def off_again(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.set_detect_anomaly(True):
            pass
        ((x * 0).sqrt() * 0).sum().backward()

    def recorded_before_it_was_on(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        y = ((x * 0).sqrt() * 0).sum()
        lib.autograd.set_detect_anomaly(True)
        try:
            y.backward()
        finally:
            lib.autograd.set_detect_anomaly(False)

    def by_grad(lib: Any) -> None:
        x, w = leaf(lib, 0, 1), leaf(lib, 3, 4)
        with lib.autograd.set_detect_anomaly(True):
            y = (x - x).log() * 0 + w
            lib.autograd.grad([y.sum(), (y * 2).sum()], [x, w])

    def nothing_wrong(lib: Any) -> None:
        x = leaf(lib)
        with lib.autograd.set_detect_anomaly(True):
            x.exp().sum().backward()

    def modified_in_place(lib: Any) -> None:
        x = leaf(lib)
        with lib.autograd.set_detect_anomaly(True):
            y = x.exp()
            z = y * 2
            y.add_(1)
            z = z + y
            z.sum().backward()

    def in_the_second_backward(lib: Any) -> None:
        x = leaf(lib, 0, 4)
        with lib.autograd.set_detect_anomaly(True):
            y = (x**1.5).sum()
            (g,) = lib.autograd.grad(y, x, create_graph=True)
            h = (g.sqrt() * 0).sum()
            h.backward()

    def a_function_of_ones_own(lib: Any) -> None:
        x = leaf(lib)
        mine = function(lib, forward=lambda ctx, x: x * 2, backward=lambda ctx, grad: grad * float("nan"))
        with lib.autograd.set_detect_anomaly(True):
            y = mine.apply(x)
            (y * 3).sum().backward()

    def a_function_that_raises(lib: Any) -> None:
        def backward(ctx: Any, grad: Any) -> Any:
            raise KeyError("mine")

        x = leaf(lib)
        mine = function(lib, forward=lambda ctx, x: x * 2, backward=backward)
        with lib.autograd.set_detect_anomaly(True):
            y = mine.apply(x)
            (y * 3).sum().backward()

    def behind_a_hook(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.set_detect_anomaly(True):
            y = (x * 0).sqrt()
            z = y * 0
            z.register_hook(lambda grad: grad * 2)
            z.sum().backward()

    def at_a_node_with_a_hook(lib: Any) -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.set_detect_anomaly(True):
            y = (x * 0).sqrt()
            y.grad_fn.register_hook(lambda ins, outs: None)
            (y * 0).sum().backward()


@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any) -> None:
    same(lambda lib: told(lambda: body(lib)))


def test_asking_and_nesting() -> None:
    def run(lib: Any) -> Any:
        seen = [lib.is_anomaly_enabled()]
        with lib.autograd.set_detect_anomaly(True, check_nan=False):
            seen += [lib.is_anomaly_enabled(), lib.is_anomaly_check_nan_enabled()]
            with lib.autograd.set_detect_anomaly(False):
                seen.append(lib.is_anomaly_enabled())
            seen.append(lib.is_anomaly_enabled())
        return [*seen, lib.is_anomaly_enabled(), lib.is_anomaly_check_nan_enabled()]

    same(run)


def test_the_session_is_as_good_as_before(session: tg.Session) -> None:
    x = tg.tensor([0.0, 1.0], requires_grad=True)
    y = (x * 0).sqrt()
    with tg.autograd.set_detect_anomaly(True), pytest.warns(UserWarning), pytest.raises(RuntimeError, match="nan"):
        (y * 0).sum().backward(retain_graph=True)
    assert x.grad is None
    (y * 0).sum().backward()
    assert x.grad is not None
    assert x.grad.isnan().tolist() == [True, True]


def test_off_it_sends_what_it_always_did(session: tg.Session) -> None:
    x = tg.ones(2, requires_grad=True)
    y = x.exp().sum()
    before = session.requests
    y.backward()
    assert session.requests == before
    assert not y.grad_fn.metadata
    instruction = session.recorder.pending[-1]
    assert (instruction.op, dict(instruction.attrs)) == ("backward", {})
