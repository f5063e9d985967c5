"""``utils.checkpoint`` on the engine's tensors: what is run again, random numbers, and what is kept meanwhile.

Internals: when an array is freed is seen by a weak reference to it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

import telegrad_engine as tg

from ..client.parity import bodies
from .twins import OURS, THEIRS, both, both_raise, leaf

checkpoint = tg.utils.checkpoint
BOTH_WAYS = pytest.mark.parametrize("reentrant", [True, False])


def counted(function: Any) -> tuple[Any, list[int]]:
    """The function, and how often it was called."""
    calls: list[int] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return function(*args, **kwargs)

    return call, calls


@BOTH_WAYS
def test_a_function_is_run_as_often_as_in_torch(reentrant: bool) -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t, (0.5, -1.0, 2.0))
        function, calls = counted(lambda a, k, b: ((a * b).sin().exp() * k, a.cos() * b))
        y, z = t.utils.checkpoint.checkpoint(function, x * 2, 3, w, use_reentrant=reentrant)
        before = len(calls)
        (y.sum() + (z * z).sum()).backward()
        return x.grad, w.grad, before, len(calls), y.grad_fn is None

    both(run)


class Bodies:
    """Functions that must return the same in both libraries."""

    def a_nested_call_is_run_as_often_as_in_torch(t: Any) -> Any:
        inner, inners = counted(lambda a: a.sin().cos())
        outer, outers = counted(lambda a: t.utils.checkpoint.checkpoint(inner, a.exp(), use_reentrant=False).tanh())
        x = leaf(t)
        t.utils.checkpoint.checkpoint(outer, x, use_reentrant=False).sum().backward()
        return x.grad, len(inners), len(outers)

    def a_graph_that_is_retained_is_recomputed_each_time(t: Any) -> Any:
        x = leaf(t)
        function, calls = counted(lambda a: a.sin().exp())
        y = t.utils.checkpoint.checkpoint(function, x, use_reentrant=False).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad, len(calls)

    def recomputation_stops_early_unless_told_not_to(t: Any) -> Any:
        reached: list[str] = []

        def function(a: Any) -> Any:
            b = a.sin().cos()
            reached.append("end")
            return b + 1

        x = leaf(t)
        for options in ({}, {"early_stop": False}):
            t.utils.checkpoint.checkpoint(function, x, use_reentrant=False, **options).sum().backward()
        with t.utils.checkpoint.set_checkpoint_early_stop(False):
            y = t.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        y.sum().backward()
        return len(reached)

    def contexts_surround_both_runs(t: Any) -> Any:
        seen: list[str] = []

        class Note:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                seen.append(self.name)

            def __exit__(self, *exc: object) -> None:
                seen.append("/" + self.name)

        x = leaf(t)
        y = t.utils.checkpoint.checkpoint(
            lambda a: a.sin(), x, use_reentrant=False, context_fn=lambda: (Note("first"), Note("second"))
        )
        y.sum().backward()
        return seen


@pytest.mark.every
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    both(body)


@BOTH_WAYS
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers_are_the_same_again(reentrant: bool, preserve: bool) -> None:
    seen: list[Any] = []

    def noisy(x: Any) -> Any:
        seen.append(tg.functions.rand(3))
        return (x * seen[-1]).sin()

    tg.manual_seed(7)
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = checkpoint.checkpoint(noisy, x, use_reentrant=reentrant, preserve_rng_state=preserve)
    tg.functions.rand(5)
    before = tg.functions.rand(1) * 0
    y.sum().backward()
    assert (seen[0].tolist() == seen[1].tolist()) is preserve
    if preserve:
        expected = (seen[0] * (x.detach() * seen[0]).cos()).tolist()
        assert x.grad.tolist() == pytest.approx(expected, rel=1e-6)
        tg.manual_seed(7)
        tg.functions.rand(3), tg.functions.rand(5), tg.functions.rand(1)
        following = tg.functions.rand(2).tolist()
        tg.manual_seed(7)
        y = checkpoint.checkpoint(noisy, x, use_reentrant=reentrant)
        tg.functions.rand(5), tg.functions.rand(1)
        y.sum().backward()
        assert tg.functions.rand(2).tolist() == following
    assert before.tolist() == [0.0]


def test_what_forward_computes_is_not_kept() -> None:
    made: list[Any] = []

    def function(a: Any) -> Any:
        b = a.sin()
        made.append(weakref.ref(b._data))
        return b.exp().cos()

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    gc.disable()
    try:
        y = checkpoint.checkpoint(lambda a: function(a).sin(), x, use_reentrant=False)
        assert made[0]() is None
        y.sum().backward()
        del y
        assert all(ref() is None for ref in made)
    finally:
        gc.enable()


def test_what_a_nested_checkpoint_is_given_is_not_kept_by_the_outer_one() -> None:
    given: list[Any] = []

    def outer(a: Any) -> Any:
        b = a.exp()
        given.append(weakref.ref(b._data))
        return checkpoint.checkpoint(lambda c: c.sin().cos(), b, use_reentrant=False)

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = checkpoint.checkpoint(outer, x, use_reentrant=False)
    assert given[0]() is None
    y.sum().backward()
    assert all(ref() is None for ref in given)


# Sequences ----------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_a_sequence_in_segments(segments: int, reentrant: bool) -> None:
    def run(t: Any) -> Any:
        x = leaf(t, (0.1, 0.2))
        steps = [counted(f) for f in (t.sin, t.exp, t.cos, t.tanh, lambda a: a * a)]
        y = t.utils.checkpoint.checkpoint_sequential([s for s, _ in steps], segments, x, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, [len(calls) for _, calls in steps] if reentrant else None

    both(run)


def varying(*functions: Any) -> Any:
    """A function that is another one each time."""
    each: Iterator[Any] = iter(functions)
    return lambda x: next(each)(x)


def first_paragraph(error: BaseException) -> str:
    """torch's text without its tip on debugging, and without what it calls a device."""
    return str(error).split("\n\nTip:")[0].replace("device(type='cpu')", "'cpu'").replace("telegrad.", "torch.")


TWO, ONE, THREE = (lambda x: x.sin().cos()), (lambda x: x.sin()), (lambda x: x.sin().cos().exp())
DIFFERENT = {
    "fewer tensors": ((TWO, ONE), {}),
    "none": ((TWO, lambda x: x * 2), {}),
    "more tensors": ((TWO, THREE), {"early_stop": False}),
    "another shape": ((TWO, lambda x: x.reshape(3, 1).sin().cos()), {}),
    "another dtype": ((TWO, lambda x: x.double().sin().cos()), {}),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_second_run_that_differs_raises(name: str) -> None:
    functions, options = DIFFERENT[name]

    def run(t: Any) -> None:
        t.utils.checkpoint.checkpoint(varying(*functions), leaf(t), use_reentrant=False, **options).sum().backward()

    with pytest.raises(torch.utils.checkpoint.CheckpointError) as theirs:
        run(THEIRS)
    with pytest.raises(tg.errors.CheckpointError) as ours:
        run(OURS)
    assert first_paragraph(ours.value) == first_paragraph(theirs.value)


def test_nothing_to_differentiate_raises() -> None:
    both_raise(
        lambda t: t.utils.checkpoint.checkpoint(lambda x: x.detach(), leaf(t), use_reentrant=True).sum().backward()
    )


def test_debugging_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="debug=True"):
        checkpoint.checkpoint(TWO, leaf(OURS), use_reentrant=False, debug=True)
