"""Instructions are recorded, and sent when a value is read."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import held, same


def test_nothing_is_sent_before_a_value_is_needed_and_knowing_nothing_new_is_no_request(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(100):
        y = (x * x).sum()
    y.backward()
    assert x.grad is not None
    assert (x.grad.shape, session.requests) == ((3,), 0)
    assert (y.item(), session.requests) == (14.0, 1)
    session.flush()
    assert session.requests == 1
    assert (x.grad.tolist(), session.requests) == ([2.0, 4.0, 6.0], 2)


def test_flush_sends_without_asking(session: tg.Session) -> None:
    x = tg.ones(3) + 1
    session.flush()
    assert session.requests == 1
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_a_long_recording_is_sent_in_parts(session: tg.Session) -> None:
    x = tg.zeros(())
    for _ in range(25_000):
        x = x + 1
    assert 0 < session.requests <= 25
    assert x.item() == 25_000


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.tensor([1, 2, 3]) / 2,
        lambda lib: lib.tensor([1, 2, 3], dtype=lib.int32) + 5,
        lambda lib: lib.tensor([1, 2, 3]) + lib.tensor([0.5]),
        lambda lib: lib.arange(6).reshape(2, 3).sum(0, keepdim=True),
        lambda lib: lib.ones(2, 1, 3) + lib.ones(4, 1),
        lambda lib: lib.tensor([True, False]) & lib.tensor(True),
        lambda lib: lib.tensor([[1.0, 5.0], [7.0, 2.0]]).max(dim=1),
        lambda lib: lib.cat([lib.zeros(2, 2), lib.ones(1, 2)]),
        lambda lib: lib.arange(10)[2:8:3],
        lambda lib: lib.zeros(0, 3).sum(1),
        lambda lib: lib.tensor(2.5, dtype=lib.float64).unsqueeze(0),
    ],
)
def test_shapes_and_dtypes_are_known_at_once(session: tg.Session, function: object) -> None:
    result = function(tg)  # type: ignore[operator]
    expected = function(torch)  # type: ignore[operator]
    for ours, theirs in zip(
        result if isinstance(result, tuple) else [result],
        expected if isinstance(expected, tuple) else [expected],
        strict=True,
    ):
        assert (tuple(ours.shape), f"torch.{ours.dtype.name}") == (tuple(theirs.shape), str(theirs.dtype))
    assert session.requests == 0
    same(function)


def test_a_boolean_mask_asks_for_the_shape_only(session: tg.Session) -> None:
    x = tg.tensor([1.0, -2.0, 3.0, -4.0], requires_grad=True)
    picked = x[x > 0]
    assert (picked.shape, session.requests) == ((2,), 1)
    (picked * 3).sum().backward()
    assert session.requests == 1
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 0.0, 3.0, 0.0]
    assert tg.nonzero(x > 0).tolist() == [[0], [2]]


def test_writing_through_a_boolean_mask(session: tg.Session) -> None:
    def run(lib: object) -> object:
        x = lib.tensor([1.0, -2.0, 3.0, -4.0], requires_grad=True)  # type: ignore[attr-defined]
        y = x * 2
        y[y < 0] = 0.0
        (y * y).sum().backward()
        return y, x.grad

    same(run)


# Reading ----------------------------------------------------------------------------------------


def test_a_tensor_converts_to_python_and_numpy(session: tg.Session) -> None:
    x = tg.tensor([[1.5, -2.0]])
    assert x.tolist() == [[1.5, -2.0]]
    assert x.numpy().dtype == np.float32
    assert np.asarray(x).shape == (1, 2)
    assert (float(x[0, 0]), int(tg.tensor(7)), tg.tensor([3]).item()) == (1.5, 7, 3)
    assert [10, 20, 30][tg.tensor(1)] == 20
    assert f"{tg.tensor(3.14159):.2f}" == "3.14"
    assert [row.tolist() for row in tg.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert len(x) == 1


def test_code_without_a_module_name_can_record(session: tg.Session) -> None:
    names: dict[str, Any] = {"tg": tg}
    for _ in range(5):  # until the line is known
        exec("y = (tg.ones(2) + 1).tolist()", names)
        assert names["y"] == [2.0, 2.0]


def test_the_arrays_that_come_back_are_the_users_own(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0])
    array = x.numpy()
    array[0] = 100.0
    assert x.tolist() == [1.0, 2.0]
    given = np.array([1.0, 2.0])
    y = tg.tensor(given)
    given[0] = 100.0
    assert y.tolist() == [1.0, 2.0]


def test_truth_is_the_value(session: tg.Session) -> None:
    assert tg.tensor(2.0) > 1
    assert not tg.tensor([0])
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(tg.tensor([1, 2]))


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.tensor([1.0, 2.5]),
        lambda lib: lib.tensor([[1, 2], [3, 4]]),
        lambda lib: lib.tensor(1.0, requires_grad=True),
        lambda lib: lib.tensor([1.0], requires_grad=True, dtype=lib.float64) + 1,
        lambda lib: lib.tensor([True, False]),
        lambda lib: lib.zeros(0),
        lambda lib: lib.arange(2000.0),
        lambda lib: lib.tensor([1e-9, 1.0, float("nan"), float("-inf")]),
    ],
)
def test_printing_is_as_in_torch(session: tg.Session, function: object) -> None:
    for text in (repr, str, format):
        shown = text(function(tg))  # type: ignore[operator]
        assert "torch" not in shown
        assert shown.replace("telegrad.", "torch.") == text(function(torch))  # type: ignore[operator]


# Freeing ----------------------------------------------------------------------------------------


def test_a_handle_that_dies_frees_the_tensor(session: tg.Session) -> None:
    x = tg.ones(3)
    y = x + 1
    z = y * 2
    assert z.tolist() == [4.0, 4.0, 4.0]
    assert len(held(session)) == 3
    del y
    assert len(held(session)) == 2
    del x, z
    assert held(session) == {}


def test_a_loop_holds_no_more_after_a_hundred_rounds_than_after_one(session: tg.Session) -> None:
    x = tg.ones(4, requires_grad=True)
    for turn in range(100):
        x.grad = None
        loss = ((x * 2 + 1).exp().sigmoid()).sum()
        loss.backward()
        assert x.grad is not None
        x.grad.sum().item()
        assert turn not in (0, 1, 99) or len(held(session)) == 3


def test_the_graph_keeps_what_a_dead_handle_showed(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    z = (y * y).sum()
    del y
    gc.collect()
    session.flush()
    z.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([2.0, 4.0]), rtol=1e-6)


def test_two_handles_on_one_tensor_die_apart(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    v = tg.tensor([1.0, 1.0])
    y = x * 3
    (first,) = tg.autograd.grad(y, y, v, create_graph=True)
    del first
    assert v.tolist() == [1.0, 1.0]
    one, other = tg.autograd.grad(y.sum(), [x, x], create_graph=True)
    assert one.tolist() == other.tolist()
    del one
    session.flush()
    assert other.tolist() == [3.0, 3.0]
    y.sum().backward()
    grad = x.grad
    assert grad is not None
    x.grad = None
    assert grad.tolist() == [3.0, 3.0]


def test_copies_are_tensors_of_their_own(session: tg.Session) -> None:
    import copy
    import pickle

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    with tg.no_grad():
        y += 1
    assert (x.tolist(), y.tolist(), y.requires_grad) == ([1.0, 2.0], [2.0, 3.0], True)
    assert y.grad is not None
    assert y.grad.tolist() == [2.0, 4.0]
    del y
    assert x.tolist() == [1.0, 2.0]
    z = pickle.loads(pickle.dumps(x))
    assert (z.tolist(), z.requires_grad, z.is_leaf, z.grad) == ([1.0, 2.0], True, True, None)
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        copy.deepcopy(x * 2)
