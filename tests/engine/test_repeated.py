"""A call that was made before, with other values in the same shapes and dtypes, gives what the long way gives."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.context import observed_by
from telegrad_engine.instrumentation import Observer
from telegrad_engine.schema.op import CATALOGUE, Op

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle

F = tg.functions
OPS = [op for op in CATALOGUE if cases_of(op) and not op.random and not op.factory and not op.truth]


class Watching(Observer):
    sees_ops = True


@contextmanager
def the_long_way() -> Iterator[None]:
    """Nothing that is remembered is used inside."""
    with observed_by(Watching()):
        yield


def shuffled(arrays: dict[int, np.ndarray], seed: int) -> dict[int, np.ndarray]:
    """The same numbers in other places."""
    rng = np.random.default_rng(seed)
    return {key: rng.permutation(array.reshape(-1)).reshape(array.shape) for key, array in arrays.items()}


def outcome(op: Op, case: Case, arrays: dict[int, np.ndarray]) -> list[Any]:
    """Everything that a user could see of a call: its results, their place in the graph, and the gradients."""
    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    results = oracle.attempt(lambda: oracle.our_function(op)(*call.args, **call.kwargs))
    if isinstance(results, oracle.Failure):
        return [results.kind, results.text]
    seen: list[Any] = [(r.dtype, tuple(r.shape), r.requires_grad, r._base is not None, r._version) for r in results]
    seen += [(r.grad_fn.name(), r.output_nr) for r in results if r.grad_fn is not None]
    tracked = [r for r in results if r.requires_grad and r.grad_fn is not None]
    grads = []
    if tracked and call.inputs:
        seeds = [tg.tensor(a, dtype=str(t.dtype)) for a, t in zip(oracle.random_like(tracked, 3), tracked, strict=True)]
        grads = oracle.attempt(lambda: autograd.grad(tracked, call.inputs, seeds, allow_unused=True))
        if isinstance(grads, oracle.Failure):
            return [*seen, grads.kind, grads.text]
    return seen + [None if t is None else t.detach().numpy().tobytes() for t in [*results, *grads]]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_the_third_call_is_the_first(op: Op) -> None:
    for case in cases_of(op):
        for dtype in ("float32", "int64"):
            try:
                arrays = oracle.arrays_of(case, np.dtype(dtype))
            except (ValueError, OverflowError):
                continue
            for seed in range(3):
                outcome(op, case, shuffled(arrays, seed))
            last = shuffled(arrays, 3)
            quick = outcome(op, case, last)
            with the_long_way():
                assert quick == outcome(op, case, last), f"{op.key} {case} {dtype}"


def test_numbers_that_are_equal_but_not_the_same_are_told_apart() -> None:
    x = tg.tensor([1.0, -2.0])
    for _ in range(4):
        assert np.signbit(F.mul(x, 0.0).numpy()).tolist() == [False, True]
        assert np.signbit(F.mul(x, -0.0).numpy()).tolist() == [True, False]
    for exponent in (2, 2.0, True, 2, 2.0, True, 2, 2.0, True):
        result = tg.tensor([3, 4]).pow(exponent)
        assert result.dtype == (tg.dtypes.float32 if isinstance(exponent, float) else tg.dtypes.int64)
    for _ in range(4):
        assert x.sum(0, True).shape == (1,)
        assert x.sum((0,)).shape == ()
    for wrong in ((0, 1), ((0.0,),)):
        with pytest.raises(TypeError, match="sum"):
            x.sum(*wrong)


def test_a_view_that_cannot_be_is_refused_though_one_of_its_shape_could() -> None:
    flat, turned = tg.tensor(np.zeros((6, 4))), tg.tensor(np.zeros((4, 6))).t()
    for _ in range(4):
        assert flat.view(24).shape == (24,)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        turned.view(24)


def test_defaults_and_modes_are_those_of_each_call() -> None:
    whole, x = tg.tensor([1, 2]), tg.tensor([0.5, 2.0], requires_grad=True)
    for _ in range(4):
        assert whole.softmax(0, dtype="float32").dtype == tg.dtypes.float32
        assert F.mean(x, 0).requires_grad
        with tg.no_grad():
            assert not F.mean(x, 0).requires_grad
        with tg.inference_mode():
            assert F.mean(x, 0).is_inference()
        with tg.autocast("cpu"):
            assert F.linear(x, x.reshape(1, 2)).dtype == tg.dtypes.bfloat16
        assert F.linear(x, x.reshape(1, 2)).dtype == tg.dtypes.float32


def test_a_view_of_what_was_changed_since_has_the_new_history() -> None:
    for _ in range(4):
        base = tg.tensor([1.0, 2.0, 3.0], requires_grad=True) * 1
        part = base[0:2]
        base.mul_(tg.tensor([2.0, 3.0, 4.0]))
        node, names = F.sum(part.reshape(2, 1), 0).grad_fn, []
        while node.next_functions:
            names.append(node.name())
            node = node.next_functions[0][0]
        assert names == ["SumBackward1", "ViewBackward0", "SliceBackward0", "MulBackward0", "MulBackward0"]
        leaf = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
        moved = leaf * 1
        shown = moved[1]
        moved.mul_(5)
        (grad,) = autograd.grad([shown.reshape(1)], [leaf], [tg.tensor([1.0])])
        assert grad.tolist() == [0.0, 5.0, 0.0]


def test_what_was_saved_is_checked_for_changes() -> None:
    for _ in range(4):
        x = tg.tensor([[1.0, 2.0]], requires_grad=True)
        w = tg.tensor([[1.0, 2.0]]) + 0
        y = F.linear(x, w)
        w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_one_tensor_given_twice_is_not_taken_for_two() -> None:
    x, y = tg.tensor([[1.0, 2.0]]), tg.tensor([[3.0, 4.0]])
    for _ in range(4):
        assert F.linear(x, x).item() == 5
    assert F.linear(x, y).item() == 11


def test_the_fourth_call_asks_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = tg.tensor(np.ones((2, 3))), tg.tensor(np.ones((4, 3)))
    gain, shift, target = w[0], w[1], tg.tensor([0, 1])
    calls: dict[str, Any] = {
        "linear": lambda: F.linear(x, w),
        "sum": lambda: x.sum(-1),
        "softmax": lambda: F.softmax(x, 1),
        "reshape": lambda: x.reshape(3, 2),
        "getitem": lambda: x[1],
        "chunk": lambda: x.chunk(3, 1),
        "max.dim": lambda: x.max(1),
        "layer_norm": lambda: F.layer_norm(x, (3,), gain, shift),
        "nll_loss": lambda: F.nll_loss(x, target),
        "add": lambda: x + gain,
    }
    for key, call in calls.items():
        for _ in range(3):
            call()
        with monkeypatch.context() as patch:
            patch.setattr(CATALOGUE.get(key), "rule", None)
            call()


def test_a_remembered_call_keeps_no_tensor() -> None:
    def values() -> list[Any]:
        x, w = tg.tensor(np.ones((2, 7)), requires_grad=True), tg.tensor(np.ones((5, 7)))
        y = F.cross_entropy(F.layer_norm(F.linear(x, w), (5,)), tg.tensor([0, 1]))
        return [weakref.ref(t) for t in (x, w, y)]

    assert [ref() for _ in range(4) for ref in values()] == [None] * 12


def test_a_tensor_whose_shape_was_changed_has_calls_of_its_new_shape() -> None:
    y, w = tg.tensor([[1.0, 2.0, 3.0]]), tg.tensor([[1.0, 1.0, 1.0]], requires_grad=True)

    def gradient() -> Any:
        product = y * w
        product.retain_grad()
        product.sum().backward()
        return product.grad.tolist()

    assert [gradient() for _ in range(4)] == [[[1.0] * 3]] * 4
    y.t_()
    assert [gradient() for _ in range(4)] == [[[1.0] * 3] * 3] * 4


def test_a_number_that_an_op_refuses_is_refused_after_others() -> None:
    x = tg.tensor([1, 2])
    for _ in range(4):
        assert (x**2).tolist() == [1, 4]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x**-1
