"""Hooks on tensors, on nodes and on what is saved: when they run, what they may return, and torch's words if not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from .twins import OURS, both, both_raise, leaf

ONES = (1.0, 1.0, 1.0)


def noting(seen: list[Any], what: str) -> Callable[..., None]:
    """A hook that notes its call and changes nothing."""

    def hook(*values: Any) -> None:
        seen.append((what, [grads(v) for v in values]))

    return hook


def grads(value: Any) -> Any:
    if isinstance(value, tuple):
        return [grads(v) for v in value]
    return None if value is None else value.tolist()


@pytest.mark.parametrize("chosen", [False, True], ids=["all leaves", "chosen leaves"])
def test_all_kinds_run_in_torchs_order(chosen: bool) -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda grad: grad * 10)
        y.register_hook(noting(seen, "tensor"))
        y.grad_fn.register_hook(noting(seen, "node"))
        y.grad_fn.register_prehook(noting(seen, "before node"))
        end = y.grad_fn.next_functions[0][0]
        end.register_hook(noting(seen, "end"))
        end.register_prehook(lambda gradients: seen.append(("before end", x.grad)))
        x.register_hook(noting(seen, "leaf"))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(("stored", p is x, p.grad.tolist())))
        y.sum().backward(inputs=[x] if chosen else None)
        retained = y.grad
        seen.append(t.autograd.grad((x * 2).sum(), x))
        return seen, retained, x.grad

    both(run)


def test_each_sees_what_the_one_before_returned_and_all_edges_at_once() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        x.register_hook(lambda grad: grad * 2)
        x.register_hook(noting(seen, "second"))
        x.register_hook(lambda grad: grad + 1)
        (x * 2 + x * 3).sum().backward()
        (x * x).sum().backward()
        return seen, x.grad

    both(run)


def test_handles_remove_once_and_are_context_managers() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        first, second = x.register_hook(lambda grad: grad * 2), x.register_hook(lambda grad: grad * 5)
        first.remove()
        first.remove()
        with x.register_hook(lambda grad: grad * 7):
            x.sum().backward()
        second.remove()
        x.sum().backward()
        node = (x * 1).sum()
        handle = node.grad_fn.register_prehook(lambda grads: (grads[0] * 9,))
        handle.remove()
        node.backward()
        return x.grad

    both(run)


def test_removed_and_added_during_the_pass() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        handles: list[Any] = []
        x.register_hook(lambda grad: handles[0].remove())
        x.register_hook(lambda grad: x.register_hook(noting(seen, "added at its own")) and None)
        handles.append(x.register_hook(noting(seen, "removed at its own")))
        y = x * 2
        early = y.register_hook(noting(seen, "removed before"))
        z = y * 3
        z.register_hook(lambda grad: early.remove())
        z.register_hook(lambda grad: y.register_hook(noting(seen, "added before")) and None)
        z.sum().backward(retain_graph=True)
        seen.append("again")
        (x * 1).sum().backward()
        return seen

    both(run)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_grad_mode_is_create_graph_inside_hooks() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x, w = leaf(t), leaf(t)
        y = x * x
        y.register_hook(lambda grad: seen.append((t.is_grad_enabled(), (w * 2).requires_grad)))
        y.grad_fn.register_hook(lambda results, grads: seen.append(t.is_grad_enabled()))
        y.grad_fn.register_prehook(lambda grads: seen.append(t.is_grad_enabled()))
        x.register_post_accumulate_grad_hook(lambda p: seen.append((t.is_grad_enabled(), p.grad.requires_grad)))
        y.sum().backward(retain_graph=True)
        x.grad = None
        y.sum().backward(create_graph=True)
        x.grad = None
        return seen

    both(run)


def test_hooks_under_create_graph_are_differentiated() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t, (2.0, 3.0, 4.0))
        y = x * x
        y.register_hook(lambda grad: grad * w)
        y.grad_fn.register_hook(lambda results, grads: tuple(r if r is None else r * w for r in results))
        y.grad_fn.register_prehook(lambda grads: (grads[0] * w,))
        (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
        second = t.autograd.grad(first.sum(), [x, w])
        return first.detach(), second

    both(run)


def test_a_parameter_can_be_updated_as_soon_as_its_gradient_is_there() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)

        def update(p: Any) -> None:
            p.sub_(p.grad * 0.5)
            p.grad = None

        x.register_post_accumulate_grad_hook(update)
        for _ in range(3):
            (x * x).sum().backward()
        return x, x.grad, x._version

    both(run)


def test_retained_gradients_and_hooks_around_an_in_place_change() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        y = x * 2
        y.register_hook(noting(seen, "before"))
        y.retain_grad()
        y.mul_(3)
        y.register_hook(noting(seen, "after"))
        y.sum().backward()
        return seen, y.grad, x.grad

    both(run)


def test_outputs_that_no_gradient_reached() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        a, b, _ = x.unbind()
        a.register_hook(noting(seen, "a"))
        b.register_hook(noting(seen, "b"))
        b.retain_grad()
        a.grad_fn.register_prehook(noting(seen, "before"))
        a.grad_fn.register_hook(noting(seen, "after"))
        (a * 2).backward()
        return seen, b.grad, x.grad

    both(run)


@pytest.mark.parametrize("also_leaf", [False, True])
def test_node_hooks_where_backward_ends(also_leaf: bool) -> None:
    """``backward(inputs=[y])`` evaluates y's node, though nothing is wanted of it; ``grad`` does not."""

    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        y = x * 2
        y.register_hook(noting(seen, "tensor"))
        y.grad_fn.register_prehook(noting(seen, "before"))
        y.grad_fn.register_hook(noting(seen, "after"))
        ends = [y, x] if also_leaf else [y]
        (y * 3).sum().backward(inputs=ends, retain_graph=True)
        seen.append("grad")
        t.autograd.grad((y * 3).sum(), ends, retain_graph=True)
        return seen, y.grad, x.grad

    both(run)


