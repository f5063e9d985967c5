"""What a compiled program leaves behind, graph, memory and errors, is what it would have left eagerly.

Internals: the engine's tensors behind the SDK's are compared: their versions, bases and gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction

from .remembering import Remembering, array, connect, engine_tensor, last, numbers, runs_planned

# What is left --------------------------------------------------------------------------------------------------------


def rounds(lib: Any, w: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Steps that leave a loss, what it was computed from, and a view of that."""
    for step in range(14):
        w.grad = None
        x = numbers(lib, (3, 4), step)
        hidden = (x @ w).tanh()
        row = hidden[1]
        loss = (hidden * 2).sum()
        loss.backward()
        with lib.no_grad():
            w -= 0.1 * w.grad
        loss.item()
        yield loss, hidden, row


def test_tensors_that_are_left_are_what_they_would_be(session: Remembering) -> None:
    w = numbers(tg, (4, 2), 0).requires_grad_()
    twin = numbers(torch, (4, 2), 0).requires_grad_()
    for (loss, hidden, row), (their_loss, their_hidden, their_row) in zip(
        rounds(tg, w), rounds(torch, twin), strict=True
    ):
        names = [session.tensors[t._id] for t in (loss, hidden, row)]
        for ours, theirs in zip(names, (their_loss, their_hidden, their_row), strict=True):
            assert ours.is_leaf == theirs.is_leaf and ours.requires_grad == theirs.requires_grad
            assert ours.grad_fn.name() == theirs.grad_fn.name()
            assert ours._version == theirs._version and ours.grad is None
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-7)
        assert [f.name() for f, _ in names[0].grad_fn.next_functions] == ["MulBackward0"]
        assert names[2]._base is names[1] or names[2]._base is None or names[2]._base._data is names[1]._data
        assert session.tensors[w._id]._version == twin._version
    assert runs_planned(session)
    with pytest.raises(RuntimeError, match="second time"):
        session.tensors[loss._id].backward()
    with tg.no_grad():
        hidden.zero_()
    assert row.tolist() == [0.0, 0.0]  # a view of it still
    assert w.grad.zero_().sum().item() == 0.0
    assert session.tensors[w._id].grad.tolist() == np.zeros((4, 2)).tolist()


def test_a_gradient_that_was_passed_on_has_its_own_memory(session: Remembering) -> None:
    w, seed = numbers(tg, (3,), 0).requires_grad_(), numbers(tg, (3,), 1)
    expected = seed.tolist()
    for _ in range(8):
        w.grad = None
        (w + 1).backward(seed)
        assert w.grad is not None
        assert w.grad.tolist() == expected
        w.grad.zero_()
        assert seed.tolist() == expected
    assert runs_planned(session)


def test_a_gradient_lies_in_row_major_order_and_is_summed_alike() -> None:
    """A norm over gradients, as for clipping, sees the same order of the same numbers in every run."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((37, 53)).astype(np.float32)

    def rounds(session: Remembering) -> list[Any]:
        found: list[Any] = []
        weight = tg.tensor(values, requires_grad=True)
        for _ in range(6):
            weight.grad = None
            (tg.tensor(values).t().exp() * weight.t().sin()).sum().backward()
            assert weight.grad is not None
            found.append((weight.grad.sum() + (weight.grad * weight.grad).sum(1).sqrt().sum()).item())
            assert session.get(weight.grad._id)._data.flags.c_contiguous
        return found

    assert rounds(connect(Compiler(after=2, choose=False))) == rounds(connect(None))


def test_a_view_made_under_no_grad_is_used_while_its_base_stays_as_it_was(session: Remembering) -> None:
    """As in torch, it could not be used if its base had been modified since."""

    def rounds(lib: Any) -> Any:
        w = numbers(lib, (3,), 0).requires_grad_()
        base = w * 1
        base.mul_(2)
        base.sum().item()
        for step in range(8):
            x = numbers(lib, (3,), step)
            with lib.no_grad():
                part = base[:2]
            (x * 2).sum().item()
            yield (part * 2).tolist()

    for ours, theirs in zip(rounds(tg), rounds(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_memory_is_counted_as_ever(session: Remembering) -> None:
    def used(here: Remembering) -> list[tuple[int, int]]:
        w = numbers(tg, (4, 2), 0).requires_grad_()
        return [(here.accounts.used_bytes, len(here.tensors)) for _ in rounds(tg, w)]

    planned = used(session)
    assert runs_planned(session)
    assert planned == used(connect(None))


def test_a_session_that_is_nearly_full_says_so(session: Remembering) -> None:
    x = numbers(tg, (8, 8), 0)
    for _ in range(6):
        (((x + 1) * 2).exp() @ x).sum().item()
    assert runs_planned(session)
    session.accounts.max_bytes = session.accounts.used_bytes + 300
    with pytest.raises(TelegradError, match=r"too many|more than|there is room"):
        (((x + 1) * 2).exp() @ x).sum().item()


# Errors --------------------------------------------------------------------------------------------------------------


def test_a_name_that_exists_or_does_not_is_the_error_that_it_is_eagerly() -> None:
    here = Remembering(Compiler(after=2, choose=False))

    def program(x: str, y: str) -> list[Instruction]:
        return [
            Instruction("neg", (x,), (y,)),
            Instruction("exp", (y,), ("z",)),
            Instruction("fetch", (("z",),)),
            Instruction("free", (("z",),)),
            Instruction("free", ((y,),)),
        ]

    here.tensors["x"] = engine_tensor([1.0, 2.0])
    for _ in range(5):
        here.run(program("x", "y"))
    assert last(here).reason is None
    with pytest.raises(TelegradError, match="no tensor 'gone'"):
        here.run(program("gone", "y"))
    here.tensors["there"] = engine_tensor([1.0])
    with pytest.raises(TelegradError, match="there is a tensor 'there' already"):
        here.run(program("x", "there"))
    assert set(here.tensors) == {"x", "there"}


def test_a_nan_in_pooling_is_as_torch_has_it(session: Remembering) -> None:
    def run(lib: Any) -> list[Any]:
        seen = []
        for step in range(7):
            x = numbers(lib, (1, 1, 4, 4), step)
            values = array(x).astype(np.float32)
            values[0, 0, 0, 1] = np.nan if step == 5 else 0.0
            x = lib.tensor(values, requires_grad=True)
            y = lib.nn.functional.max_pool2d(x * 1.5, 2)
            y.sum().backward()
            seen += [y.detach().sum().item(), *x.grad.flatten().tolist()]
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-5)
