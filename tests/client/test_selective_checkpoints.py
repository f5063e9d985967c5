"""Checkpoints with a policy that says what is saved, compared with torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.checkpoint

import telegrad as tg

from .custom_functions import leaf
from .parity import bodies, error_of, same, same_error

IN_SESSIONS = pytest.mark.usefixtures("session")


def selective(lib: Any, saved: Any, **options: Any) -> Any:
    """``checkpoint`` with a policy: a list of ops whose results are saved, or a function that selects them."""
    from functools import partial

    make = lib.utils.checkpoint.create_selective_checkpoint_contexts
    return partial(lib.utils.checkpoint.checkpoint, use_reentrant=False, context_fn=partial(make, saved, **options))


def by_name(*names: str) -> Any:
    """A policy that saves the results of the ops with these names."""

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        return op.name().removeprefix("aten::") in names

    return policy


class Selections:
    """Functions whose results must be the same in both libraries."""

    def products(lib: Any) -> Any:
        x, w = (
            leaf(lib).reshape(1, 3).detach().requires_grad_(),
            lib.full((3, 3), 0.5, dtype=lib.float64).requires_grad_(),
        )
        saved = [lib.ops.aten.mm.default, lib.ops.aten.addmm.default]
        layer = lib.nn.functional.linear
        y = selective(lib, saved)(lambda a: layer((a @ w).sin(), w, w[0]).exp() @ w, x)
        y.sum().backward()
        return y, x.grad, w.grad

    def everything(lib: Any) -> Any:
        x = leaf(lib)
        policy = lib.utils.checkpoint.CheckpointPolicy.PREFER_SAVE
        y = selective(lib, lambda *args, **kwargs: policy)(lambda a: (a.sin().exp() * a).reshape(3, 1).t().tanh(), x)
        y.sum().backward()
        return y, x.grad

    def nothing(lib: Any) -> Any:
        x = leaf(lib)
        policy = lib.utils.checkpoint.CheckpointPolicy.MUST_RECOMPUTE
        selective(lib, lambda *args, **kwargs: policy)(lambda a: a.sin().exp(), x).sum().backward()
        return x.grad

    def what_a_kernel_keeps_for_its_derivative(lib: Any) -> Any:
        x = leaf(lib).reshape(1, 3).detach().requires_grad_()
        functional = lib.nn.functional

        def function(a: Any) -> Any:
            h = functional.layer_norm(a.exp(), (3,)).reshape(1, 3, 1)
            return functional.scaled_dot_product_attention(h, h, h).sin()

        selective(lib, lambda *args, **kwargs: True)(function, x).sum().backward()
        return x.grad

    def several_results(lib: Any) -> Any:
        x = leaf(lib)
        selective(lib, by_name("sort"))(lambda a: a.sin().sort()[0].exp(), x).sum().backward()
        return x.grad

    def in_a_checkpoint(lib: Any) -> Any:
        x = leaf(lib)
        inner = selective(lib, by_name("sin"))
        plain = lib.utils.checkpoint.checkpoint
        y = plain(lambda a: inner(lambda b: b.exp().sin().cos(), a * 2).tanh(), x, use_reentrant=False)
        y.sum().backward()
        return x.grad

    def around_a_checkpoint(lib: Any) -> Any:
        x = leaf(lib)
        outer, inner = selective(lib, by_name("exp", "cos")), selective(lib, by_name("sin"))
        outer(lambda a: inner(lambda b: b.exp().sin().cos(), a * 2).tanh(), x).sum().backward()
        return x.grad

    def by_the_result(lib: Any) -> Any:
        x = leaf(lib)
        seen: list[Any] = []

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
            seen.append((ctx.is_recompute, op.name().partition(".")[0], tuple(ctx.op_output.shape)))
            return bool(ctx.op_output.dim())

        selective(lib, policy)(lambda a: a.sin().exp().sum() * 2, x).backward()
        return x.grad, seen


@IN_SESSIONS
@pytest.mark.parametrize("body", bodies(Selections))
def test_selective_checkpoints_are_torchs(body: Any) -> None:
    same(body)


@pytest.mark.parametrize(("saved", "computed"), [(["sin"], 1), ([], 2)])
def test_a_saved_result_is_not_computed_again(session: tg.Session, saved: list[str], computed: int) -> None:
    x = tg.ones(3, requires_grad=True)
    with tg.profiler.profile() as profile:
        selective(tg, by_name(*saved))(lambda a: (a * 2).sin().exp().tanh(), x).sum().backward()
        assert x.grad is not None
    counts = {average.key: average.count for average in profile.key_averages()}
    assert (counts["aten::sin"], counts["aten::exp"]) == (computed, 2)


def test_no_message_more_for_a_policy(session: tg.Session) -> None:
    x = tg.ones(3, requires_grad=True)
    before = session.requests
    selective(tg, by_name("sin"))(lambda a: a.sin().exp(), x).sum().backward()
    assert x.grad is not None
    x.grad.tolist()
    assert session.requests - before == 1


@IN_SESSIONS
def test_random_draws_are_repeated_though_a_policy_saves_them() -> None:
    def run(checkpointed: bool) -> Any:
        tg.manual_seed(3)
        x = tg.ones(50, requires_grad=True)

        def noisy(a: tg.Tensor) -> Any:
            return tg.nn.functional.dropout(a, 0.5).exp() * tg.nn.functional.dropout(a * 2, 0.1)

        y = selective(tg, lambda *args, **kwargs: True)(noisy, x) if checkpointed else noisy(x)
        y.sum().backward()
        return y.tolist(), x.grad.tolist(), tg.rand(3).tolist()

    assert run(checkpointed=True) == run(checkpointed=False)


@IN_SESSIONS
def test_a_saved_result_that_was_modified() -> None:
    def run(lib: Any, **options: Any) -> Any:
        x = leaf(lib)

        def function(a: Any) -> Any:
            h = a.sin()
            y = h.exp()
            with lib.no_grad():
                h.mul_(2)
            return y

        selective(lib, by_name("sin"), **options)(function, x).sum().backward()
        return x.grad.tolist()

    same_error(run, "has been mutated")
    expected = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    assert len(run(tg, allow_cache_entry_mutation=True)) == len(expected)


class BadPolicies:
    """Functions that must raise the same error in both libraries."""

    def no_policy(lib: Any) -> None:
        lib.utils.checkpoint.create_selective_checkpoint_contexts("save")

    def no_ops(lib: Any) -> None:
        lib.utils.checkpoint.create_selective_checkpoint_contexts(["mm"])

    def no_overload(lib: Any) -> None:
        lib.utils.checkpoint.create_selective_checkpoint_contexts([lib.ops.aten.mm])

    def an_error_in_a_policy(lib: Any) -> None:
        selective(lib, lambda *args, **kwargs: 1 / 0)(lambda a: a.sin(), leaf(lib))


@IN_SESSIONS
@pytest.mark.parametrize("body", bodies(BadPolicies))
def test_bad_policies_are_refused_as_by_torch(body: Any) -> None:
    theirs, ours = error_of(body, torch), error_of(body, tg)
    assert isinstance(ours, type(theirs))
    assert str(ours).split(" of type")[0] == str(theirs).split(" of type")[0]
