"""Rounds of a loop that inspect or change the graph at different times, in torch or Telegrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .repeating import Loop


def forward(loop: Loop) -> Any:
    """A chain in which every op saves something: inputs, outputs, a leaf."""
    return ((loop.data(3, 3) @ loop.w + loop.v).tanh() * loop.w).exp()


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


def looked_at_before_and_behind(loop: Loop) -> Any:
    y = forward(loop)
    loss = y.sum()
    assert loss.requires_grad and not loss.is_leaf
    before = graph(loss)
    loss.backward()
    return before, graph(y), y.is_leaf, loop.w.grad


def looked_at_behind(loop: Loop) -> Any:
    y = forward(loop)
    y.sum().backward()
    return graph(y), y.requires_grad, loop.w.grad


def gone_through_twice(loop: Loop) -> Any:
    loss = forward(loop).sum()
    loss.backward()
    return told(loss.backward), loop.w.grad


def gone_through_from_two_ends(loop: Loop) -> Any:
    y = forward(loop)
    y.sum().backward()
    return told(y.mean().backward), loop.w.grad


def gone_through_from_many_elements(loop: Loop) -> Any:
    y = forward(loop)
    return told(y.backward), told(lambda: loop.lib.autograd.grad(y, loop.w)), loop.w.grad is None


def two_graphs_at_once(loop: Loop) -> Any:
    first, second = forward(loop).sum(), (loop.w * loop.v).sum()
    first.backward()
    second.backward()
    return loop.w.grad, graph(first), graph(second)


def kept_for_another_pass(loop: Loop) -> Any:
    loss = forward(loop).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return loop.w.grad, told(loss.backward)


def gradients_alone(loop: Loop) -> Any:
    loss = forward(loop).sum()
    (grad,) = loop.lib.autograd.grad(loss, loop.w)
    return grad, loop.w.grad is None, told(loss.backward)


def gradients_of_gradients(loop: Loop) -> Any:
    loss = forward(loop).sum()
    (grad,) = loop.lib.autograd.grad(loss, loop.w, create_graph=True)
    grad.square().sum().backward()
    return grad, loop.w.grad, graph(loss)


def written_to_before_the_pass(loop: Loop) -> Any:
    y = forward(loop)
    loss = y.sum()
    with loop.lib.no_grad():
        y.add_(1.0)
    return told(loss.backward), loop.w.grad is None


def written_to_by_another_name(loop: Loop) -> Any:
    y = forward(loop)
    loss = y.sum()
    y.detach().add_(1.0)
    return told(loss.backward), y


def a_leaf_written_to(loop: Loop) -> Any:
    loss = forward(loop).sum()
    with loop.lib.no_grad():
        loop.w.mul_(1.0)
    return told(loss.backward), graph(loss)


def a_state_written_to(loop: Loop) -> Any:
    loss = ((loop.w * loop.v).tanh() * loop.w).sum()
    loop.v.mul_(1.0)
    return told(loss.backward)


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
    return loop.w.grad


def stepped_halfway(loop: Loop) -> Any:
    loop.w.grad = loop.lib.ones(3, 3)
    y = (loop.data(3, 3) @ loop.w).tanh()
    loop.optimizer.step()
    loop.w.grad = None
    (y * loop.w).sum().backward()
    return loop.w.grad


def gradients_let_go_before_the_pass(loop: Loop) -> Any:
    loop.w.grad = loop.lib.ones(3, 3)
    loss = (forward(loop) * loop.w.grad).sum()
    loop.optimizer.zero_grad()
    loss.backward()
    return loop.w.grad, graph(loss)


def gradients_made_zeros_before_the_pass(loop: Loop) -> Any:
    loop.w.grad = loop.lib.ones(3, 3)
    loss = (forward(loop) * loop.w.grad).sum()
    loop.optimizer.zero_grad(set_to_none=False)
    return told(loss.backward), loop.w.grad


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
    loss = row.square().sum()
    loss.backward()
    return loop.w.grad, row


def a_hook_on_what_is_between(loop: Loop) -> Any:
    y = forward(loop)
    seen: list[Any] = []
    y.register_hook(lambda grad: seen.append(grad.sum()))
    y.sum().backward()
    return seen[0], loop.w.grad


def a_hook_on_a_leaf(loop: Loop) -> Any:
    loss = forward(loop).sum()
    seen: list[Any] = []
    hook = loop.w.register_hook(lambda grad: seen.append(grad.sum()))
    loss.backward()
    hook.remove()
    return seen[0], loop.w.grad


def a_hook_on_a_node(loop: Loop) -> Any:
    y = forward(loop)
    seen: list[Any] = []
    y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].sum()))
    y.sum().backward()
    return seen[0], loop.w.grad


def a_gradient_that_is_retained(loop: Loop) -> Any:
    y = forward(loop)
    y.retain_grad()
    y.sum().backward()
    return y.grad, loop.w.grad


def no_leaf_at_all(loop: Loop) -> Any:
    y = forward(loop).detach()
    loss = (y * loop.v).sum()
    return told(loss.backward), loss


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


def read_before_the_pass(loop: Loop) -> Any:
    loss = forward(loop).sum()
    value = loss.item()
    loss.backward()
    return value, loop.w.grad, graph(loss)


def watched_for_anomalies(loop: Loop) -> Any:
    y = (loop.data(3, 3) @ loop.w).tanh()
    with loop.lib.autograd.detect_anomaly(check_nan=False):
        loss = (y * loop.w).sum()
        loss.backward()
    return loop.w.grad, graph(loss)


ROUNDS = [
    looked_at_halfway,
    looked_at_while_others_go_on,
    looked_at_before_and_behind,
    looked_at_behind,
    gone_through_twice,
    gone_through_from_two_ends,
    gone_through_from_many_elements,
    two_graphs_at_once,
    kept_for_another_pass,
    gradients_alone,
    gradients_of_gradients,
    written_to_before_the_pass,
    written_to_by_another_name,
    a_leaf_written_to,
    a_state_written_to,
    a_leaf_written_to_before_it_is_used_again,
    written_to_and_gone_on_with,
    written_to_where_nobody_notes_it,
    stepped_halfway,
    gradients_let_go_before_the_pass,
    gradients_made_zeros_before_the_pass,
    a_view_written_to,
    a_view_of_what_is_written_to,
    a_hook_on_what_is_between,
    a_hook_on_a_leaf,
    a_hook_on_a_node,
    a_gradient_that_is_retained,
    no_leaf_at_all,
    some_that_lead_nowhere,
    several_at_once,
    read_before_the_pass,
    watched_for_anomalies,
]
