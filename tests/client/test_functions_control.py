"""Loops and branches of registered functions that depend on values in the session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .parity import same
from .registering import leaf, plain, unique

pytestmark = pytest.mark.usefixtures("session")


# Loops ---------------------------------------------------------------------------------------------------------------


def halve_until_small(x: Any) -> Any:
    (result,) = tg.while_loop(lambda v: v.abs().max() > 1, lambda v: v / 2, (x,))
    return result


def running(h: Any, xs: Any) -> Any:
    return tg.scan(lambda h, x: (tg.tanh(h + x), h * x), (h,), (xs,))


def test_loops_that_depend_on_values() -> None:
    name = unique("halve")
    tg.register_function(name, halve_until_small)
    for function in (halve_until_small, getattr(tg.ops, name)):
        x = tg.tensor([12.0, -3.0], requires_grad=True)
        y = function(x)
        y.sum().backward()
        assert (y.tolist(), x.grad.tolist()) == ([0.75, -0.1875], [0.0625, 0.0625])


def test_loops_over_a_sequence() -> None:
    name = unique("running")
    tg.register_function(name, running)
    found = []
    for function in (running, getattr(tg.ops, name)):
        h, xs = leaf(tg, [0.5, -0.5]), leaf(tg, [[1.0, 2.0], [0.3, -0.2], [-1.0, 0.1]])
        last, products = function(h, xs)
        (last.sum() + (products * products).sum()).backward()
        found.append([last.tolist(), products.tolist(), h.grad.tolist(), xs.grad.tolist()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_a_loop_over_a_sequence_whose_body_returns_too_little() -> None:
    with pytest.raises(TypeError, match=r"scan\(\): body_fn returned 1 tensors, but 2 are carried"):
        tg.scan(lambda a, b, x: (a,), [tg.tensor(0.0), tg.tensor(0.0)], [tg.ones(3)])


def test_a_loop_that_may_not_turn() -> None:
    def halve(x: Any, w: Any) -> Any:
        return tg.while_loop(lambda v: v.abs().max() > 1, lambda v: v * w, (x,))[0]

    function = plain(tg, halve)
    w = tg.tensor(0.5, dtype=tg.float64, requires_grad=True)
    turned, same_again = (function(tg.tensor([start], dtype=tg.float64), w) for start in (4.0, 0.5))
    turned.sum().backward()
    assert (turned.item(), w.grad.item(), same_again.item()) == (1.0, 2 * 4.0 * 0.5, 0.5)
    assert (turned.requires_grad, same_again.requires_grad) == (True, False)


# Branches on values --------------------------------------------------------------------------------------------------


def grads_of_the_branch_that_is_taken(lib: Any) -> Any:
    function, found = plain(lib, lambda x, a, b: x * a if x.sum() > 0 else x * b), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x, a, b = lib.tensor(values, dtype=lib.float64), leaf(lib, [1.0, 1.0]), leaf(lib, [2.0, 2.0])
        y = function(x, a, b)
        y.sum().backward()
        found.append((y, a.grad, b.grad))
    return found


def a_branch_without_gradient(lib: Any) -> Any:
    function, found = plain(lib, lambda x, w: x * w if x.sum() > 0 else lib.zeros_like(x)), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        y = function(lib.tensor(values), lib.ones(2, requires_grad=True))
        found.append((y, y.requires_grad, y.grad_fn is None))
    return found


def branches_of_different_shapes(lib: Any) -> Any:
    function, found = plain(lib, lambda x: x.sum() if x.sum() > 0 else x.exp()), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x = leaf(lib, values)
        y = function(x)
        (y * y).sum().backward()
        found.append((y, x.grad))
    return found


def branches_in_branches(lib: Any) -> Any:
    def decide(x: Any, a: Any, b: Any, c: Any) -> Any:
        if x[0] > 0:
            return a * x if x[1] > 0 else b * x
        return c * x

    function, found = plain(lib, decide), []
    for values in ([1.0, 2.0], [1.0, -2.0], [-1.0, 2.0]):
        weights = [leaf(lib, [w]) for w in (1.0, 2.0, 3.0)]
        y = function(lib.tensor(values, dtype=lib.float64), *weights)
        y.sum().backward()
        found.append([y, *[w.grad for w in weights]])
    return found


DECIDED = [
    grads_of_the_branch_that_is_taken,
    a_branch_without_gradient,
    branches_of_different_shapes,
    branches_in_branches,
]


@pytest.mark.parametrize("function", DECIDED)
def test_values_decide_what_has_a_gradient(function: Any) -> None:
    same(function)


def test_the_session_is_asked_only_where_it_matters(session: tg.Session) -> None:
    same_leaf = plain(tg, lambda x, w: x * w if x.sum() > 0 else x / w)
    other_leaf = plain(tg, lambda x, a, b: x * a if x.sum() > 0 else x * b)
    x, a, b = tg.ones(2), tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    before = session.requests
    same_leaf(x, a).sum().backward()
    with tg.no_grad():
        other_leaf(x, a, b)
    other_leaf(x, a.detach(), b.detach())
    assert session.requests == before
    other_leaf(x, a, b).sum().backward()
    assert session.requests == before + 1
    assert (a.grad.tolist(), b.grad) == ([2.0, 2.0], None)
