"""Errors name the line that caused them, in torch's words, and the session stays usable.

Internals: only its recorder says which session a tensor is in.
"""

from __future__ import annotations

import gc
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_engine.errors import ConnectionFailed, UnknownTensor

from .parity import held, same_error


def here() -> int:
    """The line number of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.zeros(2, 3) @ lib.zeros(2, 3),
        lambda lib: lib.zeros(2, 3) + lib.zeros(4),
        lambda lib: lib.zeros(2, 3).reshape(4),
        lambda lib: lib.zeros(2, 3).sum(2),
        lambda lib: lib.zeros(3)[5],
        lambda lib: lib.tensor([[1.0], [2.0, 3.0]]),
        lambda lib: lib.tensor([1, 2], requires_grad=True),
        lambda lib: lib.tensor([1, 2]).requires_grad_(),
        lambda lib: lib.zeros(2).backward(),
        lambda lib: lib.tensor([1.0, 2.0], requires_grad=True).exp().backward(),
        lambda lib: lib.zeros(3).item(),
        lambda lib: lib.ones(2, requires_grad=True).add_(1),
        lambda lib: lib.ones(2, requires_grad=True)[0].add_(1),
        lambda lib: lib.ones(2, requires_grad=True).numpy(),
        lambda lib: lib.ones(2, dtype=lib.int64).mul_(0.5),
        lambda lib: lib.zeros(2).retain_grad(),
        lambda lib: (lib.ones(2, requires_grad=True) * 2).requires_grad_(False),
        lambda lib: lib.cat([lib.zeros(2, 2), lib.zeros(3)]),
        lambda lib: lib.autograd.grad(lib.ones(2, requires_grad=True).sum(), lib.ones(2)),
        lambda lib: lib.nn.functional.dropout(lib.ones(2), 1.5),
        lambda lib: lib.nn.functional.cross_entropy(lib.zeros(3, 2), lib.zeros(4, dtype=lib.int64)),
        lambda lib: lib.nn.functional.cross_entropy(lib.zeros(4, 3), lib.tensor([0, 1, 2, 7])),
        lambda lib: lib.nn.functional.cross_entropy(lib.zeros(4, 3), lib.tensor([[0, 1], [-1, 2]]).view(-1)),
        lambda lib: lib.nn.functional.cross_entropy(lib.zeros(3, 3), lib.tensor([1, 6, 7])),
        lambda lib: lib.nn.functional.nll_loss(lib.zeros(2, 3), lib.tensor([0, 1, 0, 7])[2:]),
        lambda lib: lib.nn.functional.embedding(lib.tensor([[0, 4]]), lib.zeros(4, 3)),
        lambda lib: lib.nn.functional.one_hot(lib.tensor([0, 5]), 3),
        lambda lib: lib.nn.functional.one_hot(lib.tensor([0, -1]), 3),
        lambda lib: lib.zeros(4, 3).gather(1, lib.tensor([[3]])),
        lambda lib: lib.zeros(4, 3).index_select(0, lib.tensor([4])),
        lambda lib: lib.zeros(4, 3)[lib.tensor([5])],
        lambda lib: lib.zeros(4, 3)[[0, 9]],
        lambda lib: lib.zeros(4, 3).__setitem__(lib.tensor([4]), 1.0),
        lambda lib: lib.zeros(4, 3).take(lib.tensor([12])),
        lambda lib: lib.zeros(4, 3).scatter(1, lib.tensor([[3]]), lib.ones(1, 1)),
        lambda lib: lib.zeros(4, 3).scatter(1, lib.tensor([[3]]), 1.0),
        lambda lib: lib.zeros(4, 3).scatter_add(1, lib.tensor([[3]]), lib.ones(1, 1)),
        lambda lib: lib.zeros(4, 3).scatter_reduce(1, lib.tensor([[3]]), lib.ones(1, 1), "sum"),
        lambda lib: lib.zeros(4, 3).index_add_(0, lib.tensor([4]), lib.ones(1, 3)),
        lambda lib: lib.zeros(4, 3).index_copy(0, lib.tensor([4]), lib.ones(1, 3)),
        lambda lib: lib.zeros(4, 3).index_fill(0, lib.tensor([4]), 1.0),
        lambda lib: lib.zeros(4, 3).index_put((lib.tensor([4]),), lib.ones(())),
    ],
)
def test_a_mistake_raises_on_the_users_line_without_a_request(
    session: tg.Session, function: Callable[[Any], Any]
) -> None:
    error = same_error(function)
    mine = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
    assert mine[-1].name == "<lambda>"
    assert session.requests == 0
    assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]


def test_a_second_backward_raises_at_once(session: tg.Session) -> None:
    def run(lib: Any) -> None:
        y = lib.tensor([1.0, 2.0], requires_grad=True).exp().sum()
        y.backward()
        y.backward()

    same_error(run, "Trying to backward through the graph a second time")
    assert session.requests == 0


def test_a_modified_saved_tensor_raises_at_once(session: tg.Session) -> None:
    def run(lib: Any) -> None:
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        y = x.sigmoid()
        z = y.sum()
        y.mul_(2)
        z.backward()

    same_error(run, "modified by an inplace operation")
    assert session.requests == 0


def test_a_mistake_about_gradients_is_not_recorded(session: tg.Session) -> None:
    logits, weight = tg.zeros(2, 3, requires_grad=True), tg.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'weight'"):
        tg.nn.functional.nll_loss(logits, tg.tensor([0, 1]), weight)
    assert logits.sum().item() == 0.0
    gc.collect()
    session.flush()


def test_a_backward_that_raises_leaves_no_gradients(session: tg.Session) -> None:
    a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    for create_graph in (False, True):
        y = a.sigmoid()
        z = (b * 3).sum() + y.sum()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward(create_graph=create_graph)
    assert a.grad is None
    assert b.grad is None
    (b * 2).sum().backward()
    assert b.grad is not None
    assert b.grad.tolist() == [2.0, 2.0]


def test_an_unused_input_raises_as_in_torch(session: tg.Session) -> None:
    def run(lib: Any) -> None:
        x, y = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
        lib.autograd.grad((x * 2).sum(), [x, y])

    same_error(run, "Set allow_unused=True")


def test_wrong_labels_raise_inside_the_try_of_a_loop_that_recurs(session: tg.Session) -> None:
    model = tg.nn.Linear(4, 3)
    inputs = tg.randn(2, 4)
    for step in range(12):
        labels = tg.tensor([0, 3 if step in (1, 7, 10) else 2])
        model.zero_grad()
        try:
            loss = tg.nn.functional.cross_entropy(model(inputs), labels)
        except IndexError:
            assert step in (1, 7, 10)
            continue
        assert step not in (1, 7, 10)
        loss.backward()
        assert model.weight.grad is not None
        assert loss.item() > 0


def test_labels_that_were_changed_are_not_judged_by_what_they_were(session: tg.Session) -> None:
    logits, labels = tg.zeros(2, 3), tg.tensor([5, 6])
    first = labels[:1]
    labels.sub_(5)
    assert tg.nn.functional.cross_entropy(logits, labels).item() > 0
    assert tg.nn.functional.cross_entropy(logits[:1], first).item() > 0
    labels.add_(5)
    lost = tg.nn.functional.cross_entropy(logits, labels)
    with pytest.raises(IndexError, match="is out of bounds"):
        lost.item()
    ignored = tg.tensor([5, 1])
    assert tg.nn.functional.cross_entropy(logits, ignored, ignore_index=5).item() > 0
    other = tg.tensor([0, 0])
    ignored.data = other
    assert tg.nn.functional.cross_entropy(logits, ignored).item() > 0


# Errors that depend on values -----------------------------------------------------------------


def test_an_error_in_the_values_surfaces_at_the_next_look_and_names_the_line(session: tg.Session) -> None:
    logits = tg.zeros(2, 3)
    line = here() + 1
    loss = tg.nn.functional.cross_entropy(logits, tg.tensor([0, 7]) + 0)
    after = loss * 2
    assert session.requests == 0
    with pytest.raises(IndexError, match="Target 7 is out of bounds") as caught:
        print(after)
    (note,) = caught.value.__notes__
    assert f"{__file__}:{line}" in note
    assert "nll_loss" in note
    assert "tg.debug(True) raises it there" in note


def test_after_an_error_the_session_is_whole(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    before = x * 2
    bad = x[tg.tensor([5]) + 0]
    after, spared = bad + 1, before + 1
    with pytest.raises(IndexError, match="out of bounds"):
        before.tolist()
    assert before.tolist() == [2.0, 4.0, 6.0]
    assert spared.tolist() == [3.0, 5.0, 7.0]
    assert x.sum().item() == 6.0
    # Ops that depend on the failed one never ran: each use raises its error.
    for lost in (bad, after):
        with pytest.raises(IndexError, match="out of bounds"):
            lost.tolist()
        with pytest.raises(IndexError, match="out of bounds"):
            lost + 1
    del bad, after, lost
    (before * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


def test_flush_raises_too(session: tg.Session) -> None:
    tg.zeros(3).index_select(0, tg.tensor([9]) + 0)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        session.flush()
    session.flush()


def test_the_note_repeats_for_each_error_not_on_one(session: tg.Session) -> None:
    bad = tg.zeros(3)[tg.tensor([9]) + 0]
    for _ in range(3):
        with pytest.raises(IndexError) as caught:
            bad.item()
    assert len(caught.value.__notes__) == 1


# Sessions ------------------------------------------------------------------------------------------


def test_two_sessions_do_not_mix(address: str) -> None:
    with tg.connect(address) as first, tg.connect(address) as second:
        y = tg.ones(2)
        assert y._recorder is second.recorder
        second.close()
        with tg.connect(address):
            z = tg.ones(2)
            with pytest.raises(RuntimeError, match="Expected all tensors to be in the same session"):
                z + y
    assert first.closed


def test_what_was_made_before_connecting_says_so(server: str) -> None:
    with tg.connect("local://"):
        early = tg.ones(2)
        with tg.connect(server), pytest.raises(RuntimeError, match=r"What is made before telegrad\.connect is in a"):
            early + tg.ones(2)


def test_an_error_of_a_call_has_no_other_before_it(session: tg.Session) -> None:
    for size in (3, 3, 4):
        with pytest.raises(RuntimeError) as raised:
            tg.ones(2, size) + tg.ones(size + 2)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_two_sessions_work_side_by_side(address: str) -> None:
    with tg.connect(address, seed=1), tg.connect(address, seed=1) as second:
        y = tg.ones(2)
        assert tg.current() is second
        with tg.connect(address, seed=1) as third:
            z = tg.zeros(2)
            assert (third.requests, second.requests) == (0, 0)
            assert (z + 1).tolist() == (y * 1).tolist() == [1.0, 1.0]
            assert (third.requests, second.requests) == (1, 1)


def test_after_a_session_the_one_before_it_is_current_again(address: str) -> None:
    with tg.connect(address) as outer:
        with tg.connect(address) as inner:
            assert tg.current() is inner
        assert tg.current() is outer
        innermost = tg.connect(address)
        with tg.connect(address):
            innermost.close()
        assert tg.current() is outer
        assert tg.ones(1).item() == 1.0


def test_a_session_lives_as_long_as_its_tensors(server: str) -> None:
    def sessions() -> int:
        return len(httpx.get(f"{server}/v1/sessions", params={"limit": 1000}).json()["items"])

    before = sessions()
    tg.connect(server)
    x = tg.ones(2)
    with tg.connect("local://"):
        gc.collect()
        assert x.tolist() == [1.0, 1.0]
        assert sessions() == before + 1
    x._recorder.close()
    assert sessions() == before


def test_what_never_ran_is_forgotten_with_its_handles(session: tg.Session) -> None:
    x = tg.ones(3)

    def fail() -> None:
        bad = x[tg.tensor([7]) + 0]
        after = bad + x
        with pytest.raises(IndexError):
            after.tolist()
        with pytest.raises(IndexError):
            after + 1

    fail()
    gc.collect()
    session.flush()
    assert list(held(session).values()) == [[3]]
    assert not session.recorder.failed


def test_the_seed_makes_a_session_repeatable(address: str) -> None:
    drawn = []
    for _ in range(2):
        with tg.connect(address, seed=42):
            drawn.append((tg.randn(3).tolist(), tg.nn.Linear(2, 2).weight.tolist(), tg.randperm(5).tolist()))
    assert drawn[0] == drawn[1]
    with tg.connect(address, seed=42):
        tg.manual_seed(7)
        first = tg.rand(3).tolist()
        tg.manual_seed(7)
        assert tg.rand(3).tolist() == first


def test_the_sessions_dtype_is_that_of_new_tensors(address: str) -> None:
    with tg.connect(address, dtype=tg.float64) as session:
        made = [tg.zeros(2), tg.tensor([1.5]), tg.rand(2), tg.tensor([1, 2]) / 2, tg.nn.Linear(2, 2).weight]
        assert [t.dtype for t in made] == [tg.float64] * 5
        assert session.requests == 0
        assert [t.detach().numpy().dtype.name for t in made] == ["float64"] * 5


def test_the_environment_names_the_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_URL", address)
    with tg.connect() as session:
        assert session.url == address
        assert tg.ones(1).item() == 1.0


def test_without_a_name_everything_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TELEGRAD_URL", raising=False)
    with tg.connect() as session:
        assert session.url == "local://"


def test_a_closed_session_says_so(address: str) -> None:
    session = tg.connect(address)
    x = tg.ones(2)
    assert x.tolist() == [1.0, 1.0]
    session.close()
    session.close()
    assert "closed" in repr(session)
    for use in (lambda: x + 1, lambda: x.tolist(), session.flush):
        with pytest.raises(RuntimeError, match=r"session \S+ is closed"):
            use()
    with tg.connect(address):
        assert tg.ones(1).item() == 1.0


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ConnectionFailed, match=r"cannot reach http://127.0.0.1:9.*telegrad serve"):
        tg.connect("http://127.0.0.1:9")
    with pytest.raises(ConnectionError):
        tg.connect("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="an address starts with"):
        tg.connect("ftp://example.org")


def test_a_session_that_the_server_ended_is_an_error(server: str) -> None:
    with tg.connect(server) as session:
        x = tg.ones(2)
        x.tolist()
        transport: Any = session.recorder.transport
        httpx.delete(f"{server}/v1/sessions/{transport.session_id}").raise_for_status()
        with pytest.raises(LookupError):
            (x + 1).tolist()


def test_an_unknown_name_is_an_attribute_error(session: tg.Session) -> None:
    with pytest.raises(AttributeError, match=r"sigmoyd.*sigmoid"):
        tg.sigmoyd  # noqa: B018
    with pytest.raises(AttributeError):
        tg.ones(2).no_such_method()  # type: ignore[attr-defined]
    assert not hasattr(tg, "no_such_function")
    assert issubclass(UnknownTensor, LookupError)


def test_a_view_that_the_strides_do_not_allow_is_refused_at_once(session: tg.Session) -> None:
    for _ in range(3):
        x = tg.ones(2, 3)
        with pytest.raises(RuntimeError, match="view size is not compatible with input tensor's size and stride"):
            x.t().view(6)
        assert x.t().view(3, 2, 1).shape == (3, 2, 1)
        assert x.t().contiguous().view(6).sum().item() == 6
