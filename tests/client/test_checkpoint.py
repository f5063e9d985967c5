"""Checkpoints: torch's gradients, errors and warnings; in a session less memory, and no extra message."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import torch
import torch.utils.checkpoint

import telegrad as tg

from .custom_functions import leaf, nothing_waits
from .parity import bodies, same, same_error

EVERYWHERE = pytest.mark.usefixtures("everywhere")
IN_SESSIONS = pytest.mark.usefixtures("session")
BOTH_WAYS = pytest.mark.parametrize("reentrant", [True, False])


def used_bytes(session: tg.Session) -> int:
    """The memory of the session's tensors in bytes, after dead tensors are freed."""
    gc.collect()
    session.flush()
    transport: Any = session.recorder.transport
    if session.url == "local://":
        return int(transport.session.accounts.used_bytes)
    return int(httpx.get(f"{session.url}/v1/sessions/{transport.session_id}").json()["used_bytes"])


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def tuples_and_numbers(lib: Any, reentrant: bool) -> Any:
        x, w = leaf(lib), leaf(lib, 0.5, -1, 2)

        def function(a: Any, k: Any, b: Any, name: str) -> Any:
            assert name == "name"
            return (a * b).sin().exp() * k, a.cos() * b, 7

        y, z, seven = lib.utils.checkpoint.checkpoint(function, x * 2, 3, w, "name", use_reentrant=reentrant)
        (y.sum() + (z * z).sum()).backward()
        return y, z, seven, x.grad, w.grad

    def nested(lib: Any, reentrant: bool) -> Any:
        checkpoint = lib.utils.checkpoint.checkpoint
        x = leaf(lib)

        def inner(a: Any) -> Any:
            return a.sin().cos() * a

        def middle(a: Any) -> Any:
            return checkpoint(inner, a.exp(), use_reentrant=reentrant).tanh()

        def outer(a: Any) -> Any:
            return checkpoint(middle, a * a, use_reentrant=reentrant) * checkpoint(inner, a, use_reentrant=reentrant)

        checkpoint(outer, x.sin(), use_reentrant=reentrant).sum().backward()
        return x.grad

    def parameters_from_outside(lib: Any, reentrant: bool) -> Any:
        x, w, b = leaf(lib), leaf(lib, 4, 5, 6), leaf(lib, 1, 1, 1)
        for _ in range(3):
            y = lib.utils.checkpoint.checkpoint(lambda a: (a * w + b).sigmoid() * w, x, use_reentrant=reentrant)
            y.sum().backward()
        return x.grad, w.grad, b.grad

    def values_asked_for_on_the_way(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)

        def function(a: Any) -> Any:
            h = a.exp()
            while h.sum().item() > 1:
                h = h * 0.5
            return h * a if h[0] < 0.1 else h

        lib.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant).sum().backward()
        return x.grad

    def changed_in_place_inside(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)

        def function(a: Any) -> Any:
            h = a * 2 if reentrant else a.exp()  # reentrant checkpoints must not change exp's output, as in torch
            h += 1
            h[0] = 0
            h.mul_(a)
            view = h[1:]
            view *= 3
            return h.sin()

        lib.utils.checkpoint.checkpoint(function, x * 1, use_reentrant=reentrant).sum().backward()
        return x.grad

    def data_made_inside(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)

        def function(a: Any) -> Any:
            offset = lib.tensor([1.0, 2.0, 3.0])
            offset *= 2
            return (a + offset).exp() * lib.arange(3)

        lib.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant).sum().backward()
        return x.grad

    def twice_with_a_retained_graph(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)
        y = lib.utils.checkpoint.checkpoint(lambda a: a.sin().exp(), x, use_reentrant=reentrant).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    def without_recording(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)
        with lib.no_grad():
            y = lib.utils.checkpoint.checkpoint(lambda a: a.sin(), x, use_reentrant=reentrant)
        return y, y.requires_grad

    def in_segments(lib: Any, reentrant: bool) -> Any:
        x = leaf(lib)
        steps = [lib.sin, lib.exp, lambda a: a * a, lib.cos, lib.tanh]
        y = lib.utils.checkpoint.checkpoint_sequential(steps, 3, x * 1, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("body", bodies(Bodies))
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")  # outer ones record nothing
def test_gradients_are_torchs(body: Any, reentrant: bool) -> None:
    same(lambda lib: body(lib, reentrant))


@IN_SESSIONS
@BOTH_WAYS
def test_statistics_are_counted_twice(reentrant: bool) -> None:
    def run(lib: Any) -> Any:
        norm = lib.nn.BatchNorm1d(2, dtype=lib.float64)
        x = lib.tensor([[1.0, 2], [2, 5], [4, 3], [0, 1]], dtype=lib.float64, requires_grad=True)
        y = lib.utils.checkpoint.checkpoint(lambda a: norm(a.exp()).sin(), x, use_reentrant=reentrant)
        (y**3).sum().backward()
        return x.grad, norm.weight.grad, norm.running_mean, norm.running_var, norm.num_batches_tracked.item()

    same(run)


@EVERYWHERE
def test_gradients_of_gradients_and_for_chosen_inputs() -> None:
    def run(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = lib.utils.checkpoint.checkpoint(lambda a, b: (a * b).sin() * a, x, b=w, use_reentrant=False)
        first, other = lib.autograd.grad(y.sum(), (x, w), create_graph=True)
        (first * other).sum().backward(inputs=[w])
        return first, x.grad, w.grad

    same(run)


@EVERYWHERE
def test_what_was_not_saved_may_be_modified_after_it() -> None:
    def run(lib: Any) -> Any:
        x = leaf(lib)
        kept: list[Any] = []

        def function(a: Any) -> Any:
            kept.append(a.sigmoid())
            return kept[0] * 2

        y = lib.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        with lib.no_grad():
            kept[0].zero_()
        y.sum().backward()
        return x.grad

    same(run)


@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_dropout_has_the_same_mask_again(session: tg.Session, rate: float) -> None:
    def run(kept: bool) -> Any:
        tg.manual_seed(3)
        x = tg.ones(50, requires_grad=True)

        def noisy(a: tg.Tensor) -> Any:
            return tg.nn.functional.dropout(a, rate).exp() * tg.nn.functional.dropout(a * 2, rate)

        y = noisy(x) if kept else tg.utils.checkpoint.checkpoint(noisy, x, use_reentrant=False)
        after = tg.rand(3)
        y.sum().backward()
        return y.tolist(), after.tolist(), x.grad.tolist(), tg.rand(3).tolist()

    assert run(kept=True) == run(kept=False)


@IN_SESSIONS
def test_other_random_numbers_where_they_are_not_preserved() -> None:
    tg.manual_seed(3)
    x = tg.ones(200, requires_grad=True)
    y = tg.utils.checkpoint.checkpoint(
        lambda a: tg.nn.functional.dropout(a) ** 2, x, use_reentrant=False, preserve_rng_state=False
    )
    y.sum().backward()
    assert ((y == 0) != (x.grad == 0)).any()


def layers(lib: Any, count: int, width: int) -> Any:
    lib.manual_seed(0)
    steps = [lib.nn.Sequential(lib.nn.Linear(width, width), lib.nn.Tanh(), lib.nn.Sigmoid()) for _ in range(count)]
    return lib.nn.Sequential(*steps)


@pytest.mark.full
def test_the_session_holds_less(session: tg.Session) -> None:
    count, batch, width = 6, 256, 32
    model = layers(tg, count, width)
    x = tg.randn(batch, width)
    held: dict[bool, int] = {}
    for checkpointed in (False, True):
        before = used_bytes(session)
        h = x.clone().requires_grad_()
        for layer in model:
            h = tg.utils.checkpoint.checkpoint(layer, h, use_reentrant=False) if checkpointed else layer(h)
        held[checkpointed] = used_bytes(session) - before
        gradient = tg.autograd.grad(h.sum(), model[0][0].weight)[0]
        del h, gradient
        assert used_bytes(session) == before
    activation = batch * width * 4
    # Each layer has three results. Backward needs those of tanh and sigmoid, but not that of the linear layer.
    assert held[False] >= (2 * count) * activation
    assert held[True] <= (count + 2) * activation


def test_within_one_program_too_what_died_is_gone_at_the_end_of_the_checkpoint(session: tg.Session) -> None:
    """The session has no room for the results of all ten checkpointed calls, which one message contains."""
    with tg.connect(session.url, max_bytes=600_000) if session.url == "local://" else session:
        x = tg.zeros(10_000, requires_grad=True)  # 40,000 bytes
        h = x
        for _ in range(10):
            h = tg.utils.checkpoint.checkpoint(lambda a: a.sin().exp().cos().tanh(), h, use_reentrant=False)
        h.sum().backward()
        assert x.grad.isfinite().all()


def test_no_message_more(session: tg.Session) -> None:
    def step(checkpointed: bool) -> int:
        x = tg.ones(3, requires_grad=True)
        before = session.requests
        h = x
        for _ in range(4):
            h = tg.utils.checkpoint.checkpoint(tg.sin, h, use_reentrant=False) if checkpointed else h.sin()
        h.sum().backward()
        assert x.grad is not None
        x.grad.tolist()
        return session.requests - before

    assert step(True) == step(False) == 1


@IN_SESSIONS
def test_a_loop_whose_programs_the_session_knows_again() -> None:
    def run(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 0.5, -1, 2)
        checkpoint = lib.utils.checkpoint.checkpoint
        losses = []
        for _ in range(8):
            h = checkpoint(lambda a: (a * w).sin().exp(), x, use_reentrant=False)
            h = checkpoint(lambda a: checkpoint(lib.cos, a * w, use_reentrant=False).tanh(), h, use_reentrant=False)
            loss = (h * h).sum()
            loss.backward()
            with lib.no_grad():
                for p in (x, w):
                    p -= 0.1 * p.grad
                    p.grad = None
            losses.append(loss.item())
        return losses, x, w

    same(run)


@EVERYWHERE
def test_a_function_of_the_clients_inside() -> None:
    def run(lib: Any) -> Any:
        class Cube(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                (x,) = ctx.saved_tensors
                return grad * 3 * x * x

        x = leaf(lib)
        y = lib.utils.checkpoint.checkpoint(lambda a: Cube.apply(a.sin()).exp() * a, x, use_reentrant=False)
        y.sum().backward()
        return x.grad

    same(run)


@EVERYWHERE
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_hooks_inside_run_once() -> None:
    def run(lib: Any) -> Any:
        x = leaf(lib)
        seen: list[Any] = []

        def function(a: Any) -> Any:
            h = a.exp()
            h.register_hook(lambda grad: seen.append(grad.tolist()))
            return h.sin() * a

        lib.utils.checkpoint.checkpoint(function, x, use_reentrant=False).sum().backward()
        return seen, x.grad

    same(run)


@pytest.mark.filterwarnings("ignore::UserWarning")
@BOTH_WAYS
def test_a_pass_with_hooks_inside(everywhere: tg.Session | None, reentrant: bool) -> None:
    def run(lib: Any) -> Any:
        x = leaf(lib)

        def function(a: Any) -> Any:
            with lib.enable_grad():
                y = a.detach().clone().requires_grad_()
                z = y * 2
                z.register_hook(lambda grad: grad * 3)
                (g,) = lib.autograd.grad((z * z).sum(), y)
            return (a * g).sin()

        lib.utils.checkpoint.checkpoint(function, x * 1, use_reentrant=reentrant).sum().backward()
        return x.grad

    same(run)
    nothing_waits(everywhere)


CALLS: list[Callable[[Any], Any]] = [
    lambda lib: lib.utils.checkpoint.checkpoint(lambda a, b, c: a, leaf(lib), b=1, c=2, use_reentrant=True),
    lambda lib: lib.utils.checkpoint.checkpoint(lambda a: a, leaf(lib), determinism_check="all", use_reentrant=False),
    lambda lib: lib.utils.checkpoint.checkpoint(lambda a: a, leaf(lib), debug=True, use_reentrant=True),
    lambda lib: lib.utils.checkpoint.checkpoint_sequential([lambda a: a.sin()], 1, leaf(lib), a=1, use_reentrant=False),
    lambda lib: lib.utils.checkpoint.checkpoint_sequential([lambda a: a.sin()], 2, leaf(lib), use_reentrant=False),
    lambda lib: lib.utils.checkpoint.checkpoint(lambda a: a.sin().view(2, 2), leaf(lib), use_reentrant=False),
]
"""Calls that must raise the same error in both libraries."""


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def debugging_in_a_context(lib: Any) -> None:
        options = {"debug": True, "use_reentrant": False, "context_fn": lambda: (1, 2)}
        lib.utils.checkpoint.checkpoint(lambda a: a, leaf(lib), **options)

    def for_chosen_inputs_with_reentrance(lib: Any) -> None:
        x = leaf(lib)
        y = lib.utils.checkpoint.checkpoint(lambda a: a.sin(), x, use_reentrant=True).sum()
        lib.autograd.grad(y, x)

    def backward_of_inputs_with_reentrance(lib: Any) -> None:
        x = leaf(lib)
        y = lib.utils.checkpoint.checkpoint(lambda a: a.sin() * 2, x * 2, use_reentrant=True).sum()
        (y * 2).backward(inputs=[x])


@EVERYWHERE
@pytest.mark.parametrize("body", [*CALLS, *bodies(Mistakes)])
def test_mistakes_are_torchs(body: Any) -> None:
    same_error(body, whole=True)


@EVERYWHERE
@BOTH_WAYS
def test_an_argument_that_was_modified_raises(reentrant: bool) -> None:
    def run(lib: Any) -> None:
        x = leaf(lib)
        a = x * 1
        y = lib.utils.checkpoint.checkpoint(lambda a: a.sin(), a, use_reentrant=reentrant)
        a.mul_(2)
        y.sum().backward()
        x.grad.tolist()

    same_error(run, whole=True)


@EVERYWHERE
@BOTH_WAYS
def test_a_second_backward_raises(reentrant: bool) -> None:
    def run(lib: Any) -> None:
        y = lib.utils.checkpoint.checkpoint(lambda a: a.sin().exp(), leaf(lib), use_reentrant=reentrant).sum()
        y.backward()
        y.backward()

    same_error(run, "Trying to backward through the graph a second time")


def test_an_error_inside_leaves_the_session_as_it_was(session: tg.Session) -> None:
    x = tg.ones(2, requires_grad=True)

    def singular(a: tg.Tensor) -> Any:
        return tg.linalg.cholesky(a.sin() * tg.zeros(2, 2)).exp()

    y = tg.utils.checkpoint.checkpoint(singular, x, use_reentrant=False)
    with pytest.raises(RuntimeError):
        y.tolist()
    z = tg.utils.checkpoint.checkpoint(tg.exp, x, use_reentrant=False)
    z.sum().backward()
    torch.testing.assert_close(torch.tensor(x.grad.tolist()), torch.ones(2).exp())


@pytest.mark.every
@IN_SESSIONS
@pytest.mark.parametrize(
    "change",
    [
        lambda lib, factor: setattr(factor, "data", lib.ones(1)),
        lambda lib, factor: setattr(factor, "data", lib.ones(3, dtype=lib.float64)),
        lambda lib, factor: factor.requires_grad_(False),
    ],
    ids=["shape", "dtype", "number of tensors"],
)
def test_a_recomputation_that_saves_other_tensors_raises(change: Any) -> None:
    def run(lib: Any) -> str:
        x, factor = lib.ones(3, requires_grad=True), lib.ones(3, requires_grad=True)
        y = lib.utils.checkpoint.checkpoint(lambda a: (a * factor).sin().sum(), x, use_reentrant=False)
        change(lib, factor)
        with pytest.raises(lib.utils.checkpoint.CheckpointError) as raised:
            y.backward()
            x.grad.tolist()
        return str(raised.value).splitlines()[0]

    assert run(tg) == run(torch)


@EVERYWHERE
@pytest.mark.parametrize(
    "call",
    [
        lambda lib: lib.utils.checkpoint.checkpoint(lambda a: a, lib.ones(2)),
        lambda lib: lib.utils.checkpoint.checkpoint(lambda a: a, lib.ones(2), use_reentrant=True),
        lambda lib: lib.utils.checkpoint.checkpoint_sequential([lib.sin], 1, leaf(lib)),
    ],
)
def test_warnings_are_torchs(call: Any) -> None:
    def warned(lib: Any) -> Any:
        with pytest.warns(UserWarning) as found:
            call(lib)
        return [(w.category, str(w.message)) for w in found]

    same(warned)