def test_grad_runs_the_hooks_of_what_it_passes() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda grad: grad * 10)
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 100,))
        y.grad_fn.register_hook(noting(seen, "node"))
        x.register_hook(noting(seen, "leaf"))
        x.register_post_accumulate_grad_hook(noting(seen, "stored"))
        both_ends = t.autograd.grad(y.sum(), [y, x], retain_graph=True)
        middle = t.autograd.grad(y.sum(), y, retain_graph=True)
        y.grad = None
        z = x * 2
        z.sum().backward(inputs=[z])
        return seen, both_ends, middle, y.grad, x.grad, z.grad, z.retains_grad

    both(run)


@pytest.mark.parametrize(
    "change",
    [
        lambda results, grads: (results[0] * 7, None),
        lambda results, grads: (None, None),
        lambda results, grads: None,
    ],
)
def test_node_hooks_replace_what_the_derivatives_gave(change: Any) -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        y.grad_fn.register_hook(change)
        y.sum().backward()
        z = x * 2
        z.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        z.sum().backward()
        w = x * 2
        w.grad_fn.register_prehook(lambda grads: (None,))
        w.sum().backward()
        return x.grad

    both(run)


def test_node_hooks_see_gradients_in_the_shape_of_the_inputs() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x, w = leaf(t), leaf(t, [[1.0], [2.0]])
        for y in (x + w, x * w, x.sum(), x.exp(), t.F.stack([x, x * 2]), x @ x):
            y.grad_fn.register_hook(noting(seen, "node"))
            y.sum().backward()
        return seen, x.grad, w.grad

    both(run)


# What they may not do ------------------------------------------------------------------------


def named(grad: Any) -> Any:
    return 5


class Callable_:
    def __call__(self, grad: Any) -> Any:
        return grad.double()


@pytest.mark.parametrize(
    "hook",
    [
        named,
        3,
        lambda grad: (grad,),
        lambda grad: [grad],
        lambda grad: grad[:2],
        lambda grad: grad[:1],
        lambda grad: grad.double(),
        lambda grad: grad.long(),
        Callable_(),
        functools.partial(lambda factor, grad: grad.double(), 2),
    ],
)
def test_what_a_tensors_hook_may_not_return(hook: Any) -> None:
    def on(kind: str) -> Callable[[Any], Any]:
        def run(t: Any) -> Any:
            x = leaf(t)
            y = x * 2
            (x if kind == "leaf" else y).register_hook(hook)
            y.sum().backward()

        return run

    both_raise(on("leaf"))
    both_raise(on("non-leaf"))


@pytest.mark.parametrize(
    "register",
    [
        lambda n: n.register_prehook(lambda grads: grads[0]),
        lambda n: n.register_prehook(lambda grads: (grads[0], grads[0])),
        lambda n: n.register_prehook(lambda grads: (5,)),
        lambda n: n.register_prehook(lambda grads: (grads[0][:1],)),
        lambda n: n.register_hook(lambda results, grads: results[0]),
        lambda n: n.register_hook(lambda results, grads: list(results)),
        lambda n: n.register_hook(lambda results, grads: (results[0],)),
        lambda n: n.register_hook(lambda results, grads: (results[0][:1], None)),
        lambda n: n.register_hook(lambda results, grads: (results[0], results[0])),
        lambda n: n.register_hook(lambda results, grads: (results[0].double(), None)),
    ],
)
def test_what_a_nodes_hook_may_not_return(register: Any) -> None:
    def run(t: Any) -> Any:
        y = leaf(t) * 2
        register(y.grad_fn)
        y.sum().backward()

    both_raise(run)


def test_where_hooks_cannot_be_registered() -> None:
    both_raise(lambda t: t.tensor([1.0]).register_hook(print))
    both_raise(lambda t: t.tensor([1.0]).register_post_accumulate_grad_hook(print))
    both_raise(lambda t: (leaf(t) * 2).register_post_accumulate_grad_hook(print))

    def returning(t: Any) -> Any:
        x = leaf(t)
        x.register_post_accumulate_grad_hook(lambda p: 5)
        x.sum().backward()

    both_raise(returning)


