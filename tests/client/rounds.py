"""Rounds of a loop that inspect or change the graph at different times, in torch or Telegrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .repeating import Loop


def graph(tensor: Any) -> str:
    """The names of the nodes of a tensor's graph, nested by their edges."""
    return _graph(tensor.grad_fn)


def _graph(node: Any) -> str:
    if node is None:
        return "-"
    return f"{node.name()}({' '.join(f'{_graph(each)}:{slot}' for each, slot in node.next_functions)})"


def told(function: Callable[[], Any]) -> str:
    """The beginning of the error's text. The error itself is dropped, so that it keeps no tensors alive."""
    try:
        function()
    except RuntimeError as error:
        return str(error).partition("Hint")[0]
    raise AssertionError("there was no error")


class Chains:
    """Rounds whose ops may also be one registered function."""

    def looked_at_before_and_behind(loop: Loop) -> Any:
        y, loss = loop.chain()
        assert loss.requires_grad and not loss.is_leaf
        before = graph(loss)
        loss.backward()
        return before, graph(y), y.is_leaf, y.requires_grad, loop.w.grad

    def looked_at_behind(loop: Loop) -> Any:
        y, loss = loop.chain()
        loss.backward()
        return graph(y), y.requires_grad, told(loss.backward), loop.w.grad

    def gone_through_twice(loop: Loop) -> Any:
        _, loss = loop.chain()
        loss.backward()
        return told(loss.backward), loop.w.grad

    def gone_through_from_two_ends(loop: Loop) -> Any:
        y, loss = loop.chain()
        loss.backward()
        return told(y.mean().backward), loop.w.grad

    def gone_through_from_many_elements(loop: Loop) -> Any:
        y, _ = loop.chain()
        return told(y.backward), told(lambda: loop.lib.autograd.grad(y, loop.w)), loop.w.grad is None

    def two_graphs_at_once(loop: Loop) -> Any:
        first, second = loop.chain()[1], (loop.w * loop.v).sum()
        first.backward()
        second.backward()
        return loop.w.grad, graph(first), graph(second)

    def kept_for_another_pass(loop: Loop) -> Any:
        _, loss = loop.chain()
        loss.backward(retain_graph=True)
        loss.backward()
        return loop.w.grad, told(loss.backward)

    def gradients_alone(loop: Loop) -> Any:
        _, loss = loop.chain()
        (grad,) = loop.lib.autograd.grad(loss, loop.w)
        return grad, loop.w.grad is None, told(loss.backward)

    def gradients_of_gradients(loop: Loop) -> Any:
        _, loss = loop.chain()
        (grad,) = loop.lib.autograd.grad(loss, loop.w, create_graph=True)
        grad.square().sum().backward()
        return grad, loop.w.grad, graph(loss)

    def some_of_the_gradients(loop: Loop) -> Any:
        x, grad = loop.data(3, 3).requires_grad_(), loop.lib.autograd.grad
        results = [loop.chain(x)[1] for _ in range(4)]
        found = [grad(results[0], (x, loop.w)), grad(results[1], [x]), grad(results[2], (loop.w, x, loop.w))]
        (first,) = grad(results[3], x, retain_graph=True)
        results[3].backward()
        return *[each for grads in found for each in grads], first, x.grad, loop.w.grad, told(results[1].backward)

    def gradients_times_something(loop: Loop) -> Any:
        lib, x = loop.lib, loop.data(3, 3).requires_grad_()
        _, loss = loop.chain(x)
        refused = told(lambda: lib.autograd.grad(loss, (x, loop.w), lib.ones(2)))
        return *lib.autograd.grad(loss, (x, loop.w), lib.tensor(2.0)), refused

    def gradients_of_two_at_once(loop: Loop) -> Any:
        x = loop.data(3, 3).requires_grad_()
        losses = loop.chain(x)[1], loop.chain(x * 0.5)[1]
        return *loop.lib.autograd.grad(losses, (x, loop.w)), told(losses[1].backward)

    def gradients_of_what_was_not_used(loop: Loop) -> Any:
        _, loss = loop.chain()
        return (told(lambda: loop.lib.autograd.grad(loss, (loop.w, loop.lib.ones(3, requires_grad=True)))),)

    def younger_ones_beside_it(loop: Loop) -> Any:
        (y, loss), z, order = loop.chain(), (loop.w * loop.v).exp(), list[str]()
        for name, each in (("chain", y), ("younger", z)):
            each.grad_fn.register_prehook(lambda grads, name=name: order.append(name))
        (loss + z.sum()).backward()
        return order, loop.w.grad

    def frozen_in_between(loop: Loop) -> Any:
        x = loop.data(3, 3).requires_grad_()
        _, loss = loop.chain(x)
        x.requires_grad_(False)
        loss.backward()
        return x.grad is None, loop.w.grad

    def written_to_itself(loop: Loop) -> Any:
        _, loss = loop.chain()
        loss.mul_(3.0)
        loss.backward()
        return loop.w.grad, graph(loss)

    def a_leaf_written_to(loop: Loop) -> Any:
        _, loss = loop.chain()
        with loop.lib.no_grad():
            loop.w.mul_(1.0)
        return told(loss.backward), graph(loss)

    def gradients_let_go_before_the_pass(loop: Loop) -> Any:
        loop.w.grad = loop.lib.ones(3, 3)
        loss = (loop.chain()[0] * loop.w.grad).sum()
        loop.optimizer.zero_grad()
        loss.backward()
        return loop.w.grad, graph(loss)

    def gradients_made_zeros_before_the_pass(loop: Loop) -> Any:
        loop.w.grad = loop.lib.ones(3, 3)
        loss = (loop.chain()[0] * loop.w.grad).sum()
        loop.optimizer.zero_grad(set_to_none=False)
        return told(loss.backward), loop.w.grad

    def a_hook_on_what_is_between(loop: Loop) -> Any:
        y, _ = loop.chain()
        seen: list[Any] = []
        y.register_hook(lambda grad: seen.append(grad.sum()))
        y.sum().backward()
        return seen[0], loop.w.grad

    def a_hook_on_a_leaf(loop: Loop) -> Any:
        _, loss = loop.chain()
        seen: list[Any] = []
        hook = loop.w.register_hook(lambda grad: seen.append(grad.sum()))
        loss.backward()
        hook.remove()
        return seen[0], loop.w.grad

    def a_hook_on_a_node(loop: Loop) -> Any:
        y, _ = loop.chain()
        seen: list[Any] = []
        y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].sum()))
        y.sum().backward()
        return seen[0], loop.w.grad

    def a_gradient_that_is_retained(loop: Loop) -> Any:
        y, _ = loop.chain()
        y.retain_grad()
        y.sum().backward()
        return y.grad, loop.w.grad

    def no_leaf_at_all(loop: Loop) -> Any:
        loss = (loop.chain()[0].detach() * loop.v).sum()
        return told(loss.backward), loss

    def read_before_the_pass(loop: Loop) -> Any:
        _, loss = loop.chain()
        value = loss.item()
        loss.backward()
        return value, loop.w.grad, graph(loss)


