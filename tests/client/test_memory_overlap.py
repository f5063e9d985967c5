"""In-place ops, ``out=`` and assignments whose operands overlap in memory: the same ones are refused as in torch.

The SDK checks without asking the session. The cases of ops come from the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.schema.op import CATALOGUE, Op

from ..engine import oracle
from ..op_cases import cases_of
from .parity import bodies, error_of, same, same_error

pytestmark = pytest.mark.usefixtures("session")

IN_PLACE = {op.key: op for ops in CATALOGUE.overloads.values() for op in ops if op.inplace and not op.view}
LENIENT = {"conj_physical"}
"""torch's does nothing to real numbers, so it takes what it could not write to."""
TEXT = "unsupported operation: "
Call = tuple[str, int, Callable[[Any], Any]]


def placed(lib: Any, values: list[Any], how: str, at: int) -> list[Any]:
    """Tensors of these values, of which the first is expanded or overlaps that at position ``at``."""
    tensors = [lib.tensor(v) if isinstance(v, np.ndarray) else v for v in values]
    first, other = values[0], values[at]
    if how == "expanded":
        tensors[0] = lib.tensor(np.ascontiguousarray(first[:1])).expand(first.shape)
    elif how == "partly":
        both = lib.tensor(np.concatenate([first.reshape(-1), other.reshape(-1)]))
        tensors[0], tensors[at] = both[: first.size].view(first.shape), both[1 : 1 + other.size].view(other.shape)
    elif how == "whole":
        tensors[at] = tensors[0].view(first.shape)
    elif how == "itself":
        tensors[at] = tensors[0]
    return tensors