def test_an_error_of_a_hook_is_the_callers() -> None:
    def fail(grad: Any) -> None:
        raise ValueError("mine")

    def run(t: Any) -> Any:
        x = leaf(t)
        x.register_hook(fail)
        x.sum().backward()

    both_raise(run)


def test_detaching_cuts_later_uses_only() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        z = y * 3
        y.detach_()
        seen = [y.requires_grad, y.is_leaf, (y * 1).requires_grad]
        z.sum().backward()
        shared = x.detach()
        with t.no_grad():
            shared.add_(1)
        leaf_itself = leaf(t)
        leaf_itself.detach_()
        return seen, x.grad, x, x._version, shared.requires_grad, leaf_itself.requires_grad

    both(run)
    both_raise(lambda t: leaf(t).detach().view(3).detach_())
    both_raise(lambda t: (leaf(t) * 2)[0].detach_())


# Saved tensors -------------------------------------------------------------------------------


def through(pack: Any, unpack: Any, make: Any = lambda t, x: x * x) -> Callable[[Any], Any]:
    """The gradient of what ``make`` computes while these hooks are in force."""

    def run(t: Any) -> Any:
        x = leaf(t)
        with t.saved_tensors_hooks(pack(t), unpack(t)):
            y = make(t, x)
        y.sum().backward()
        return x.grad

    return run


@pytest.mark.parametrize(
    "make",
    [
        lambda t, x: (x * x).exp().tanh(),
        lambda t, x: x / (x + 1),
        lambda t, x: t.F.cat([x * x, x]) * 2,
        lambda t, x: x.prod(),
        lambda t, x: t.F.stack([x, x * x]).unbind()[1] * x,
        lambda t, x: x.sort(descending=True).values * x,
        lambda t, x: x.max() * x,
        lambda t, x: x[1:] * 2 + x[t.tensor([0, 1])],
    ],
)
def test_what_is_packed_comes_back(make: Any) -> None:
    def by_value(t: Any) -> Any:
        return through(lambda t: lambda s: s.detach().numpy().copy(), lambda t: t.tensor, make)(t)

    both(by_value)
    both(through(lambda t: lambda s: s, lambda t: lambda s: s, make))


def test_backward_takes_what_unpacking_gives() -> None:
    both(through(lambda t: lambda s: s.detach() * 0, lambda t: lambda s: s + 7))
    both_raise(through(lambda t: lambda s: None, lambda t: lambda s: s))
    both_raise(through(lambda t: lambda s: s.add_(1), lambda t: lambda s: s))
    both_raise(through(lambda t: lambda s: s.detach().mul_(2), lambda t: lambda s: s, lambda t, x: (x * 1).exp()))
    with pytest.raises(ZeroDivisionError):
        through(lambda t: lambda s: 1 / 0, lambda t: lambda s: s)(OURS)


def test_the_innermost_hooks_count_and_only_inside() -> None:
    def run(t: Any) -> Any:
        seen: list[str] = []

        def note(word: str) -> Any:
            return lambda s: seen.append(word) or s

        x = leaf(t)
        with t.saved_tensors_hooks(note("outer"), note("out again")):
            with t.saved_tensors_hooks(note("inner"), note("in again")):
                y = x.exp()
            z = x.exp()
        w = x.exp()
        (w + z + y).sum().backward()
        return seen, x.grad

    both(run)


def test_packed_copies_do_not_mind_changes() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x.sin()
        with t.saved_tensors_hooks(lambda s: s.clone(), lambda s: s):
            z = y.exp()
        y.add_(1)
        (z * 2).sum().backward()
        return x.grad

    both(run)


def test_second_derivatives_through_packed_tensors() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        with t.saved_tensors_hooks(lambda s: s, lambda s: s):
            y = x * x * x
            (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
        return first.detach(), t.autograd.grad(first.sum(), x)

    both(run)


def test_saved_tensors_hooks_can_be_forbidden() -> None:
    def run(t: Any) -> Any:
        with t.disable_saved_tensors_hooks("not here"), t.saved_tensors_hooks(lambda s: s, lambda s: s):
            pass

    both_raise(run)


def test_a_leaf_has_its_gradient_as_soon_as_its_last_use_was_differentiated() -> None:
    """Before older nodes are: a large model's gradients need not all be there at once."""

    def run(t: Any) -> Any:
        seen: list[str] = []
        once, twice, root = leaf(t), leaf(t), leaf(t)
        for name, x in (("once", once), ("twice", twice), ("root", root)):
            x.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
        first = twice * 3
        middle = first.exp() * twice
        for name, y in (("first", first), ("middle", middle)):
            y.register_hook(lambda grad, name=name: seen.append(name))
        t.autograd.backward([(middle * once).sum(), root.sum(), root], [None, None, t.tensor(list(ONES))])
        return seen, once.grad, twice.grad, root.grad

    both(run)
