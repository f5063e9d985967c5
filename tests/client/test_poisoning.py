"""A failed instruction invalidates the tensors that depend on it and nothing else; its error is raised once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import telegrad as tg

F = tg.nn.functional


def out_of_range(size: int = 8) -> tg.Tensor:
    """Labels out of range for three classes, which only the session can detect."""
    return tg.randint(0, 3, (size,)) + 5


def step(model: Any, optimizer: Any, inputs: tg.Tensor, labels: tg.Tensor) -> tg.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("algorithm", ["SGD", "Adam"])
@pytest.mark.parametrize("learned", [0, 12])
def test_a_step_that_fails_is_as_if_it_had_not_been(session: tg.Session, algorithm: str, learned: int) -> None:
    model = tg.nn.Linear(4, 3)
    optimizer = getattr(tg.optim, algorithm)(model.parameters(), lr=0.1)
    inputs, labels, wrong = tg.randn(8, 4), tg.randint(0, 3, (8,)), out_of_range()
    for _ in range(learned):  # until a loop is recognized
        step(model, optimizer, inputs, labels).item()
    before = [p.detach().numpy() for p in model.parameters()]
    versions = [p._version for p in model.parameters()]
    loss = step(model, optimizer, inputs, wrong)
    independent = inputs * 2
    with pytest.raises(IndexError, match="is out of bounds"):
        independent.sum().item()
    for p, value, version in zip(model.parameters(), before, versions, strict=True):
        assert p.grad is None
        assert p._version == version
        np.testing.assert_array_equal(p.detach().numpy(), value)
    np.testing.assert_array_equal(independent.numpy(), inputs.numpy() * 2)
    with pytest.raises(IndexError, match="is out of bounds"):
        loss.item()
    first = step(model, optimizer, inputs, labels).item()
    for _ in range(12):
        last = step(model, optimizer, inputs, labels).item()
    assert last < first


def test_steps_after_one_that_fails_are_not_made(session: tg.Session) -> None:
    model = tg.nn.Linear(4, 3)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, labels, wrong = tg.randn(8, 4), tg.randint(0, 3, (8,)), out_of_range()
    before = model.weight.detach().numpy()
    losses = [step(model, optimizer, inputs, each) for each in (labels, wrong, labels, labels)]
    with pytest.raises(IndexError):
        losses[-1].item()
    after = model.weight.detach().numpy()
    assert (after != before).any()  # the step before the failed one ran
    assert model.weight.grad is None
    assert isinstance(losses[0].item(), float)
    for lost in losses[1:]:
        with pytest.raises(IndexError):
            lost.item()
    step(model, optimizer, inputs, labels).item()


def test_an_error_is_raised_once(session: tg.Session) -> None:
    x = tg.randn(3)
    for _ in range(3):
        x[out_of_range(1)]
        with pytest.raises(IndexError, match="out of bounds"):
            session.flush()
        for _ in range(3):
            session.flush()
            assert len(x.tolist()) == 3


@pytest.mark.parametrize("requires_grad", [False, True])
def test_one_statement_raises_one_error(session: tg.Session, requires_grad: bool) -> None:
    table = tg.ones(4, 2, requires_grad=requires_grad)
    words = tg.tensor([0, 1, 3]) + 1
    lost = F.embedding_bag(words, table, tg.tensor([0, 2]), mode="sum")  # two parts of this op would fail
    with pytest.raises(RuntimeError, match="found idx to be 4"):
        lost.tolist()
    assert tg.ones(2).tolist() == [1.0, 1.0]


def test_two_statements_raise_an_error_each(session: tg.Session) -> None:
    x = tg.zeros(3)
    first, second = x[tg.tensor([7]) + 0], x[tg.tensor([8]) + 0]
    for lost, place in ((first, 7), (second, 8), (first, 7)):
        with pytest.raises(IndexError, match=f"index {place} is out of bounds"):
            lost.tolist()


def test_gradients_of_a_failed_pass_are_none_and_earlier_ones_stay(session: tg.Session) -> None:
    a, b = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True)
    (a * 2).sum().backward()
    held = a.grad
    version = held._version
    (a * b).index_select(0, out_of_range(2)).sum().backward()
    taken = b.grad
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        session.flush()
    assert b.grad is None
    assert a.grad is held
    assert held._version == version
    assert held.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        taken.tolist()
    (a * b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([3.0, 3.0, 3.0], [1.0, 1.0, 1.0])  # type: ignore[attr-defined]


def test_a_pass_that_does_not_depend_on_the_failure_runs(session: tg.Session) -> None:
    a, b = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True)
    (a * b).index_select(0, out_of_range(2)).sum().backward()
    for each in (a, b):
        each.grad = None
    (a * 5).sum().backward()
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        session.flush()
    assert a.grad.tolist() == [5.0, 5.0, 5.0]
    assert b.grad is None


def test_a_pass_that_fails_halfway_leaves_no_gradient(session: tg.Session) -> None:
    a = tg.ones(2, 2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tg.autograd.detect_anomaly():
            loss = (a * 1.0).sum() + (a - 1.0).abs().sqrt().sum() * 0.0
            with pytest.raises(RuntimeError, match="returned nan values"):
                loss.backward()
    assert a.grad is None
    (a * 3).sum().backward()
    assert a.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]  # type: ignore[attr-defined]


def test_a_change_in_place_that_fails_is_undone(session: tg.Session) -> None:
    source = tg.randn(3)
    x = tg.ones(3, requires_grad=True)
    y = x * 2
    z = y.exp()  # saves its result z, not y
    w = y * y  # saves y
    view = y.view(-1)
    y.add_(source[out_of_range(3)])
    after, of_view, untouched = y * 2, view * 2, z * 3
    with pytest.raises(IndexError):
        session.flush()
    assert (y._version, y.tolist()) == (0, [2.0, 2.0, 2.0])
    assert repr(y.grad_fn) == repr((x * 2).grad_fn)
    assert untouched.tolist() == pytest.approx([3 * np.exp(2)] * 3)
    for lost in (after, of_view):
        with pytest.raises(IndexError):
            lost.tolist()
    assert (view * 2).tolist() == [4.0, 4.0, 4.0]
    w.sum().backward()  # y, which it saved, was not changed
    assert x.grad.tolist() == [8.0, 8.0, 8.0]


def test_a_change_through_a_view_that_fails_is_undone(session: tg.Session) -> None:
    source = tg.randn(3)
    x = tg.ones(2, 3, requires_grad=True)
    y = x * 2
    bad = source[out_of_range(3)]
    y[0].mul_(bad)
    y[1] = bad
    lost = y.sum()
    with pytest.raises(IndexError):
        session.flush()
    with pytest.raises(IndexError):
        lost.item()
    assert y._version == 0
    y[1].mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [[2.0] * 3, [6.0] * 3]


SHARERS = {
    "a view": lambda x: x.view(-1),
    "a row": lambda x: x[0],
    "one of several views": lambda x: x.unbind(0)[1],
    "a view of a view": lambda x: x.t()[0],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
}


def lose(session: tg.Session, share: Any) -> None:
    source = tg.randn(3)
    x, other = tg.ones(2, 3), tg.ones(2, 3)
    shares, others = share(x), [share(other) for _ in range(150)]
    for _ in range(150):
        share(x)
    session.flush()
    x.add_(source[out_of_range(3)])
    lost, untouched = shares * 2, [each * 2 for each in (other, others[0], others[-1])]
    with pytest.raises(IndexError):
        session.flush()
    with pytest.raises(IndexError):
        lost.tolist()
    assert all(bool((each == 2).all()) for each in untouched)


@pytest.mark.parametrize("sharer", SHARERS)
def test_what_shares_memory_with_a_lost_change_is_lost(session: tg.Session, sharer: str) -> None:
    lose(session, SHARERS[sharer])


def test_a_view_under_inference_mode_is_lost_too(session: tg.Session) -> None:
    with tg.inference_mode():
        lose(session, SHARERS["a view"])


def test_a_view_whose_base_has_no_handle_is_lost_with_it(session: tg.Session) -> None:
    source, x = tg.randn(3), tg.ones(3)
    one, two = x.view(-1), x.detach()
    del x
    session.flush()
    one.add_(source[out_of_range(3)])
    lost = two * 2
    with pytest.raises(IndexError):
        session.flush()
    with pytest.raises(IndexError):
        lost.tolist()


def test_what_is_drawn_and_uploaded_after_a_failure_is_there(session: tg.Session) -> None:
    x = tg.ones(3)
    x[out_of_range(1)]
    drawn, given = tg.rand(4), tg.tensor([1.0, 2.0])
    total = drawn.sum() + given.sum()
    with pytest.raises(IndexError):
        session.flush()
    assert total.item() == pytest.approx(sum(drawn.tolist()) + 3.0)
