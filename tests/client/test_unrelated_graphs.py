"""A graph with hooks and Functions changes nothing for other graphs of its session."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg

from .custom_functions import cube, leaf
from .parity import bodies, check, same, same_error

pytestmark = pytest.mark.usefixtures("session")


def elsewhere(lib: Any) -> list[Any]:
    """Graphs with every kind of Python that passes wait for, which live as long as the list."""
    x, w = leaf(lib), leaf(lib)
    y, z = x * w, cube(lib).apply(x)
    y.register_hook(lambda grad: grad * 10)
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    w.register_post_accumulate_grad_hook(lambda p: None)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        packed = x.exp() * x
    inner = lib.utils.checkpoint.checkpoint(lambda t: t.sin(), x, use_reentrant=True)
    return [x, w, y, z, packed, inner]


def energy(x: Any) -> Any:
    return (x**3).sum() + x.prod()


class Passes:
    """Passes over graphs without the user's Python."""

    def hessian(lib: Any) -> Any:
        return lib.autograd.functional.hessian(energy, leaf(lib).detach())

    def hessian_with_a_history(lib: Any) -> Any:
        return lib.autograd.functional.hessian(energy, leaf(lib), create_graph=True)

    def jacobian(lib: Any) -> Any:
        return [
            lib.autograd.functional.jacobian(lambda x: x.sin() * x, leaf(lib).detach(), vectorize=vectorize)
            for vectorize in (False, True)
        ]

    def products(lib: Any) -> Any:
        functional, x, v = lib.autograd.functional, leaf(lib).detach(), lib.ones(3, dtype=lib.float64)
        return [f(energy, x, v) for f in (functional.hvp, functional.vhp, functional.jvp)], functional.vjp(
            lib.sin, x, v
        )

    def functional_transforms(lib: Any) -> Any:
        x, f = leaf(lib).detach(), lib.func
        return f.hessian(energy)(x), f.jacrev(lib.sin)(x), f.jacfwd(lib.sin)(x), f.vmap(f.grad(lib.sin))(x)

    def batched_gradients(lib: Any) -> Any:
        x = leaf(lib)
        rows = lib.eye(3, dtype=lib.float64)
        return lib.autograd.grad(x.exp() * 2, x, rows, is_grads_batched=True)

    def second_order(lib: Any) -> Any:
        x = leaf(lib)
        (slope,) = lib.autograd.grad(energy(x), x, create_graph=True)
        slope.square().sum().backward()
        return x.grad

    def chosen_inputs(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        (x * w).sum().backward(inputs=[x])
        return x.grad, w.grad

    def checkpointed(lib: Any) -> Any:
        x = leaf(lib)
        for reentrant in (False, True):
            lib.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), x, use_reentrant=reentrant).sum().backward()
        return x.grad

    def forward_mode(lib: Any) -> Any:
        with lib.autograd.forward_ad.dual_level():
            dual = lib.autograd.forward_ad.make_dual(leaf(lib).detach(), lib.ones(3, dtype=lib.float64))
            return lib.autograd.forward_ad.unpack_dual(dual.sin()).tangent.clone()

    def under_anomaly_mode(lib: Any) -> Any:
        x = leaf(lib)
        with lib.autograd.set_detect_anomaly(True):
            (x.exp() * x).sum().backward()
        return x.grad

    def gradcheck(lib: Any) -> Any:
        checks = lib.autograd.gradcheck, lib.autograd.gradgradcheck
        return [check(lambda x: x.sin() * x, (leaf(lib),)) for check in checks]

    def a_loop(lib: Any) -> Any:
        w = leaf(lib)
        optimizer = lib.optim.SGD([w], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        return w


@pytest.mark.filterwarnings("ignore:Using backward", "ignore:.*torch.jit.script.*")
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "gone"])
@pytest.mark.parametrize("body", bodies(Passes), ids=lambda body: body.__name__)
def test_passes_over_other_graphs_are_torchs(body: Callable[[Any], Any], alive: bool) -> None:
    gc.freeze()  # a collection would else look through all that was imported, which takes a quarter of a second

    def beside(lib: Any) -> Any:
        others = elsewhere(lib)
        if not alive:
            others.clear()
            gc.collect()
        return body(lib), len(others)

    same(beside)


