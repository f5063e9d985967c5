"""Anomaly mode: it names the line of the forward pass whose backward went wrong, in torch's words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from telegrad_engine.context import state

from .twins import OURS, THEIRS, both, leaf

NAN = float("nan")


def messages(function: Callable[[Any], Any], t: Any) -> tuple[list[str], str]:
    """The warnings that a call gives, and the text of the error it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(t)
            text = ""
        except (RuntimeError, KeyError) as error:
            text = str(error)
    return [re.sub(r" \(Triggered internally at .*", "", str(w.message)) for w in caught], text


def both_say(function: Callable[[Any], Any]) -> tuple[list[str], str]:
    """Both warn and raise with the same words, stacks and lines included."""
    ours, theirs = [messages(function, t) for t in (OURS, THEIRS)]
    assert ours == theirs
    return ours


def watched(t: Any, *args: Any) -> Any:
    return t.autograd.set_detect_anomaly(True, *args)


def test_a_nan_names_its_function_and_the_line() -> None:
    def run(t: Any) -> None:
        with watched(t):
            x = leaf(t, (-1.0, 4.0))
            y = x.sqrt()  # this line
            y.sum().backward()

    said, error = both_say(run)
    assert error.endswith("Function 'SqrtBackward0' returned nan values in its 0th output.")
    assert "y = x.sqrt()  # this line" in said[0]
    assert said[0].count("test_anomaly.py") >= 1


@pytest.mark.parametrize(
    "run",
    [
        lambda t, x: (x.sqrt() * 1).sum().backward(),
        lambda t, x: t.autograd.grad(x.log().sqrt().sum(), x),
        lambda t, x: (x * 1).backward(t.tensor([NAN, 1.0])),
        lambda t, x: (t.tensor([1.0, 1.0]) * (x * t.tensor([NAN, 1.0]))).sum().backward(),
        lambda t, x: (x.unbind()[0] * NAN).backward(),
        lambda t, x: t.F.stack([x * 1, x * NAN]).sum().backward(),
    ],
)
def test_other_nans(run: Any) -> None:
    def inside(t: Any) -> None:
        with watched(t):
            run(t, leaf(t, (-1.0, 4.0)))

    both_say(inside)


def test_a_nan_from_a_hook_is_found_in_the_function_after_it() -> None:
    def run(t: Any) -> None:
        with watched(t):
            x = leaf(t)
            y = x * 2
            y.register_hook(lambda grad: grad * NAN)
            y.sum().backward()

    both_say(run)


def test_errors_of_all_kinds_are_explained() -> None:
    def modified(t: Any) -> None:
        with watched(t):
            y = leaf(t).sigmoid()
            y.add_(1)
            y.sum().backward()

    def freed(t: Any) -> None:
        with watched(t):
            x = leaf(t)
            y = x * x
            y.sum().backward()
            y.sum().backward()

    def hook(t: Any) -> None:
        def fail(grad: Any) -> None:
            raise KeyError("mine")

        with watched(t):
            y = leaf(t) * 2
            y.register_hook(fail)
            y.sum().backward()

    for run in (modified, freed, hook):
        said, _ = both_say(run)
        assert len(said) == 1


def test_without_a_watched_forward_pass() -> None:
    def run(t: Any) -> None:
        y = leaf(t, (-1.0, 4.0)).sqrt()
        with watched(t):
            y.sum().backward()

    said, _ = both_say(run)
    assert "No forward pass information available." in said[0]


def test_a_second_derivative_names_what_induced_it() -> None:
    def run(t: Any) -> None:
        with watched(t):
            x = leaf(t, (0.0, 1.0))
            y = x.exp()
            (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
            t.autograd.grad(first, x, t.tensor([NAN, 1.0]))

    for t in (OURS, THEIRS):
        said, _ = messages(run, t)
        assert said[0].startswith("Error detected in MulBackward0. Traceback of forward call that caused the error:\n")
        assert said[1].startswith(
            "\n\nPrevious calculation was induced by ExpBackward0. "
            "Traceback of forward call that induced the previous calculation:\n"
        )
        assert "y = x.exp()" in said[1]


def test_nans_can_be_left_alone() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, (0.0, 4.0))
        with watched(t, False):
            (x.sqrt() * 0).sum().backward()
        return str(x.grad[0].item())

    both(run)


def test_switching() -> None:
    def run(t: Any) -> Any:
        def now() -> Any:
            return t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled()

        seen = [now()]
        t.autograd.set_detect_anomaly(True, check_nan=False)
        seen.append(now())
        with t.autograd.set_detect_anomaly(False):
            seen.append(now())
        seen.append(now())
        t.autograd.set_detect_anomaly(False)
        seen.append(now())
        with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
            mode = t.autograd.detect_anomaly(check_nan=False)
        seen.append(now())
        with pytest.raises(KeyError), mode:
            seen.append(now())
            raise KeyError
        seen.append(now())
        return seen

    both(run)
    assert state.observer is None


def test_gradients_are_the_same() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t, (0.5, 1.5, 2.5))
        seen = []
        with watched(t):
            y = x * w
            y.register_hook(lambda grad: grad * 2)
            z = (t.F.stack([y, x.exp(), y.tanh() + x]).unbind()[1] * y).sum() + x.max()
            seen += t.autograd.grad(z, [x, w], create_graph=True)
            z.backward(retain_graph=True)
        z.backward()
        return [s.detach() for s in seen], x.grad, w.grad

    both(run)


def test_a_function_that_leads_to_no_wanted_place_is_left_out() -> None:
    def run(t: Any) -> None:
        class Doubled(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 2

        w, v = leaf(t, (1.0, 2.0)), leaf(t, (3.0, 4.0))
        y = Doubled.apply(w)
        z = (Doubled.apply(y) * Doubled.apply(v)).sum()
        with watched(t):
            found.append((t.autograd.grad(z, y, retain_graph=True)[0].tolist(), t.autograd.grad(z, w)[0].tolist()))

    found: list[Any] = []
    both_say(run)
    assert found[0] == found[1]
