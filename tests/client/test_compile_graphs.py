"""``tg.compile`` and the graph: compiled functions are differentiated as in plain torch.

Internals: whether nodes are built is seen nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .compiling import XS, YS, calls, model_of, twins
from .repeating import LEARNED

pytestmark = pytest.mark.usefixtures("session")


def test_forward_alone_with_backward_outside() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        run, seen = compile_(lambda x: model(x).sin()), []
        for i in range(5):
            x = lib.tensor(XS[i], requires_grad=i % 2 == 0)
            out = run(x)
            (out * out).sum().backward()
            seen += [out, x.grad, *[p.grad for p in model.parameters()]]
        return seen

    compiled = twins(scenario)
    assert calls(compiled) >= 1


def test_the_graph_ends_where_torchs_does() -> None:
    w = tg.ones(3, requires_grad=True)
    v = torch.ones(3, requires_grad=True)

    def step(w: Any) -> Any:
        loss = (w * w).sum()
        loss.backward()
        return loss

    run = tg.compile(step)
    for _ in range(4):
        ours, theirs = run(w), step(v)
        assert ours.grad_fn is not None
        for loss in (ours, theirs):
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()
    assert calls(run) == 2
    np.testing.assert_array_equal(w.grad.numpy(), v.grad.numpy())


def test_a_result_of_a_result() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        w = lib.full((3,), 2.0, requires_grad=True)

        def two(x: Any) -> tuple[Any, Any, Any]:
            hidden = x * w
            return hidden, hidden.exp().sum(), {"same": x, "n": 3}

        run, seen = compile_(two), []
        for _ in range(4):
            x = lib.ones(3)
            hidden, loss, more = run(x)
            seen.append(more["same"] is x)
            seen += lib.autograd.grad(loss, [hidden, w], retain_graph=True)
            hidden.retain_grad()
            loss.backward()
            seen += [hidden, loss, hidden.grad, more["n"]]
        return [*seen, w.grad.clone()]

    assert calls(twins(scenario)) == 2  # once without a gradient of w, once with one


def test_a_weight_that_is_written_to_between_forward_and_backward() -> None:
    texts = []
    for lib, compile_ in ((torch, lambda f: f), (tg, tg.compile)):
        w = lib.ones(3, requires_grad=True)
        run: Any = compile_(lambda x, w=w: (x * w).sum())
        for _ in range(3):
            out = run(lib.ones(3, requires_grad=True))
        with lib.no_grad():
            w.add_(1.0)
        with pytest.raises(RuntimeError) as caught:
            out.backward()
        texts.append(str(caught.value).partition(" Hint")[0])
        assert float(run(lib.ones(3)).detach()) == 6.0
    assert texts[0] == texts[1]


def test_a_second_derivative_is_an_error_in_torchs_words() -> None:
    run = tg.compile(lambda x: (x**3).sum())
    x = tg.ones(2, requires_grad=True)
    for _ in range(2):
        out = run(x)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        tg.autograd.grad(out, x, create_graph=True)


def test_a_second_derivative_inside() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        def penalty(x: Any) -> Any:
            (grad,) = lib.autograd.grad((x**3).sum(), x, create_graph=True)
            (grad**2).sum().backward()
            return grad.detach()

        run, seen = compile_(penalty), []
        for i in range(4):
            x = lib.tensor(XS[i], requires_grad=True)
            seen += [run(x), x.grad]
        return seen

    assert calls(twins(scenario)) == 3


def test_evaluation() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        run, seen = compile_(lambda x: model(x)), []
        for mode in (lib.no_grad, lib.inference_mode, lib.enable_grad):
            for i in range(3):
                with mode():
                    out = run(lib.tensor(XS[i]))
                seen += [out.requires_grad, out.is_inference()]
        return seen

    assert calls(twins(scenario)) == 6


def test_dropout_draws_what_it_would_have_drawn() -> None:
    results = []
    for compile_ in (lambda f: f, tg.compile):
        tg.manual_seed(3)
        model = tg.nn.Sequential(tg.nn.Dropout(0.5), tg.nn.BatchNorm1d(6))
        run: Any = compile_(model)
        seen = [run(tg.tensor(XS[i])).detach().numpy() for i in range(5)]
        model.eval()
        run.eval()
        seen += [run(tg.tensor(XS[i])).detach().numpy() for i in range(5)]
        results.append([*seen, *[b.numpy() for b in model.buffers()]])
    for plain, compiled in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, compiled)


def test_an_argument_is_written_to() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        def function(x: Any, y: Any) -> Any:
            x.add_(y)
            return x

        run, seen = compile_(function), []
        x = lib.zeros(2)
        for _ in range(4):
            seen.append(run(x, lib.ones(2)) is x)
        seen += [x.clone(), run(x, x), run(x, x), run(x, x.detach()), x]
        return seen

    twins(scenario)


def test_a_call_and_the_ops_around_it_are_one_lazy_graph(remote: tg.Session) -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        model, scale = model_of(lib), lib.ones(6, requires_grad=True)
        run, seen = compile_(lambda x: model(x)), []
        for i in range(LEARNED + 4):
            loss = (run(lib.tensor(XS[i]) * scale) - lib.tensor(YS[i])).square().mean()
            loss.backward()
            unbuilt.append(getattr(loss, "_lazy", None) is not None and loss._lazy.nodes is None)
            seen += [loss.detach().item(), scale.grad.clone(), *[p.grad.clone() for p in model.parameters()]]
            for leaf in (scale, *model.parameters()):
                leaf.grad = None
        return [each for each in seen if not isinstance(each, float)]

    unbuilt: list[bool] = []
    assert calls(twins(scenario)) == LEARNED + 3
    assert unbuilt[-3:] == [True] * 3  # those of Telegrad


@pytest.mark.parametrize("used_again", [False, True])
def test_a_call_that_writes_to_what_an_op_has_saved(remote: tg.Session, used_again: bool) -> None:
    found = []
    for lib, compile_ in ((torch, lambda f: f), (tg, tg.compile)):
        w, x = lib.ones(3, requires_grad=True), lib.ones(3)
        write: Any = compile_(lambda x=x: x.add_(1.0))
        seen = []
        for _ in range(LEARNED + 4):
            loss = (x * w).exp().sum()
            write()
            if used_again:
                loss = (x * w).log().sum()
                loss.backward()
                seen.append(w.grad.tolist())
            else:
                with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
                    loss.backward()
                seen.append(str(caught.value).partition(" Hint")[0])
            w.grad = None
            assert x.sum().item() > 0
        found.append(seen)
    if used_again:
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    else:
        assert found[0] == found[1]


def test_results_of_one_call_that_depend_on_each_other(remote: tg.Session) -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        w = lib.full((3,), 2.0, requires_grad=True)
        run, seen = compile_(lambda x: (hidden := (x * w).exp(), hidden.square().sum())), []
        for i in range(LEARNED + 4):
            hidden, loss = run(lib.ones(3))
            if i % 2:
                loss.backward()
            else:
                (hidden * hidden.detach()).sum().backward()
            assert w.grad.sum().item() > 0
            seen.append(w.grad.clone())
            hidden, loss = run(lib.ones(3))
            hidden.detach().add_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                (loss if i % 2 else hidden.sum()).backward()
            w.grad = None
        return seen

    assert calls(twins(scenario)) > LEARNED
