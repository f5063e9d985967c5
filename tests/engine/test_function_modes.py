"""Custom Functions within the modes: autocast, inference, anomaly, a profile; beside torch."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import telegrad_engine as tg
from telegrad_engine.profiler import profile

from .test_function import cube, function
from .twins import OURS, THEIRS, both, both_raise, leaf, plain

WORLDS = {
    id(OURS): SimpleNamespace(
        autocast=tg.autocast,
        amp=tg.amp,
        is_on=lambda: tg.is_autocast_enabled("cpu"),
        half=tg.dtypes.bfloat16,
        name=lambda x: x.dtype.name,
    ),
    id(THEIRS): SimpleNamespace(
        autocast=torch.autocast,
        amp=torch.amp,
        is_on=lambda: torch.is_autocast_enabled("cpu"),
        half=torch.bfloat16,
        name=lambda x: str(x.dtype).removeprefix("torch."),
    ),
}


def product(t: Any, seen: list[Any], decorated: bool, **options: Any) -> Any:
    """A matrix product that notes the dtypes it sees and whether autocast is on."""
    world = WORLDS[id(t)]

    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        seen.append(("forward", world.name(a), world.is_on(), world.name(a.mm(b))))
        return a.mm(b)

    def backward(ctx: Any, grad: Any) -> Any:
        a, b = [saved.to(grad.dtype) for saved in ctx.saved_tensors]
        seen.append(("backward", world.name(grad), world.is_on(), world.name(a.mm(b)), t.is_grad_enabled()))
        return grad.mm(b.t()), a.t().mm(grad)

    if decorated:
        forward = world.amp.custom_fwd(forward, device_type="cpu", **options)
        backward = world.amp.custom_bwd(backward, device_type="cpu")
    return function(t, forward=forward, backward=backward)


@pytest.mark.parametrize("decorated", [False, True])
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_around_forward_and_backward(decorated: bool, cast: bool, enabled: bool) -> None:
    """A decorated backward runs under the autocast of its forward; another under what is on when it runs."""

    def body(t: Any) -> Any:
        world = WORLDS[id(t)]
        seen: list[Any] = []
        options = {"cast_inputs": world.half} if cast and decorated else {}
        multiply = product(t, seen, decorated, **options)
        a, b = leaf(t, [[1.0, 2.0], [3.0, 4.0]]), leaf(t, [[1.0, 0.5], [2.0, 1.0]])
        with world.autocast("cpu", enabled=enabled, dtype=world.half):
            result = multiply.apply(a, b)
        with world.autocast("cpu", enabled=not enabled, dtype=world.half):
            result.sum().backward()
        return seen, world.name(result), world.name(a.grad), a.grad, b.grad

    both(body)


def test_inference_mode_records_no_function() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        with t.inference_mode():
            y = cube(t).apply(x)
        return y.requires_grad, y.is_inference(), y.grad_fn is None, y

    both(body)

    def saving(t: Any) -> Any:
        with t.inference_mode():
            made = t.tensor([1.0, 2.0, 3.0])

        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            return x * y

        return function(t, forward=forward).apply(leaf(t), made)

    both_raise(saving)


def test_anomaly_mode_names_the_function() -> None:
    def broken(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        def backward(ctx: Any, grad: Any) -> Any:
            return grad * float("nan")

        return function(t, forward=forward, backward=backward)

    def run(t: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with t.autograd.set_detect_anomaly(True):
                y = broken(t).apply(leaf(t))
                with pytest.raises(RuntimeError) as error:
                    y.sum().backward()
        said = [str(w.message) for w in caught if "MyFnBackward" in str(w.message)]
        return str(error.value), len(said), ["broken(t).apply(leaf(t))" in text for text in said]

    both(run)


def test_a_profile_has_the_function_and_what_it_calls() -> None:
    x = leaf(OURS)
    with profile() as prof:
        cube(OURS).apply(x).sum().backward()
    counts = {event.key: event.count for event in prof.key_averages()}
    assert counts["MyFnBackward"] == 1
    assert counts["aten::pow"] == 1
    assert plain(x.grad) == [3.0, 12.0, 27.0]