def calls(op: Op) -> Iterator[Call]:
    """Calls of the in-place method with operands that overlap, of each kind the first that torch takes otherwise."""
    seen = set()
    for case in cases_of(op):
        for dtype in ("float32", "int64", "bool"):
            try:
                arrays = oracle.arrays_of(case, np.dtype(dtype))
            except (ValueError, OverflowError):
                continue  # the dtype cannot hold the values
            call = oracle.build(case, arrays, lambda v: v, requires_grad=False)
            values = list(call.args)
            if not isinstance(values[0], np.ndarray) or values[0].size < 2 or not values[0].ndim:
                continue

            def run(lib: Any, how: str, at: int, call: Any = call, values: Any = values) -> None:
                tensors = placed(lib, values, how, at)
                options = oracle.with_dtypes(call, lib).kwargs
                options = {k: lib.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
                getattr(tensors[0], f"{op.public}_")(*tensors[1:], **options)

            kinds = [("expanded", 0)] if values[0].shape[0] > 1 else []
            for at, value in enumerate(values[1:], 1):
                if isinstance(value, np.ndarray) and value.size and value.dtype == values[0].dtype:
                    kinds += [("partly", at)] + [("whole", at), ("itself", at)] * (value.shape == values[0].shape)
            for kind in kinds:
                if kind in seen:
                    continue
                try:
                    run(torch, "apart", 0)
                except (RuntimeError, TypeError, IndexError):
                    break
                seen.add(kind)
                yield (*kind, lambda lib, run=run, kind=kind: run(lib, *kind))


@pytest.mark.filterwarnings("ignore")  # torch discourages some of these
@pytest.mark.parametrize("key", sorted(IN_PLACE.keys() - LENIENT))
def test_every_in_place_op_refuses_the_same_overlaps(session: tg.Session, key: str) -> None:
    for how, at, run in calls(IN_PLACE[key]):
        try:
            run(torch)
        except RuntimeError as error:
            if str(error).startswith(TEXT):
                ours = error_of(run, tg)
                assert str(ours) == str(error), (how, at)
                assert isinstance(ours, RuntimeError)
                continue
        try:
            run(tg)
        except (RuntimeError, IndexError) as error:
            assert not str(error).startswith(TEXT), (how, at)
    assert session.requests == 0 or IN_PLACE[key].may_raise


@pytest.mark.parametrize("name", ["normal_", "bernoulli_", "uniform_", "exponential_", "cauchy_", "log_normal_"])
def test_random_numbers_need_separate_elements(name: str) -> None:
    same_error(lambda lib: getattr(lib.zeros(1).expand(3), name)(), "more than one element", whole=True)


class Refused:
    """Programs that torch refuses."""

    def augmented_assignment(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[1:] += x[:-1]

    def copying(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[1:].copy_(x[:-1])

    def assignment(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[:3] = x[1:]

    def another_dtype(lib: Any) -> Any:
        x = lib.arange(4)
        x[1:].add_(x[:-1])

    def of_a_transposed_matrix(lib: Any) -> Any:
        x = lib.ones(3, 3)
        x.copy_(x.t())

    def with_a_row(lib: Any) -> Any:
        x = lib.ones(3, 3)
        x -= x[0]

    def with_one_element(lib: Any) -> Any:
        x = lib.ones(3)
        x /= x[0]

    def through_data(lib: Any) -> Any:
        x = lib.ones(4)
        x.data[1:].add_(x[:3])

    def through_detach(lib: Any) -> Any:
        x = lib.ones(4).requires_grad_()
        x.detach()[1:].add_(x.detach()[:3])

    def of_a_detached_part(lib: Any) -> Any:
        x = lib.ones(4)
        x.add_(x[:1].detach())

    def in_no_grad(lib: Any) -> Any:
        x = lib.ones(4, requires_grad=True)
        with lib.no_grad():
            x[1:].mul_(x[:3])

    def in_inference_mode(lib: Any) -> Any:
        with lib.inference_mode():
            x = lib.ones(4)
            x.add_(x[:1])

    def recorded(lib: Any) -> Any:
        y = lib.ones(4).requires_grad_() * 2
        y[1:].mul_(y[:3])

    def after_a_change_of_geometry(lib: Any) -> Any:
        x = lib.ones(2, 3)
        row = x[0]
        x.t_()
        x.t().add_(row)

    def expanded_and_detached(lib: Any) -> Any:
        lib.ones(1).expand(3).detach().add_(1)

    def strided(lib: Any) -> Any:
        lib.ones(4).as_strided((2, 2), (0, 1)).add_(1)

    def expanded_and_assigned(lib: Any) -> Any:
        lib.ones(1, 3).expand(2, 3)[:, 1:] = lib.ones(2, 2)

    def index_put_of_itself(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[lib.tensor([0, 1])] = x[2:]

    def index_put_of_an_element(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[lib.tensor([0, 1])] = x[0]

    def index_put_of_its_indices(lib: Any) -> Any:
        x = lib.arange(4)
        x[x] = lib.tensor([1])

    def masked(lib: Any) -> Any:
        x = lib.arange(4.0)
        x[lib.tensor([True, False, True, False])] = x[1:3]

    def out(lib: Any) -> Any:
        x = lib.arange(4.0)
        lib.add(x[1:], 1, out=x[:-1])

    def out_of_the_second(lib: Any) -> Any:
        x = lib.arange(4.0)
        lib.mul(lib.ones(3), x[1:], out=x[:-1])

    def out_expanded(lib: Any) -> Any:
        lib.exp(lib.ones(3), out=lib.ones(1).expand(3))

    def out_of_a_product(lib: Any) -> Any:
        lib.mm(lib.ones(2, 2), lib.ones(2, 2), out=lib.ones(1, 2).expand(2, 2))


class Taken:
    """Programs that torch takes."""

    def the_whole(lib: Any) -> Any:
        x = lib.arange(4.0)
        x += x
        x.mul_(x.view(4)).sub_(x.detach())
        return x

    def parts_that_lie_apart(lib: Any) -> Any:
        x = lib.arange(6.0)
        x[:3] += x[3:]
        x[::2].add_(x[1::2])
        return x

    def rows(lib: Any) -> Any:
        x = lib.ones(3, 3)
        x[1] += x[0]
        x[2].copy_(x[1])
        return x

    def one_element_that_is_read_first(lib: Any) -> Any:
        x = lib.arange(4.0).requires_grad_()
        y = x * 1
        y[:] = y[1]
        y[lib.tensor([True, False, True, False])] = y[3]
        y.sum().backward()
        return y, x.grad

    def fills_of_expanded(lib: Any) -> Any:
        x = lib.ones(3)
        x.expand(2, 3).zero_()
        x[:1].expand(2).fill_(4.0)
        return x

    def dimensions_of_one(lib: Any) -> Any:
        x = lib.ones(3)
        x.expand(1, 3).add_(1)
        x[:0].expand(0).add_(1)
        return x

    def windows(lib: Any) -> Any:
        x = lib.zeros(4)
        x.unfold(0, 2, 2).add_(1)
        return x

    def out_of_itself(lib: Any) -> Any:
        x = lib.arange(4.0)
        lib.add(x, x, out=x)
        lib.add(x[:2], 1, out=x[2:])
        return x


@pytest.mark.parametrize("body", bodies(Refused), ids=lambda body: body.__name__)
def test_overlapping_operands_are_refused_at_once(session: tg.Session, body: Callable[[Any], Any]) -> None:
    same_error(body, TEXT, whole=True)
    assert session.requests == (body is Refused.masked)  # the number of a mask's true elements is a value


@pytest.mark.parametrize("body", bodies(Taken), ids=lambda body: body.__name__)
def test_other_operands_are_taken(body: Callable[[Any], Any]) -> None:
    same(body)


def test_a_refused_change_changes_nothing() -> None:
    def function(lib: Any) -> Any:
        x = lib.arange(4.0).requires_grad_()
        y = x * 1
        with pytest.raises(RuntimeError, match="single memory location"):
            y[1:] += y[:-1]
        (y * y).sum().backward()
        return x.grad, y, y._version

    same(function)


def test_a_compiled_function_checks_its_operands() -> None:
    def function(lib: Any) -> Any:
        def shift(x: Any) -> Any:
            y = x * 2
            y[1:] += y[:-1]
            return y

        return (tg.compile(shift) if lib is tg else shift)(lib.arange(4.0))

    same_error(function, TEXT, whole=True)
