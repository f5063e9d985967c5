"""Anomaly mode: torch's errors, with the line of the user's code that caused them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .custom_functions import double, function, leaf
from .parity import ENGINE, bodies, same


def told(run: Any) -> list[str]:
    """The error of a function, if any, and its warnings, without the parts that depend on the environment."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            error = [repr(run())]
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

    def nothing_wrong(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 0.5, 1.5, 2.5)
        with lib.autograd.set_detect_anomaly(True):
            y = x * w
            y.register_hook(lambda grad: grad * 2)
            z = (lib.stack([y, x.exp(), y.tanh() + x]).unbind()[1] * y).sum() + x.max()
            found = lib.autograd.grad(z, [x, w], create_graph=True)
            z.backward(retain_graph=True)
        z.backward()
        return [grad.tolist() for grad in (*found, x.grad, w.grad)]

    def a_function_that_leads_to_no_wanted_place(lib: Any) -> Any:
        doubled = function(lib, forward=double, backward=lambda ctx, grad: grad * 2)
        w, v = leaf(lib, 1, 2), leaf(lib, 3, 4)
        y = doubled.apply(w)
        z = (doubled.apply(y) * doubled.apply(v)).sum()
        with lib.autograd.set_detect_anomaly(True):
            return lib.autograd.grad(z, y, retain_graph=True)[0].tolist(), lib.autograd.grad(z, w)[0].tolist()

    def modified_in_place(lib: Any) -> None:
        x = leaf(lib)
        with lib.autograd.set_detect_anomaly(True):
            y = x.exp()
            z = y * 2
            y.add_(1)
            z = z + y
            z.sum().backward()

    def freed(lib: Any) -> None:
        x = leaf(lib)
        with lib.autograd.set_detect_anomaly(True):
            y = x * x
            y.sum().backward()
            y.sum().backward()

    def a_hook_that_makes_a_nan(lib: Any) -> None:
        with lib.autograd.set_detect_anomaly(True):
            y = leaf(lib) * 2
            y.register_hook(lambda grad: grad * float("nan"))
            y.sum().backward()

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


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any) -> None:
    same(lambda lib: told(lambda: body(lib)))


NAN = float("nan")


def raising(grad: Any) -> None:
    raise KeyError("mine")


def whole(function: Callable[[Any], Any], lib: Any) -> list[str]:
    """The error of a function and its warnings, with stacks and lines, which the engine has as torch has them."""
    mode = lib.autograd.set_detect_anomaly(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(all="ignore"), pytest.raises((RuntimeError, KeyError)) as error, mode:
            function(lib)
    return [str(error.value)] + [re.sub(r" \(Triggered internally at .*", "", str(w.message)) for w in caught]


@pytest.mark.parametrize(
    "run",
    [
        lambda t, x: (x.sqrt() * 1).sum().backward(),
        lambda t, x: t.autograd.grad(x.log().sqrt().sum(), x),
        lambda t, x: (x * 1).backward(t.tensor([NAN, 1.0])),
        lambda t, x: (t.tensor([1.0, 1.0]) * (x * t.tensor([NAN, 1.0]))).sum().backward(),
        lambda t, x: (x.unbind()[0] * NAN).backward(),
        lambda t, x: t.stack([x * 1, x * NAN]).sum().backward(),
        lambda t, x: (y := x * 2, y.register_hook(raising), y.sum().backward()),
    ],
)
def test_the_stacks_are_torchs(run: Callable[[Any, Any], Any]) -> None:
    def body(lib: Any) -> None:
        run(lib, lib.tensor([-1.0, 4.0], requires_grad=True))

    assert whole(body, ENGINE) == whole(body, torch)


def test_a_nan_names_its_function_and_the_line() -> None:
    def run(lib: Any) -> None:
        x = lib.tensor([-1.0, 4.0], requires_grad=True)
        y = x.sqrt()  # this line
        y.sum().backward()

    (error, said), theirs = [whole(run, lib) for lib in (ENGINE, torch)]
    assert [error, said] == theirs
    assert error.endswith("Function 'SqrtBackward0' returned nan values in its 0th output.")
    assert "y = x.sqrt()  # this line" in said
    assert said.count("test_anomaly.py") >= 1


def test_a_second_derivative_names_what_induced_it() -> None:
    def run(lib: Any) -> None:
        x = lib.tensor([0.0, 1.0], requires_grad=True)
        y = x.exp()
        (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        lib.autograd.grad(first, x, lib.tensor([NAN, 1.0]))

    for lib in (ENGINE, torch):
        said = whole(run, lib)[1:]
        assert said[0].startswith("Error detected in MulBackward0. Traceback of forward call that caused the error:\n")
        assert said[1].startswith(
            "\n\nPrevious calculation was induced by ExpBackward0. "
            "Traceback of forward call that induced the previous calculation:\n"
        )
        assert "y = x.exp()" in said[1]


@pytest.mark.usefixtures("everywhere")
def test_switching_and_nesting() -> None:
    def run(lib: Any) -> Any:
        def now() -> Any:
            return lib.is_anomaly_enabled(), lib.is_anomaly_check_nan_enabled()

        seen = [now()]
        lib.autograd.set_detect_anomaly(True, check_nan=False)
        seen.append(now())
        with lib.autograd.set_detect_anomaly(False):
            seen.append(now())
        seen.append(now())
        lib.autograd.set_detect_anomaly(False)
        seen.append(now())
        with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
            mode = lib.autograd.detect_anomaly(check_nan=False)
        seen.append(now())
        with pytest.raises(KeyError), mode:
            seen.append(now())
            raise KeyError
        return [*seen, now()]

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