class Rows:
    """Batches of gradients that meet the user's Python."""

    def through_a_function(lib: Any) -> Any:
        x = leaf(lib)
        return lib.autograd.grad(cube(lib).apply(x * 2) * 3, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True)

    def through_a_hook(lib: Any) -> Any:
        x = leaf(lib)
        y = x.exp()
        y.register_hook(lambda grad: grad * 10)
        return lib.autograd.grad(y * x, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True)

    def to_a_leaf_with_a_hook(lib: Any) -> Any:
        x = leaf(lib)
        x.register_hook(lambda grad: grad * 10)
        return lib.autograd.grad(x * x, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True)

    def beside_a_leaf_with_a_hook(lib: Any) -> Any:
        seen: list[Any] = []
        x, w = leaf(lib), leaf(lib)
        w.register_hook(seen.append)
        return lib.autograd.grad(x * w, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True), seen

    def unused(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        rows = lib.eye(3, dtype=lib.float64)
        return lib.autograd.grad(cube(lib).apply(x), (x, w), rows, allow_unused=True, is_grads_batched=True)

    def hessian(lib: Any) -> Any:
        return lib.autograd.functional.hessian(lambda x: cube(lib).apply(x).sum(), leaf(lib).detach())

    def jacobian(lib: Any) -> Any:
        return lib.autograd.functional.jacobian(cube(lib).apply, leaf(lib).detach(), vectorize=True)


@pytest.mark.parametrize("body", bodies(Rows), ids=lambda body: body.__name__)
def test_batches_that_meet_the_users_python_are_computed_row_by_row(body: Callable[[Any], Any]) -> None:
    same(body)


def test_batches_do_not_go_through_a_reentrant_checkpoint() -> None:
    def body(lib: Any) -> Any:
        x = leaf(lib)
        y = lib.utils.checkpoint.checkpoint(lambda t: t.sin() * t, x, use_reentrant=True)
        return lib.autograd.grad(y, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True)

    same_error(body, containing="use_reentrant=True")


def test_a_pass_over_another_graph_takes_no_round_trip_and_no_row_of_its_own(session: tg.Session) -> None:
    alive = elsewhere(tg)
    x = leaf(tg)
    y, rows = x.exp(), tg.eye(3, dtype=tg.float64)
    before, waiting = session.requests, session.recorder.waiting
    tg.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    tg.autograd.grad(y, x, rows, is_grads_batched=True, create_graph=True)
    y.sum().backward()
    assert (session.requests, session.recorder.waiting - waiting) == (before, 4)
    assert alive


def test_compiled_functions_are_compiled_beside_other_graphs() -> None:
    alive = elsewhere(tg)

    def loss(x: Any) -> Any:
        return (x.sin() * x).sum()

    compiled, x = tg.compile(loss, fullgraph=True), leaf(tg)
    for _ in range(4):
        compiled(x).backward()  # traced without and with a gradient
    assert "called 2 times" in compiled.explain()
    theirs = leaf(torch)
    (loss(theirs) * 4).backward()
    check(x.grad, theirs.grad)
    assert alive


@pytest.mark.parametrize("hooked_from", [0, 3, 9])
def test_a_compiled_pass_into_what_came_before_gives_its_gradients(hooked_from: int) -> None:
    """A later call may find a hook in the history of its argument."""

    def scenario(lib: Any) -> Any:
        seen: list[Any] = []
        w, found = leaf(lib), []

        def step(x: Any) -> Any:
            loss = (x * x).sum()
            loss.backward()
            return loss.detach()

        run = tg.compile(step) if lib is tg else step
        for turn in range(5):
            w.grad = None
            before = w * 2
            if turn >= hooked_from:
                before.register_hook(lambda grad: seen.append(grad.tolist()))
            run(before * (turn + 1))
            found.append(None if w.grad is None else w.grad.clone())
        return found, seen

    same(scenario)


def test_debug_sends_a_pass_over_another_graph_at_once(session: tg.Session) -> None:
    alive = elsewhere(tg)
    x, y = leaf(tg), leaf(tg)
    hooked = cube(tg).apply(y)
    tg.debug(True)
    try:
        (x * x).sum().backward()
        assert session.recorder.waiting == 0
        hooked.sum().backward()
        assert session.recorder.waiting == 0
    finally:
        tg.debug(False)
    assert alive
    assert y.grad is not None
    assert y.grad.tolist() == [3, 12, 27]


def test_a_profile_shows_the_nodes_of_a_pass_over_another_graph(session: tg.Session) -> None:
    alive = elsewhere(tg)
    hooked = leaf(tg)
    hooked.register_hook(lambda grad: None)
    for x in (leaf(tg), hooked):
        y = x.exp().sum()
        with tg.profiler.profile() as profile:
            y.backward()
        assert "ExpBackward0" in {event.key for event in profile.key_averages()}
    assert alive
