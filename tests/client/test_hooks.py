"""Hooks on tensors and nodes: when they run, what they may return, and what a session does meanwhile."""

from __future__ import annotations

import functools
import gc
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.autograd.custom_function import Function as EngineFunction
from telegrad_engine.errors import NotSupported
from telegrad_engine.program.registered_functions import SHARED, Installed
from telegrad_engine.schema.parameters import Array

from .custom_functions import function, leaf, nothing_waits
from .parity import bodies, held, same, same_error


def noting(seen: list[Any], what: str) -> Callable[..., None]:
    """Return a hook that notes its gradients and changes nothing."""
    return lambda *gradients: seen.append((what, [plain(each) for each in gradients]))


def plain(gradients: Any) -> Any:
    if isinstance(gradients, tuple):
        return [plain(each) for each in gradients]
    return None if gradients is None else gradients.tolist()


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def replaced_on_the_way(lib: Any) -> Any:
        x = leaf(lib)
        y = x * x
        y.register_hook(lambda grad: grad * 10)
        y.register_hook(lambda grad: None)
        y.register_hook(lambda grad: grad + 1)
        x.register_hook(lambda grad: grad.clamp(max=30))
        (y * 2).sum().backward()
        return x.grad

    def seen_by_value(lib: Any) -> Any:
        seen = []
        x = leaf(lib)
        y = x.exp()
        y.register_hook(lambda grad: seen.append(grad.tolist()))
        x.register_hook(lambda grad: seen.append(float(grad.norm())))
        (y * x).sum().backward()
        return seen, x.grad

    def changed_in_place(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 1
        y.register_hook(lambda grad: grad.mul_(3))
        x.register_hook(lambda grad: setattr(x, "seen", grad.add_(1).tolist()))
        (y * y).sum().backward()
        return x.grad

    def order_of_all_kinds(lib: Any) -> Any:
        seen: list[Any] = []
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = x * w
        z = y.sin()
        for name, t in (("x", x), ("w", w), ("y", y), ("z", z)):
            t.register_hook(lambda grad, name=name: seen.append((name, grad.tolist())))
        y.retain_grad()
        y.register_hook(lambda grad: seen.append(("kept yet", y.grad is None)) or grad * 2)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(("stored x", p is x, p.grad.tolist())))
        w.register_post_accumulate_grad_hook(lambda p: seen.append(("stored w", p.grad.tolist())))
        (z * z).sum().backward()
        return seen, x.grad, w.grad, y.grad

    def order_for_chosen_leaves(lib: Any) -> Any:
        seen: list[Any] = []
        x = leaf(lib)
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
        y.sum().backward(inputs=[x])
        return seen, y.grad, x.grad, lib.autograd.grad((x * 2).sum(), x)

    def order_along_a_graph(lib: Any) -> Any:
        """A leaf has its gradient before older nodes run: a large model's gradients need not all be there at once."""
        seen: list[str] = []
        once, twice, root = leaf(lib), leaf(lib), leaf(lib)
        for name, x in (("once", once), ("twice", twice), ("root", root)):
            x.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
        first = twice * 3
        middle = first.exp() * twice
        for name, y in (("first", first), ("middle", middle)):
            y.register_hook(lambda grad, name=name: seen.append(name))
        ones = lib.ones(3, dtype=lib.float64)
        lib.autograd.backward([(middle * once).sum(), root.sum(), root], [None, None, ones])
        return seen, once.grad, twice.grad, root.grad

    def a_leaf_that_is_used_twice(lib: Any) -> Any:
        seen: list[Any] = []
        x = leaf(lib)
        x.register_hook(lambda grad: grad * 2)
        x.register_hook(noting(seen, "all uses at once"))
        (x * 2 + x * 3).sum().backward()
        return seen, x.grad

    def several_outputs(lib: Any) -> Any:
        seen: list[Any] = []
        x = leaf(lib)
        a, b, c = x.unbind()
        a.register_hook(lambda grad: seen.append(("a", grad is None)))
        b.retain_grad()
        c.register_hook(lambda grad: grad * 7)
        (b * 2 + c * 3).backward()
        return seen, b.grad, x.grad

    def updated_as_soon_as_stored(lib: Any) -> Any:
        """An optimizer step in backward that frees each gradient immediately."""
        x, w = leaf(lib), leaf(lib, 4, 5, 6)

        def step(p: Any) -> None:
            with lib.no_grad():
                p.sub_(p.grad, alpha=0.5)
            p.grad = None

        for p in (x, w):
            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            (x.sin() * w.cos()).sum().backward()
        return x, w, x.grad is None, x._version

    def removed(lib: Any) -> Any:
        x = leaf(lib)
        first, second = x.register_hook(lambda grad: grad * 2), x.register_hook(lambda grad: grad * 5)
        first.remove()
        first.remove()
        with x.register_hook(lambda grad: grad * 7):
            x.sum().backward()
        seen = [x.grad.tolist()]
        second.remove()
        x.sum().backward()
        x.register_hook(lambda grad: grad * 11)
        x.sum().backward()
        return seen, x.grad

    def removed_by_itself(lib: Any) -> Any:
        x = leaf(lib)
        handles: list[Any] = []

        def once(grad: Any) -> Any:
            handles[0].remove()
            return grad * 100

        handles.append(x.register_hook(once))
        for _ in range(2):
            x.sum().backward()
        return x.grad

    def removed_and_added_during_the_pass(lib: Any) -> Any:
        seen: list[Any] = []
        x = leaf(lib)
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

    def where_a_pass_ends(lib: Any) -> Any:
        seen: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda grad: grad * 10)
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 100,))
        y.grad_fn.register_hook(noting(seen, "node"))
        x.register_hook(noting(seen, "leaf"))
        both_ends = lib.autograd.grad(y.sum(), [y, x], retain_graph=True)
        middle = lib.autograd.grad(y.sum(), y, retain_graph=True)
        y.grad = None
        z = x * 2
        z.sum().backward(inputs=[z])
        return seen, both_ends, middle, x.grad, z.grad, z.retains_grad

    def with_inputs(lib: Any) -> Any:
        seen = []
        x, w = leaf(lib), leaf(lib)
        y = x * w
        y.register_hook(lambda grad: grad * 10)
        x.register_hook(lambda grad: grad + 1)
        w.register_hook(lambda grad: seen.append("w"))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(("stored", p.grad.tolist())))
        found = lib.autograd.grad((y * 2).sum(), [y, x], retain_graph=True)
        only = lib.autograd.grad((y * 2).sum(), y, retain_graph=True)
        (y * 2).sum().backward(inputs=[x])
        return found, only, x.grad, w.grad, seen

    def a_leaf_as_root(lib: Any) -> Any:
        x = leaf(lib, 2)
        x.register_hook(lambda grad: grad * 3)
        x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2) and None)
        x.backward()
        return x.grad

    def higher_order(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 2, 3, 4)
        y = x * x
        y.register_hook(lambda grad: grad * w * y)
        x.register_hook(lambda grad: grad.exp() * 0.01)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        return g, lib.autograd.grad((g * g).sum(), [x, w])

    def grad_mode_inside(lib: Any) -> Any:
        seen = []
        x, w = leaf(lib), leaf(lib)
        y = x * x
        y.register_hook(lambda grad: seen.append((lib.is_grad_enabled(), (w * 2).requires_grad)))
        y.grad_fn.register_hook(lambda results, grads: seen.append(lib.is_grad_enabled()))
        y.grad_fn.register_prehook(lambda grads: seen.append(lib.is_grad_enabled()))
        x.register_post_accumulate_grad_hook(lambda p: seen.append((lib.is_grad_enabled(), p.grad.requires_grad)))
        y.sum().backward(retain_graph=True)
        x.grad = None
        y.sum().backward(create_graph=True)
        x.grad = None
        return seen

    def around_a_function(lib: Any) -> Any:
        seen = []

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append(("fn", a.tolist(), b.tolist()))
            return a * 2 + b * 3

        x = leaf(lib)
        x.register_hook(lambda grad: seen.append(("x", grad.tolist())))
        fn = function(lib, forward=lambda ctx, x: (x * 2, x * 3), backward=backward)
        a, b = fn.apply(x)
        a.register_hook(lambda grad: grad * 10)
        b.register_hook(lambda grad: seen.append(("b", grad)))
        b.register_hook(lambda grad: None)
        a.sum().backward()
        return seen, x.grad

    def accumulated_over_batches(lib: Any) -> Any:
        x = leaf(lib)
        x.register_hook(lambda grad: grad / 4)
        for batch in range(4):
            (x * batch).sum().backward()
        return x.grad


