"""Changing tensors in place: versions, leaves, views, and detaching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg

from ..client.parity import bodies
from .twins import OURS, both, both_or_neither, both_raise, leaf

# Versions and leaves -------------------------------------------------------------------------------------


class Bodies:
    """Functions that must return the same in both libraries."""

    def a_modified_tensor_that_nothing_saved_is_fine(t: Any) -> Any:
        x = leaf(t)
        y = x + 1
        y.mul_(2)
        z = y.sum()
        y.detach().zero_()
        z.backward()
        return x.grad

    def an_untracked_leaf_becomes_part_of_the_graph_by_a_change(t: Any) -> Any:
        x, w = t.tensor([1.0, 2.0, 3.0]), leaf(t)
        x.mul_(w)
        x.sum().backward()
        return x.is_leaf, x.requires_grad, w.grad

    def sibling_views_see_each_others_changes(t: Any) -> Any:
        x, w = leaf(t, [[1.0, 2.0], [3.0, 4.0]]), leaf(t, (5.0, 6.0))
        y = x * 1.0
        first, all_of_it = y[0], y.view(4)
        first.mul_(w)
        names = [v.grad_fn.name() for v in (y, first, all_of_it)]
        (all_of_it * all_of_it).sum().backward()
        return y, first, all_of_it, x.grad, w.grad, first._version, len(names)

    def a_view_of_an_untracked_base_becomes_tracked(t: Any) -> Any:
        base, w = t.tensor([1.0, 2.0, 3.0]), leaf(t, 2.0)
        view = base[1:]
        other = base[0]
        view.mul_(w)
        (base * base).sum().backward()
        return base.requires_grad, view.requires_grad, other.requires_grad, base.is_leaf, w.grad, base

    def what_was_changed_before_is_not_taken_for_what_changes(t: Any) -> Any:
        """Another input of an in-place op was changed as often as its result, which it is not."""
        x = leaf(t)
        y, other = x * 1.0, t.tensor([3.0, 4.0, 5.0])
        other.add_(1)
        y.addcmul_(y, other)
        y.sum().backward()
        return x.grad, y._version, other._version

    def a_view_made_under_no_grad_can_be_changed_there(t: Any) -> Any:
        x = leaf(t)
        y = x * 1.0
        with t.no_grad():
            y[0].mul_(10)
        y.sum().backward()
        return y, x.grad, y._version

    def detach_shares_memory_and_version(t: Any) -> Any:
        x = leaf(t)
        d = x.detach()
        d.mul_(2)
        d[0] = 9.0
        return x, x._version, d._version, d.requires_grad, d.is_leaf, x.requires_grad

    def setitem_through_detach_and_back(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        with t.no_grad():
            y[0] = 100.0
        y.sum().backward()
        return y, x.grad

    def a_view_changes_its_own_geometry(t: Any) -> Any:
        x = leaf(t, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        y = x * 2
        row = y[0]
        row.unsqueeze_(0)
        row.mul_(t.tensor([[1.0, 2.0, 3.0]]))
        turned = row.t_()
        turned[0].mul_(9)
        (y * y).sum().backward()
        return tuple(y.shape), tuple(row.shape), row, turned is row, row._version, x.grad

    def a_detached_tensor_changes_its_geometry_alone(t: Any) -> Any:
        x = t.tensor([[1.0, 2.0], [3.0, 4.0]])
        other = x.detach()
        other.unsqueeze_(0)[0, 0].zero_()
        return tuple(x.shape), tuple(other.shape), x, x._version

    def geometry_under_no_grad(t: Any) -> Any:
        x = leaf(t, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        with t.no_grad():
            x.unsqueeze_(0)
        (x * 2).sum().backward()
        return tuple(x.shape), x._version, x.is_leaf, x.grad

    def small_ops_on_the_parts_of_a_tensor(t: Any) -> Any:
        x = leaf(t, [0.1, 0.2, 0.3, 0.4])
        first, second = (x * 2).chunk(2)
        (second.tanh() * first.exp() + second * second).sum().backward()
        return x.grad

    def small_ops_on_a_view_whose_base_was_changed_since(t: Any) -> Any:
        x = leaf(t, [[0.1, 0.2], [0.3, 0.4]])
        y = x * 2
        row, column = y[0], y[:, 0]
        y.mul_(3)
        ((y.detach()[0] * row).sum() + row.tanh().sum() + (column * column).sum()).backward()
        return row, column, x.grad


@pytest.mark.every
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    both(body)


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def a_modified_saved_result_raises_when_it_is_used(t: Any) -> None:
        y = leaf(t).sigmoid()
        y.add_(1)
        y.sum().backward()

    def a_modified_saved_input_raises(t: Any) -> None:
        w = t.tensor([1.0, 2.0, 3.0])
        y = leaf(t) * w
        w.mul_(2)
        y.sum().backward()

    def modification_under_no_grad_is_noticed(t: Any) -> None:
        w = leaf(t)
        y = leaf(t) * w
        with t.no_grad():
            w.zero_()
        y.sum().backward()

    def a_change_through_detach_is_noticed(t: Any) -> None:
        w = leaf(t)
        y = w.exp()
        y.detach().zero_()
        y.sum().backward()


@pytest.mark.every
@pytest.mark.parametrize("body", bodies(Mistakes), ids=lambda body: body.__name__)
def test_mistakes_are_told_in_torchs_words(body: Callable[[Any], Any]) -> None:
    both_raise(body)


def test_in_place_under_no_grad_bumps_the_version() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        with t.no_grad():
            x.add_(1)
            x[0] = 5.0
        return x._version, x.is_leaf, x.requires_grad, x

    assert both(run)[0] == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.zero_(),
        lambda x: x.fill_(2.0),
        lambda x: x.copy_(x.detach()),
        lambda x: x.__imul__(2),
        lambda x: x[0:2].mul_(2),
        lambda x: x.view(3, 1).add_(1),
        lambda x: x.view(3, 1)[0].add_(1),
        lambda x: x.reshape(-1).__setitem__(1, 0.0),
    ],
)
def test_in_place_on_a_leaf_raises(change: Any) -> None:
    both_raise(lambda t: change(leaf(t)))

    def allowed(t: Any) -> Any:
        x = leaf(t)
        with t.no_grad():
            change(x)
        return x, x._version, x.is_leaf

    both(allowed)


# In place on views ---------------------------------------------------------------------------------------


def run_both_orders(change: Callable[[Any, Any], Any], shape: tuple[int, ...] = (2, 3)) -> None:
    """Change ``y``, made from leaf ``x``, with the help of ``w``; all first and second derivatives agree."""

    def run(t: Any) -> Any:
        values = np.linspace(0.5, 2.0, int(np.prod(shape))).reshape(shape)
        x = t.tensor(values.tolist(), dtype=t.float64, requires_grad=True)
        w = t.tensor((values[::-1] * 1.5).tolist(), dtype=t.float64, requires_grad=True)
        y = x * 1.0
        out = change(y, w)
        out = y if out is None else out
        total = (y * y * w).sum() + (out * out).sum()
        grads = t.autograd.grad(total, [x, w], create_graph=True)
        seconds = t.autograd.grad(sum((g * g).sum() for g in grads), [x, w])
        return y, out, y._version, grads, seconds

    both_or_neither(run)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "whole": lambda y, w: y.mul_(2),
    "by a tracked": lambda y, w: y.mul_(w),
    "chained": lambda y, w: y.mul_(w).add_(w).exp_(),
    "row": lambda y, w: y[0].mul_(w[1]),
    "set row": lambda y, w: y.__setitem__(0, w[0] * 2),
    "set number": lambda y, w: y.__setitem__((slice(None), 1), 3.0),
    "set by index": lambda y, w: y.__setitem__([0, 1], w * 2),
    "set by mask": lambda y, w: y.__setitem__(y > 1.0, 0.5),
    "set element": lambda y, w: y.__setitem__((1, 2), w[0, 0] * 3),
    "reshape then set": lambda y, w: y.reshape(-1).__setitem__(1, w[0, 0]),
    "view of a view": lambda y, w: y.view(3, 2)[1].mul_(w[0, :2]),
    "transposed": lambda y, w: y.t()[0].add_(w[:, 0]),
    "returns the view": lambda y, w: y[1].mul_(3.0),
    "returns the view times tracked": lambda y, w: y[1:].mul_(w[:1]),
    "narrow": lambda y, w: y.narrow(1, 0, 2).exp_(),
    "select": lambda y, w: y.select(1, 2).copy_(w[:, 0]),
    "expand source": lambda y, w: y.copy_(w[0]),
    "fill by tracked": lambda y, w: y[0].fill_(w[0, 0]),
    "zero": lambda y, w: y[0].zero_(),
    "masked_fill": lambda y, w: y.masked_fill_(y > 1.2, 0.3),
    "index_put accumulate": lambda y, w: y.index_put_((_index(y, [0, 0]),), w, accumulate=True),
    "scatter_add": lambda y, w: y.scatter_add_(0, _index(y, [[0, 1, 0]]), w[:1]),
    "squeeze": lambda y, w: y.unsqueeze(0)[0, 0].mul_(w[0]),
    "itself": lambda y, w: y.mul_(y),
    "own row": lambda y, w: y[0].mul_(y[1]),
    "row by itself": lambda y, w: y[0].copy_(y[1] * w[0]),
    "sqrt": lambda y, w: y.sqrt_(),
    "sigmoid of a row": lambda y, w: y[0].sigmoid_(),
    "pow": lambda y, w: y.pow_(2),
    "clamp": lambda y, w: y.clamp_(0.8, 1.5),
    "twice": lambda y, w: (y[0].mul_(2), y[1].mul_(w[0]))[1],
}  # fmt: skip


def _index(like: Any, values: Any) -> Any:
    return torch.tensor(values) if torch.is_tensor(like) else tg.tensor(values)


@pytest.mark.parametrize("name", CHANGES)
def test_in_place_changes_have_the_right_derivatives(name: str) -> None:
    run_both_orders(CHANGES[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda t, y: y.unbind()[1].mul_(2),
        lambda t, y: y.unbind()[1].view(1).mul_(2),
        lambda t, y: y.view(3, 1).unbind()[2].mul_(2),
        lambda t, y: y.split(1)[2].mul_(2),
        lambda t, y: y.split(2)[0][1].mul_(2),
        lambda t, y: t.tensor([1.0, 2.0]).unbind()[1].mul_(y[0]),
    ],
    ids=["one", "a view of it", "one of a view", "another function", "a part of it", "of an untracked base"],
)
def test_views_of_functions_with_several_outputs_cannot_be_changed(change: Any) -> None:
    both_raise(lambda t: change(t, leaf(t) * 1.0))


def test_an_in_place_result_must_fit() -> None:
    both_raise(lambda t: t.tensor([1.0]).add_(t.tensor([1.0, 2.0])))
    both_raise(lambda t: t.tensor([1, 2]).mul_(1.5))
    both_raise(lambda t: t.tensor([1, 2]).__itruediv__(2))
    both_raise(lambda t: t.tensor([True]).add_(t.tensor([1])))


def test_detach_in_place() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        z = y * 3
        y.detach_()
        w, itself = y * 5, leaf(t)
        itself.detach_()
        z.sum().backward()
        return x.grad, y.is_leaf, y.requires_grad, w.requires_grad, itself.requires_grad

    both(run)
    both_raise(lambda t: (leaf(t) * 2)[0].detach_())
    both_raise(lambda t: leaf(t).detach().view(3).detach_())


# The geometry of a tensor itself -------------------------------------------------------------------------

BENDS: dict[str, Callable[[Any], Any]] = {
    "squeeze_": lambda y: y.squeeze_(),
    "squeeze_(dim)": lambda y: y.squeeze_(0),
    "unsqueeze_": lambda y: y.unsqueeze_(1),
    "transpose_": lambda y: y.transpose_(0, -1),
    "swapaxes_": lambda y: y.swapaxes_(0, 1),
    "swapdims_": lambda y: y.swapdims_(0, 1),
    "t_": lambda y: y.t_(),
    "as_strided_": lambda y: y.as_strided_((3, 2), (1, 3)),
    "one after another": lambda y: y.transpose_(0, 1).unsqueeze_(0).squeeze_(0).t_(),
}


@pytest.mark.parametrize("name", BENDS)
def test_a_tensor_changes_its_own_geometry(name: str) -> None:
    """What was made of it before, views included, stays as it is, and later changes still reach everything."""

    def run(t: Any) -> Any:
        x = leaf(t, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        y = x * 2
        row, flat = y[0], y.view(-1)
        same = BENDS[name](y) is y
        shape, version = tuple(y.shape), y._version
        row.mul_(3)
        flat[2:4].mul_(x[0, 0] * 5)
        later = y[0]
        later.mul_(7)
        (y * y).sum().backward()
        return same, shape, version, y, row, flat, later, x.grad, y._version

    both(run)


def test_a_saved_tensor_whose_geometry_changed_raises() -> None:
    def run(t: Any) -> None:
        x = leaf(t, [[1.0, 2.0]]) * 2
        y = x * x
        x.t_()
        y.sum().backward()

    both_raise(run, "is at version 1; expected version 0 instead")


def test_writing_to_what_as_strided_hides() -> None:
    """Ours alone: torch takes part of this gradient from memory that nobody has written to."""
    x = leaf(OURS, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = x * 2
    flat = y.view(-1)
    y.as_strided_((2, 2), (3, 1))
    flat[2:4].mul_(x[0, 0] * 5)
    (y * y).sum().backward()
    assert (y.tolist(), flat.tolist()) == ([[2.0, 4.0], [40.0, 10.0]], [2.0, 4.0, 30.0, 40.0, 10.0, 12.0])
    # y is 2 x, but for 2 x[1, 0] * 5 x[0, 0]
    assert x.grad.tolist() == [[8.0 + 2 * 40 * 40, 16.0, 0.0], [2 * 40 * 10.0, 40.0, 0.0]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: leaf(t).unsqueeze_(0),
        lambda t: leaf(t)[1:].unsqueeze_(0),
        lambda t: (leaf(t) * 2).unbind()[0].unsqueeze_(0),
        lambda t: t.tensor([1.0]).unsqueeze_(3),
    ],
)
def test_a_geometry_that_cannot_be_changed(wrong: Any) -> None:
    both_raise(wrong)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_op_made_of_others_in_place() -> None:
    def run(t: Any) -> Any:
        x, source = leaf(t), leaf(t, (5.0, 7.0))
        y = x * 1.0
        y.index_reduce_(0, t.tensor([0, 0]), source, "prod")
        y.sum().backward()
        return y, y._version, x.grad, source.grad

    both(run)


# Small ops on parts and on views, which take the elementwise fast path --------------------------


WRITES = {
    "add_": lambda lib, x: x.add_(1),
    "copy_": lambda lib, x: x.copy_(lib.tensor([[5.0, 6.0]] * 3)),
    "zero_": lambda lib, x: x.zero_(),
    "fill_": lambda lib, x: x.fill_(4),
    "one element": lambda lib, x: x.__setitem__((0, 1), 5),
    "a row": lambda lib, x: x[1].fill_(2),
    "a column": lambda lib, x: x[:, :1].mul_(3),
}


@pytest.mark.parametrize("write", WRITES)
def test_an_expanded_tensor_is_written_where_its_elements_are_apart(write: str) -> None:
    outcomes = []
    for lib in (tg, torch):
        base = lib.tensor([[1.0], [2.0], [3.0]])
        try:
            WRITES[write](lib, base.expand(3, 2))
        except RuntimeError as error:
            outcomes.append(str(error))
        else:
            outcomes.append(base.tolist())
    assert outcomes[0] == outcomes[1]
