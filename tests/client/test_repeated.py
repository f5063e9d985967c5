"""A repeated call is recorded exactly as the first one was.

Internals: ops that have no public name are called too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.tensor.handle import functions
from telegrad_engine import dtypes
from telegrad_engine.context import observed_by
from telegrad_engine.instrumentation import Observer
from telegrad_engine.schema.op import CATALOGUE, Op
from tests.engine import oracle

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case

OPS = [op for op in CATALOGUE if cases_of(op) and not op.private and not op.random and not op.factory and not op.truth]


class Watching(Observer):
    sees_ops = True


@pytest.fixture(scope="module")
def local() -> Iterator[tg.Session]:
    with tg.connect("local://") as session:
        yield session


def bits(array: np.ndarray) -> bytes:
    """The bytes of an array, without the sign of a NaN, since a plan may add two numbers in the other order."""
    return (np.where(array == array, array, np.abs(array)) if array.dtype.kind == "f" else array).tobytes()


def called(op: Op, case: Case, arrays: dict[int, np.ndarray]) -> tuple[Any, Any]:
    """A call, and its results, which are recorded, or its error."""
    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), dtypes)
    return call, oracle.attempt(lambda: oracle.our_function(op, functions)(*call.args, **call.kwargs))


def outcome(op: Op, case: Case, arrays: dict[int, np.ndarray]) -> list[Any]:
    """The metadata of a call's results before anything is sent, then their values and gradients."""
    call, results = called(op, case, arrays)
    if isinstance(results, oracle.Failure):
        return [results.kind, results.text]
    seen: list[Any] = [(tuple(r.shape), r.dtype, r.requires_grad, r.is_leaf, r._version) for r in results]
    seen += [(r.grad_fn.name(), r.output_nr, len(r.grad_fn.next_functions)) for r in results if r.grad_fn is not None]
    seen += [r._base is not None for r in results]
    tracked = [r for r in results if r.requires_grad and r.grad_fn is not None]

    def values() -> list[Any]:
        grads: Any = []
        if tracked and call.inputs:
            grads = tg.autograd.grad(tracked, call.inputs, [tg.ones_like(t) for t in tracked], allow_unused=True)
        return [None if t is None else bits(t.detach().numpy()) for t in [*results, *grads]]

    found = oracle.attempt(values)
    return [*seen, found.kind, found.text] if isinstance(found, oracle.Failure) else [*seen, *found]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_the_fourth_recording_is_the_first(op: Op, local: tg.Session) -> None:
    for case in cases_of(op)[:5]:
        for dtype in ("float32", "int64"):
            try:
                arrays = oracle.arrays_of(case, np.dtype(dtype))
            except (ValueError, OverflowError):
                continue
            with observed_by(Watching()):  # no cached call is used here
                first = outcome(op, case, arrays)
            for _ in range(2):
                called(op, case, arrays)
            assert outcome(op, case, arrays) == first, f"{op.key} {case} {dtype}"


def test_tensors_of_two_sessions_are_told_apart_the_fourth_time_too() -> None:
    with tg.connect("local://") as one, tg.connect("local://") as two:
        assert one is not two
        y = tg.ones(2, 2)
        with tg.connect("local://"):
            x = tg.ones(2, 2)
            for _ in range(4):
                x + x.t()
            with pytest.raises(RuntimeError, match="same session"):
                x + y


def test_parameters_are_remembered_as_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with tg.connect("local://"):
        layer, x = tg.nn.Linear(3, 2), tg.ones(4, 3)
        for _ in range(3):
            layer(x)
        monkeypatch.setattr(CATALOGUE.get("linear"), "rule", None)
        assert layer(x).grad_fn.name() == "AddmmBackward0"


def changes(lib: Any, round_: int) -> list[Any]:
    """Change tensors in place in many ways, and return values, versions and errors."""
    seen: list[Any] = []
    x, y, ints = lib.ones(2, 3), lib.full((2, 3), 2.0), lib.tensor([1, 2])
    weight, view = lib.ones(2, 3, requires_grad=True), x[0]
    with lib.no_grad():
        made_untracked = weight * 1.0
        for change in (
            lambda: x.add_(1.0).mul_(y).sub_(round_ * 0.5),
            lambda: x.mul_(0.9).add_(weight, alpha=0.1 * round_),
            lambda: view.add_(1.0),
            lambda: x.add_(x).add_(x.detach()),
            lambda: x.t().add_(1.0),
            lambda: ints.add_(round_).clamp_(0, 3),
            lambda: ints.add_(0.5),
            lambda: x.add_(ints[0]),
            lambda: x.clamp_(-5.0, 40.0 + round_).neg_().zero_().fill_(round_),
            lambda: x.addcmul_(y, weight, value=0.5),
            lambda: y.expand(3, 2, 3).add_(1.0),
            lambda: x.add_(lib.ones(4, 3)),
            lambda: weight.add_(1.0).mul_(weight),
            lambda: made_untracked.add_(weight),
            lambda: x.copy_(weight).relu_(),
        ):
            seen.append(attempted(change))
    for change in (
        lambda: weight.add_(1.0),
        lambda: (weight * 2).add_(1.0).mul_(y).sum().backward(),
        lambda: x.add_(weight).mul_(2.0).sum().backward(),
        lambda: y.mul_(y).add_(y),
        lambda: y.detach().add_(1.0),
    ):
        seen.append(attempted(change))
    z = weight * y
    w = z * z
    z.data.add_(1.0)
    y.add_(1.0)
    seen += [attempted(lambda: w.sum().backward()), weight.grad, x, y, view, ints, weight.detach()]
    versions = [t._version for t in (x, y, ints, weight, view)]
    return [*[one if one is None or isinstance(one, str) else one.tolist() for one in seen], versions]


def attempted(change: Any) -> str | None:
    try:
        change()
    except RuntimeError as error:
        return str(error)[:60]
    return None


def test_repeated_changes_in_place_are_those_of_torch(local: tg.Session) -> None:
    for round_ in range(5):
        ours, expected = changes(tg, round_), changes(torch, round_)
        for own, wanted in zip(ours, expected, strict=True):
            assert own == wanted or np.allclose(np.array(own), np.array(wanted)), round_


def test_repeated_changes_in_place_are_undone_with_a_failed_one(server: str) -> None:
    with tg.connect(server):
        for _ in range(4):
            x, y = tg.ones(3), tg.ones(3)
            broken = tg.ones(3).index_select(0, tg.tensor([1.0, 5.0, 2.0]).long())
            x.add_(broken)
            y.add_(1.0)
            with pytest.raises(IndexError):
                x.tolist()
            assert y.tolist() == [2.0, 2.0, 2.0]
            assert (x._version, y._version) == (0, 1)
