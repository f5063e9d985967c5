"""``tg.compile``: scenarios come to the same as in plain torch; calls of other kinds and changed values are noticed.

Internals: how often a compiled function was called instead of traced, and whether nodes are built, is shown nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import bodies
from .repeating import LEARNED

pytestmark = pytest.mark.usefixtures("session")

RNG = np.random.default_rng(0)
STEPS = 20
XS = RNG.standard_normal((STEPS, 4, 6)).astype(np.float32)
YS = RNG.standard_normal((STEPS, 4, 3)).astype(np.float32)
OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "sgd": lambda lib, params: lib.optim.SGD(params, lr=0.1),
    "momentum": lambda lib, params: lib.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda lib, params: lib.optim.Adam(params, lr=0.01),
    "amsgrad": lambda lib, params: lib.optim.Adam(params, lr=0.01, amsgrad=True),
    "adafactor": lambda lib, params: lib.optim.Adafactor(params, lr=0.01),
    "rprop": lambda lib, params: lib.optim.Rprop(params, lr=0.01),
}


def model_of(lib: Any) -> Any:
    model = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3))
    with lib.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            values = np.random.default_rng(seed).standard_normal(tuple(parameter.shape)).astype(np.float32)
            parameter.copy_(lib.tensor(values))
    return model


def twins(scenario: Callable[[Any, Any], Any]) -> Any:
    """Run a scenario with plain torch functions and with ``tg.compile``, and compare the results."""
    compiled: list[Any] = []

    def compile_(function: Any) -> Any:
        compiled.append(tg.compile(function))
        return compiled[-1]

    expected, got = scenario(torch, lambda function: function), scenario(tg, compile_)
    assert len(expected) == len(got)
    for index, (theirs, ours) in enumerate(zip(expected, got, strict=True)):
        if theirs is None or isinstance(theirs, (bool, int, str)):
            assert ours == theirs, index
        else:
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-5, atol=1e-6, err_msg=str(index)
            )
            assert ours.requires_grad == theirs.requires_grad, index
            assert ours.is_leaf == theirs.is_leaf, index
            assert ours._version == theirs._version, index
    return compiled[0] if compiled else None


def calls(compiled: Any) -> int:
    """The number of calls that replayed a compiled program."""
    return sum(entry.calls for entries in compiled._entries.values() for entry in entries)


def training(lib: Any, compile_: Any, name: str, each: Any = lambda i, model, optimizer: None) -> list[Any]:
    model = model_of(lib)
    optimizer = OPTIMIZERS[name](lib, model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, seen = compile_(step), []
    for i in range(STEPS):
        each(i, model, optimizer)
        seen.append(run(lib.tensor(XS[i]), lib.tensor(YS[i])))
    return [*seen, *model.parameters(), *[p.grad for p in model.parameters()]]


class Scenarios:
    """Calls of functions that ``compile_`` compiles, or leaves as they are."""

    def shapes_dtypes_and_numbers_are_part_of_the_signature(lib: Any, compile_: Any) -> list[Any]:
        run, seen = compile_(lambda x, power=2, **more: x**power + more.get("shift", 0.0)), []
        for _ in range(3):
            seen += [run(lib.ones(3)), run(lib.ones(2, 2)), run(lib.ones(3, dtype=lib.float64))]
            seen += [run(lib.ones(3), 3), run(lib.ones(3), power=3.0), run(lib.ones(3), shift=0.5)]
        return seen

    def a_changed_module_is_seen(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        run, seen = compile_(model.__call__), []
        x = lib.tensor(XS[0])
        for change in (
            lambda: None,
            lambda: model[0].register_parameter("bias", None),
            lambda: setattr(model[0], "weight", lib.nn.Parameter(model[0].weight.detach() * 2)),
            lambda: model[2].requires_grad_(False),
            lambda: model.__setitem__(1, lib.nn.ReLU()),
        ):
            change()
            seen += [run(x), run(x), run(x)]
        return seen

    def autocast_and_modes_are_part_of_the_signature(lib: Any, compile_: Any) -> list[Any]:
        a, b = lib.ones(2, 2), lib.ones(2, 2)
        run, seen = compile_(lambda: a @ b), []
        for _ in range(3):
            with lib.autocast("cpu", dtype=lib.bfloat16):
                seen.append(str(run().dtype).partition(".")[2])
            seen.append(str(run().dtype).partition(".")[2])
        return seen

    def compiled_functions_inside_each_other(lib: Any, compile_: Any) -> list[Any]:
        inner = compile_(lambda x: x.exp())
        outer = compile_(lambda x: inner(x) + inner(x * 2))
        return [outer(lib.tensor(XS[i])) for i in range(4)] + [inner(lib.tensor(XS[0]))]

    def a_learning_rate_that_changes_is_not_traced_again(lib: Any, compile_: Any) -> list[Any]:
        def warm(i: int, _: Any, optimizer: Any) -> None:
            optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

        return training(lib, compile_, "momentum", warm)

    def a_learning_rate_that_the_code_reads_is_seen(lib: Any, compile_: Any) -> list[Any]:
        w = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (w * x).sum() * optimizer.param_groups[0]["lr"]
            loss.backward()
            optimizer.step()
            return loss

        run, seen = compile_(step), []
        for i in range(6):
            if i == 4:
                optimizer.param_groups[0]["lr"] = 0.7
            seen.append(run(lib.ones(3)))
        return seen

    def other_settings_are_seen(lib: Any, compile_: Any) -> list[Any]:
        def nesterov(i: int, _: Any, optimizer: Any) -> None:
            optimizer.param_groups[0]["nesterov"] = i > 10

        return training(lib, compile_, "momentum", nesterov)

    def accumulation(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

        def accumulate(x: Any, y: Any) -> Any:
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        run, seen = compile_(accumulate), []
        for i in range(9):
            seen.append(run(lib.tensor(XS[i]), lib.tensor(YS[i])))
            if i % 3 == 2:
                seen += [p.grad.clone() for p in model.parameters()]
                optimizer.step()
                optimizer.zero_grad()
        return [*seen, *model.parameters()]

    def gradients_that_the_step_looks_at(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().sum()
            loss.backward()
            norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss, norm

        run, seen = compile_(step), []
        for i in range(6):
            seen += run(lib.tensor(XS[i]))
            seen += [p.grad.clone() for p in model.parameters()]
        return seen

    def forward_alone_with_backward_outside(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        run, seen = compile_(lambda x: model(x).sin()), []
        for i in range(5):
            x = lib.tensor(XS[i], requires_grad=i % 2 == 0)
            out = run(x)
            (out * out).sum().backward()
            seen += [out, x.grad, *[p.grad for p in model.parameters()]]
        return seen

    def a_result_of_a_result(lib: Any, compile_: Any) -> list[Any]:
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

    def a_second_derivative_inside(lib: Any, compile_: Any) -> list[Any]:
        def penalty(x: Any) -> Any:
            (grad,) = lib.autograd.grad((x**3).sum(), x, create_graph=True)
            (grad**2).sum().backward()
            return grad.detach()

        run, seen = compile_(penalty), []
        for i in range(4):
            x = lib.tensor(XS[i], requires_grad=True)
            seen += [run(x), x.grad]
        return seen

    def evaluation(lib: Any, compile_: Any) -> list[Any]:
        model = model_of(lib)
        run, seen = compile_(lambda x: model(x)), []
        for mode in (lib.no_grad, lib.inference_mode, lib.enable_grad):
            for i in range(3):
                with mode():
                    out = run(lib.tensor(XS[i]))
                seen += [out.requires_grad, out.is_inference()]
        return seen

    def an_argument_is_written_to(lib: Any, compile_: Any) -> list[Any]:
        def function(x: Any, y: Any) -> Any:
            x.add_(y)
            return x

        run, seen = compile_(function), []
        x = lib.zeros(2)
        for _ in range(4):
            seen.append(run(x, lib.ones(2)) is x)
        seen += [x.clone(), run(x, x), run(x, x), run(x, x.detach()), x]
        return seen


CALLS = {
    "shapes_dtypes_and_numbers_are_part_of_the_signature": 12,
    "a_changed_module_is_seen": 10,
    "compiled_functions_inside_each_other": 0,  # the inner function is part of the outer one
    "a_learning_rate_that_changes_is_not_traced_again": STEPS - 2,
    "accumulation": 7,
    "gradients_that_the_step_looks_at": 4,
    "forward_alone_with_backward_outside": 2,
    "a_result_of_a_result": 2,  # once without a gradient of w, once with one
    "a_second_derivative_inside": 3,
    "evaluation": 6,
}
"""How often compiled programs are called in a scenario, where that matters."""


@pytest.mark.every
@pytest.mark.parametrize("scenario", bodies(Scenarios), ids=lambda scenario: scenario.__name__)
def test_it_is_as_in_plain_torch(scenario: Callable[[Any, Any], list[Any]]) -> None:
    compiled = twins(scenario)
    if scenario.__name__ in CALLS:
        assert calls(compiled) == CALLS[scenario.__name__]


def test_what_the_code_refers_to_is_watched() -> None:
    class Config:
        scale = 1.0

    def scenario(lib: Any, compile_: Any) -> list[Any]:
        config, table, factor = Config(), {"offset": [1.0]}, 1.0
        w = lib.ones(2)

        def function(x: Any) -> Any:
            return x * w * config.scale * factor + table["offset"][0]

        run, seen = compile_(function), []

        def twice() -> None:
            seen.extend([run(lib.ones(2)), run(lib.ones(2))])

        twice()
        config.scale = 2.0
        twice()
        table["offset"][0] = 5.0
        twice()
        factor = 3.0
        twice()
        w = lib.full((2,), 4.0)
        twice()
        w.mul_(2.0)
        twice()
        w.data = lib.full((2,), 0.5)
        twice()
        return seen

    twins(scenario)


def test_a_method_and_a_module() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        class Scaled:
            def __init__(self) -> None:
                self.scale = lib.full((3,), 2.0)

            def run(self, x: Any) -> Any:
                return x * self.scale

        first, second = Scaled(), Scaled()
        second.scale = lib.full((3,), 5.0)
        seen = []
        for each in (first, second):
            run = compile_(each.run)
            seen += [run(lib.ones(3)) for _ in range(3)]
        return seen

    twins(scenario)
    model = model_of(tg)
    ours = tg.compile(model)
    assert list(ours.state_dict()) == [f"_orig_mod.{name}" for name in model.state_dict()]
    x = tg.tensor(XS[0])
    for _ in range(3):
        np.testing.assert_array_equal(ours(x).detach().numpy(), model(x).detach().numpy())
    assert "compiled: 3 instructions, called 2 times" in ours.explain()
    assert tg.compile(model, disable=True) is model


def test_a_decorated_method() -> None:
    class Net(tg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = tg.nn.Linear(2, 2)

        @tg.compile(fullgraph=True)
        def forward(self, x: Any) -> Any:
            return self.lin(x)

    one, two = Net(), Net()
    x = tg.ones(1, 2)
    for _ in range(3):
        for net in (one, two):
            np.testing.assert_array_equal(net(x).detach().numpy(), net.lin(x).detach().numpy())


def test_too_many_kinds_of_calls_are_said_once() -> None:
    run = tg.compile(lambda x: x * 2)
    with pytest.warns(UserWarning, match="compiled for 8 kinds of calls") as caught:
        for n in range(1, 13):
            assert run(tg.ones(n)).sum().item() == 2 * n
    assert len(caught) == 1


def test_numbers_that_are_others_each_time_are_not_traced_each() -> None:
    run = tg.compile(lambda x, n, weight: x[n : n + 2] * weight)
    x = tg.arange(20.0)
    for n in range(10):
        assert run(x, n, n / 2).tolist() == [n * n / 2, (n + 1) * n / 2]
    assert run.explain().splitlines()[1:] == ["not compiled: its arguments are other numbers each time"]
    for _ in range(4):
        assert run(x, True, 2).tolist() == [2.0, 4.0]  # arguments of other types
    assert "compiled: " in run.explain()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(name: str) -> None:
    compiled = twins(lambda lib, compile_: training(lib, compile_, name))
    assert calls(compiled) == STEPS - 2  # traced once without gradients and once with


def test_a_scheduler_outside_and_inside() -> None:
    def outside(lib: Any, compile_: Any) -> list[Any]:
        schedulers: list[Any] = []

        def decay(i: int, _: Any, optimizer: Any) -> None:
            if not i:
                schedulers.append(lib.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5))
            else:
                schedulers[0].step()

        return training(lib, compile_, "sgd", decay)

    assert calls(twins(outside)) >= STEPS - 5

    def inside(lib: Any, compile_: Any) -> list[Any]:
        w = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

        def step() -> Any:
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            scheduler.step()
            return w.sum()

        run = compile_(step)
        return [run() for _ in range(8)]

    compiled = twins(inside)
    assert calls(compiled) == 0
    assert "it changes" in compiled.explain()


def test_one_message_a_step_and_no_waiting(server: str) -> None:
    with tg.connect(server) as session:
        model = model_of(tg)
        optimizer = tg.optim.Adam(model.parameters())

        @tg.compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        x = tg.tensor(XS[0])
        for _ in range(4):
            step(x).item()
        before = session.recorder.waits
        for _ in range(10):
            step(x)
        assert session.recorder.waits == before
        session.flush()
        before = session.requests
        for _ in range(10):
            step(x).item()
        assert session.requests == before + 10


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