class ValuelessBodies:
    """Functions whose hooks ask for no values."""

    def on_a_chain(lib: Any) -> Any:
        x = y = leaf(lib)
        for _ in range(5):
            y = y * 2
            y.register_hook(lambda grad: grad * 0.5)
            y.register_hook(lambda grad: None)
        y.sum().backward()
        return x.grad

    def of_all_kinds(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = x * w
        y.register_hook(lambda grad: grad.mul_(2))
        x.register_hook(lambda grad: grad + y)
        w.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 3))
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 5,))
        y.grad_fn.register_hook(lambda given, grads: (given[0] + 1, given[1]))
        function(lib, forward=lambda ctx, y: y * 2, backward=lambda ctx, grad: grad * 2).apply(y).sum().backward()
        return x.grad, w.grad

    def some_gradients_missing(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        y = w * 2
        y.register_hook(lambda grad: grad)
        fn = function(lib, forward=lambda ctx, a, b: (a * 2, b * 3), backward=lambda ctx, a, b: (a + b, None))
        fn.apply(x, y)[0].sum().backward()
        return x.grad, w.grad

    def by_grad(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 2, 3, 4)
        y = x * x
        y.register_hook(lambda grad: grad * w * y)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        return lib.autograd.grad((g * g).sum(), [x, w])

    def inside_a_hook(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        w.register_hook(lambda grad: grad * 2)

        def inner(grad: Any) -> Any:
            with lib.enable_grad():
                (w * w * grad.detach()).sum().backward()
            return grad + w.grad

        y = x * 3
        y.register_hook(inner)
        y.sum().backward()
        return x.grad, w.grad


@pytest.mark.filterwarnings("ignore:Using backward", "ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("body", [*bodies(Bodies), *bodies(ValuelessBodies)], ids=lambda body: body.__name__)
def test_it_is_as_in_torch(everywhere: tg.Session | None, body: Callable[[Any], Any]) -> None:
    same(body)
    nothing_waits(everywhere)


def named(grad: Any) -> Any:
    return 5


class Halving:
    def __call__(self, grad: Any) -> Any:
        return grad.float()


@pytest.mark.parametrize("on", ["leaf", "non-leaf"])
@pytest.mark.parametrize(
    "hook",
    [
        named,
        3,
        lambda grad: (grad,),
        lambda grad: [grad],
        lambda grad: grad[:2],
        lambda grad: grad[:1],
        lambda grad: grad.sum(),
        lambda grad: grad.float(),
        lambda grad: grad.long(),
        Halving(),
        functools.partial(lambda factor, grad: grad.float(), 2),
    ],
)
def test_what_a_hook_may_not_return(everywhere: tg.Session | None, hook: Any, on: str) -> None:
    def body(lib: Any) -> None:
        x = leaf(lib)
        y = x * 2
        (x if on == "leaf" else y).register_hook(hook)
        y.sum().backward()

    same_error(body, whole=True)
    nothing_waits(everywhere)
    same(Bodies.replaced_on_the_way)


def returning_from_a_post_accumulate_hook(lib: Any) -> None:
    x = leaf(lib)
    x.register_post_accumulate_grad_hook(lambda p: 3)
    x.sum().backward()


@pytest.mark.parametrize(
    "body",
    [
        lambda lib: lib.ones(2).register_hook(print),
        lambda lib: lib.ones(2).register_post_accumulate_grad_hook(print),
        lambda lib: (leaf(lib) * 2).register_post_accumulate_grad_hook(print),
        lambda lib: leaf(lib)[:2].register_post_accumulate_grad_hook(print),
        returning_from_a_post_accumulate_hook,
    ],
)
def test_mistakes_are_told_in_torchs_words(everywhere: tg.Session | None, body: Callable[[Any], Any]) -> None:
    same_error(body, whole=True)
    nothing_waits(everywhere)
    same(Bodies.replaced_on_the_way)


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_a_hook_of_a_node_at_which_backward_ends_is_refused(session: tg.Session, register: str) -> None:
    """torch runs it; a pass cannot stop for the client there. No gradient is computed."""
    x = leaf(tg)
    y = x * 2
    y.retain_grad()
    handle = getattr(y.grad_fn, register)(lambda *grads: None)
    with pytest.raises(NotSupported, match=r"backward\(inputs=...\) ends; register it on the tensor instead"):
        (y * y).sum().backward(inputs=[y])
    assert y.grad is None
    nothing_waits(session)
    handle.remove()
    (y * y).sum().backward(inputs=[y])
    assert y.grad is not None and y.grad.tolist() == (y * 2).tolist()


def test_an_error_of_a_hook_is_the_users(session: tg.Session) -> None:
    def broken(grad: Any) -> None:
        raise KeyError("mine")

    x = leaf(tg)
    y = x * x
    handle = y.register_hook(broken)
    with pytest.raises(KeyError, match="mine") as caught:
        y.sum().backward(retain_graph=True)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "broken"
    nothing_waits(session)
    handle.remove()
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4, 6]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("body", bodies(ValuelessBodies), ids=lambda body: body.__name__)
def test_hooks_that_ask_for_no_values_take_no_round_trip(session: tg.Session, body: Callable[[Any], Any]) -> None:
    before = session.recorder.waits
    body(tg)
    assert session.recorder.waits == before
    nothing_waits(session)


def test_a_stop_takes_one_round_trip_for_each_value_read(session: tg.Session) -> None:
    x = y = leaf(tg)
    for _ in range(4):
        y = y * 2
        y.register_hook(lambda grad: grad / grad.norm().item())
    before = session.recorder.waits
    y.sum().backward()
    assert session.recorder.waits == before + 4
    assert x.grad is not None


def test_what_fails_in_the_session_takes_back_the_gradients_after_it(session: tg.Session) -> None:
    x, w = leaf(tg), leaf(tg, 4, 5, 6)
    y = x * 2
    y.register_hook(lambda grad: grad * tg.linalg.inv(tg.zeros(3, 3, dtype=tg.float64)).sum())
    (y * w).sum().backward()
    with pytest.raises(RuntimeError, match="singular"):
        (y + 1).sum().item()
    nothing_waits(session)
    assert w.grad is not None
    assert w.grad.tolist() == [2, 4, 6]
    assert x.grad is None
    same(Bodies.replaced_on_the_way)


def test_gradients_at_earlier_stops_are_freed_meanwhile() -> None:
    size = 1_000_000
    with tg.connect("local://", max_bytes=40 * size) as session:
        x = y = tg.ones(size, requires_grad=True)
        for _ in range(20):
            y = y * 2
            session.flush()
            y.register_hook(lambda grad: grad * 0.5)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.sum().item() == size


def test_a_debugged_pass_is_sent_at_once_and_fails_at_the_hooks_line(session: tg.Session) -> None:
    y = leaf(tg) * 2
    y.register_hook(lambda grad: tg.linalg.inv(tg.zeros(3, 3)))
    loss = y.sum()
    tg.debug(True)
    try:
        with pytest.raises(RuntimeError, match="singular"):
            loss.backward()
    finally:
        tg.debug(False)
    nothing_waits(session)


def test_a_hook_behind_a_gradient_that_only_the_session_knows_to_be_missing() -> None:
    class First(EngineFunction):
        @staticmethod
        def forward(ctx: Any, x: Array, y: Array) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2, None

    with tg.connect("local://") as session:
        SHARED.add(Installed("first_of_two", First))
        try:
            seen: list[Any] = []
            x, w = leaf(tg), leaf(tg)
            a, b = x * 3, w * 3
            a.register_hook(lambda grad: seen.append("a"))
            b.register_hook(lambda grad: seen.append("b"))
            tg.ops.first_of_two(a, b).sum().backward()
            assert seen == ["a"]
            assert x.grad is not None
            assert x.grad.tolist() == [6, 6, 6]
            nothing_waits(session)
        finally:
            SHARED.remove("first_of_two")


def test_nothing_is_left_in_the_session(session: tg.Session) -> None:
    x = leaf(tg)
    before = held(session)

    def run() -> None:
        y = x * 2
        y.register_hook(lambda grad: grad * y.detach().sum())
        y.sum().backward()
        x.grad = None

    run()
    gc.collect()  # a hook that refers to its own tensor forms a cycle, in torch too
    assert held(session) == before
    assert not session.recorder.python_hooks


def test_a_closed_session_forgets_hooks(session: tg.Session) -> None:
    handle = leaf(tg).register_hook(print)
    session.close()
    handle.remove()


def test_a_loop_with_hooks_sends_the_same_programs_again(session: tg.Session) -> None:
    def step() -> None:
        x = leaf(tg)
        y = function(tg, forward=lambda ctx, t: t * 2, backward=lambda ctx, grad: grad * 2).apply(x)
        y.register_hook(lambda grad: grad * 0.5)
        y.grad_fn.register_hook(lambda inputs, outputs: None)
        x.register_post_accumulate_grad_hook(lambda p: None)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [1, 1, 1]

    for _ in range(4):
        step()
    known = {report["digest"] for report in session.compiled()}
    for _ in range(4):
        step()
    assert {report["digest"] for report in session.compiled()} == known