class Rounds:
    """Rounds of ops."""

    def looked_at_halfway(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh()
        seen = graph(y)
        loss = (y * loop.w).sum()
        seen += graph(loss)
        loss.backward()
        return seen, loss, loop.w.grad

    def looked_at_while_others_go_on(loop: Loop) -> Any:
        y = loop.data(3, 3) @ loop.w
        z = y.tanh()
        seen = graph(y)
        loss = (z * loop.w).sum()
        loss.backward()
        return seen, graph(loss), loop.w.grad

    def written_to_before_the_pass(loop: Loop) -> Any:
        y, loss = loop.chain()
        with loop.lib.no_grad():
            y.add_(1.0)
        return told(loss.backward), loop.w.grad is None

    def written_to_by_another_name(loop: Loop) -> Any:
        y, loss = loop.chain()
        y.detach().add_(1.0)
        return told(loss.backward), y

    def a_state_written_to(loop: Loop) -> Any:
        loss = ((loop.w * loop.v).tanh() * loop.w).sum()
        loop.v.mul_(1.0)
        return (told(loss.backward),)

    def a_leaf_written_to_before_it_is_used_again(loop: Loop) -> Any:
        first = (loop.data(3, 3) @ loop.w).tanh().sum()
        first.backward()
        with loop.lib.no_grad():
            loop.w.mul_(0.5)
        second = (loop.data(3, 3) @ loop.w).tanh().sum()
        second.backward()
        return loop.w.grad, graph(second)

    def written_to_and_gone_on_with(loop: Loop) -> Any:
        y = loop.data(3, 3) @ loop.w
        y.add_(1.0)
        z = y.tanh() * loop.w
        z.sum().backward()
        return loop.w.grad, graph(z)

    def written_to_where_nobody_notes_it(loop: Loop) -> Any:
        y = loop.data(3, 3) @ loop.w
        with loop.lib.no_grad():
            y.add_(1.0)
        (y * loop.w).sum().backward()
        return (loop.w.grad,)

    def stepped_halfway(loop: Loop) -> Any:
        loop.w.grad = loop.lib.ones(3, 3)
        y = (loop.data(3, 3) @ loop.w).tanh()
        loop.optimizer.step()
        loop.w.grad = None
        (y * loop.w).sum().backward()
        return (loop.w.grad,)

    def a_view_written_to(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w).tanh()
        loss = y[1:].exp().sum()
        with loop.lib.no_grad():
            y[0] = 0.0
        return told(loss.backward), y

    def a_view_of_what_is_written_to(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w).tanh() * 2.0
        row = y[1:]
        y.mul_(3.0)
        row.square().sum().backward()
        return loop.w.grad, row

    def some_that_lead_nowhere(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w).tanh()
        aside = (y * 2.0).exp()
        y.sum().backward()
        return loop.w.grad, graph(aside), told(aside.sum().backward)

    def several_at_once(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w).tanh() * loop.w
        most, where = y.max(dim=0)
        (most.sum() * most.exp().sum()).backward()
        return loop.w.grad, graph(most), where

    def watched_for_anomalies(loop: Loop) -> Any:
        y = (loop.data(3, 3) @ loop.w).tanh()
        with loop.lib.autograd.detect_anomaly(check_nan=False):
            loss = (y * loop.w).sum()
            loss.backward()
        return loop.w.grad, graph(loss)

    def carried_over_several_steps(loop: Loop) -> Any:
        state = loop.data(3, 3)
        for _ in range(3):
            state = (state @ loop.w + loop.data(3, 3)).tanh()
        state.sum().backward()
        return state, loop.w.grad

    # Like the recurring round, except for one thing

    def other_shape(loop: Loop) -> Any:
        return (((loop.data(4, 3) @ loop.w + 1).tanh() * 2.0).sum(),)

    def other_dtype(loop: Loop) -> Any:
        return ((loop.data(3, 3, dtype="float64") @ loop.w.double() + loop.v).tanh().sum(),)

    def another_constant(loop: Loop) -> Any:
        return (((loop.data(3, 3) @ loop.w + loop.v).tanh() * 3.0).sum(),)

    def a_constant_of_another_type(loop: Loop) -> Any:
        return ((loop.data(3, 3) @ loop.w + loop.v).tanh() * True,)

    def the_same_tensor_twice(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        return ((loop.data(3, 3) @ loop.w + loop.w).tanh() * 2.0,)

    def operands_in_another_order(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        return ((loop.w @ loop.data(3, 3) + loop.v).tanh() * 2.0,)

    def no_gradient(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        with loop.lib.no_grad():
            return ((loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0,)

    def no_gradient_halfway(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh()
        with loop.lib.no_grad():
            return (y * 2.0,)

    def a_frozen_weight(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        loop.w.requires_grad_(False)
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
        loop.w.requires_grad_(True)
        return (y,)

    def a_state_that_wants_a_gradient(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        v, loop.v = loop.v, loop.v.clone().requires_grad_()
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
        y.sum().backward()
        grad, loop.v = loop.v.grad, v
        return grad, y

    def written_to(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        y = loop.data(3, 3) @ loop.w + loop.v
        y.mul_(0.5)
        return (y.tanh() * 2.0,)

    def a_view_that_went_stale(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        base = loop.data(3, 3) @ loop.w
        row = base[0]
        base.add_(1.0)
        return ((row + loop.v[0]).tanh() * 2.0,)

    def nothing_of_it(loop: Loop) -> Any:
        return (loop.w.sum() + loop.v.sum(),)

    def less_of_it(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        return (loop.data(3, 3) @ loop.w,)

    def more_of_it(loop: Loop) -> Any:
        return (loop.step() + loop.step(),)

    def another_dimension(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
        return ((y[1:] - 0.5).square().mean(dim=0).sum(),)

    def another_slice(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
        return ((y[:1] - 0.5).square().mean(dim=-1).sum(),)

    def the_graph_once_more(loop: Loop) -> Any:
        loop.optimizer.zero_grad()
        y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
        loss = (y[1:] - 0.5).square().mean(dim=-1).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        return (loop.w.grad,)
