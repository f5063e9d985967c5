"""In-place ops, ``out=`` and assignments whose operands overlap in memory, and which tensors share memory, as in torch.

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


def test_a_compiled_function_checks_its_operands() -> None:
    def function(lib: Any) -> Any:
        def shift(x: Any) -> Any:
            y = x * 2
            y[1:] += y[:-1]
            return y

        return (tg.compile(shift) if lib is tg else shift)(lib.arange(4.0))

    same_error(function, TEXT, whole=True)


# Which tensors share memory, and which in-place changes are detected -------------------------------------------------


NUMBERS = np.random.default_rng(0).standard_normal((2, 3, 4))


def test_contiguous_returns_the_tensor_itself_where_it_is(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS)
        y = x.detach().transpose(0, 1)
        tensors = [
            *(x, x[0], x[:1], x[:, :1], x[:, 0], x[1:, :2], x.unsqueeze(1), x.expand(2, 2, 3, 4), x.reshape(6, 4)),
            *(x.transpose(0, 2), x.transpose(0, 2).transpose(0, 2), x.permute(2, 0, 1)[0], x.movedim(0, 1)),
            *(x.transpose(1, 2).reshape(-1), lib.einsum("abc->cab", x), y, y.detach(), y.data, y.contiguous()),
            *(x.transpose(0, 1).detach()[:1], x[:, ::2], x.flatten(1), x.diagonal(0, 0, 1), x.split(1, 1)[1]),
        ]
        return [t.contiguous() is t for t in tensors]

    same(function)
    assert session.requests == 0


class Sharing:
    """Programs that torch takes, whose results depend on which tensors share memory."""

    def a_refused_change_changes_nothing(lib: Any) -> Any:
        x = lib.arange(4.0).requires_grad_()
        y = x * 1
        with pytest.raises(RuntimeError, match="single memory location"):
            y[1:] += y[:-1]
        (y * y).sum().backward()
        return x.grad, y, y._version

    def what_is_written_to_a_contiguous_tensor_reaches_it(lib: Any) -> Any:
        x = lib.tensor(NUMBERS, requires_grad=True)
        h = x * 1
        h.contiguous().mul_(10)
        turned = h.transpose(0, 1)
        turned.contiguous().mul_(3)  # a copy
        h.sum().backward()
        return h, x.grad, x._version, h._version

    def a_reshape_that_copies_is_no_view(lib: Any) -> Any:
        x = lib.tensor(NUMBERS, requires_grad=True)
        y = x.exp()
        copied, shown = y.transpose(0, 1).reshape(-1), y.reshape(-1)
        copied.mul_(3)  # exp saved y, and this is a copy of y
        (copied.sum() + y.sum()).backward()
        before = y._version
        with lib.no_grad():
            shown.mul_(2)
        return x.grad, before, y._version, copied, y

    def a_view_that_overlaps_itself_is_a_view(lib: Any) -> Any:
        x = lib.tensor(NUMBERS.reshape(-1), requires_grad=True)
        y = x * 2
        windows = y.unfold(0, 3, 5)
        windows.mul_(4)
        strided = y.as_strided((2, 2), (5, 1), 3)
        strided.add_(1)
        y.pow(2).sum().backward()
        return y, x.grad, y._version

    def changes_of_data_go_unnoticed(lib: Any) -> Any:
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        y = x * x
        x.data.mul_(10)
        y.sum().backward()
        return x, x.grad, x._version

    def a_program_that_takes_a_tensor_and_its_data_sees_one_memory(lib: Any) -> Any:
        x = lib.tensor(NUMBERS[0])
        data = x.data
        for _ in range(12):  # long enough to be planned
            y = x * 2
            data.add_(y)
            x.mul_(0.25)
            x.sum().item()
        return x, data


@pytest.mark.parametrize("body", bodies(Sharing), ids=lambda body: body.__name__)
def test_tensors_share_memory_as_in_torch(body: Callable[[Any], Any]) -> None:
    same(body)


def test_contiguous_after_a_change_of_geometry_in_place(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS[0])
        view = x[:2]
        x.t_()
        copied = x.contiguous()
        return copied is x, x.t().contiguous() is x.t(), copied, view.contiguous() is view, x[:1], view

    values = same(lambda lib: [v for i, v in enumerate(function(lib)) if i != 1])
    assert values[0] is False


def test_changes_of_detached_tensors_are_noticed(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        y = x * x
        x.detach().mul_(10)
        y.sum().backward()

    same_error(function, "modified by an inplace operation")


@pytest.mark.parametrize("kind", ["GRUCell", "LSTMCell", "GRU", "RNN"])
def test_the_output_of_a_recurrent_layer_may_be_modified(session: tg.Session, kind: str) -> None:
    torch.manual_seed(0)
    weights = {name: p.detach().numpy() for name, p in getattr(torch.nn, kind)(4, 5).named_parameters()}

    def function(lib: Any) -> Any:
        layer = getattr(lib.nn, kind)(4, 5)
        layer.load_state_dict({name: lib.tensor(value) for name, value in weights.items()})
        x = lib.tensor(NUMBERS.astype(np.float32) if not kind.endswith("Cell") else NUMBERS[0].astype(np.float32))
        out = layer(x.requires_grad_())
        out = out[0] if isinstance(out, tuple) else out
        out.mul_(2)
        (out * out).sum().backward()
        return out, x.grad

    same(function, rtol=1e-4)


def test_what_the_derivative_needs_may_still_not_be_modified(session: tg.Session) -> None:
    for lib in (torch, tg):
        out: Any = lib.nn.RNNCell(4, 5)(lib.tensor(NUMBERS[0].astype(np.float32)))
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.repeat_interleave(x, 1),
        lambda F, x: F.repeat_interleave(x[:, :1], 1, dim=1),
        lambda F, x: F.max_pool1d(x, 1),
        lambda F, x: F.pixel_shuffle(x.unsqueeze(0), 1),
        lambda F, x: F.channel_shuffle(x.unsqueeze(0), 1),
        lambda F, x: F.nn.functional.unfold(x.unsqueeze(0), 1),
    ],
    ids=["repeat_interleave", "repeat_interleave-dim", "max_pool1d", "pixel_shuffle", "channel_shuffle", "unfold"],
)
def test_a_copy_does_not_change_with_its_source(session: tg.Session, call: Any) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS)
        copied = call(lib, x)
        x.zero_()
        return copied

    same(function)
