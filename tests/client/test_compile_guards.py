"""The guards of ``tg.compile``: a different kind of call, or a changed outside value, is detected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .compiling import XS, calls, model_of, twins

pytestmark = pytest.mark.usefixtures("session")


def test_shapes_dtypes_and_numbers_are_part_of_the_signature() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        run, seen = compile_(lambda x, power=2, **more: x**power + more.get("shift", 0.0)), []
        for _ in range(3):
            seen += [run(lib.ones(3)), run(lib.ones(2, 2)), run(lib.ones(3, dtype=lib.float64))]
            seen += [run(lib.ones(3), 3), run(lib.ones(3), power=3.0), run(lib.ones(3), shift=0.5)]
        return seen

    assert calls(twins(scenario)) == 12


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


def test_a_changed_module_is_seen() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
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

    assert calls(twins(scenario)) == 10


def test_autocast_and_modes_are_part_of_the_signature() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        a, b = lib.ones(2, 2), lib.ones(2, 2)
        run, seen = compile_(lambda: a @ b), []
        for _ in range(3):
            with lib.autocast("cpu", dtype=lib.bfloat16):
                seen.append(str(run().dtype).partition(".")[2])
            seen.append(str(run().dtype).partition(".")[2])
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


def test_compiled_functions_inside_each_other() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        inner = compile_(lambda x: x.exp())
        outer = compile_(lambda x: inner(x) + inner(x * 2))
        return [outer(lib.tensor(XS[i])) for i in range(4)] + [inner(lib.tensor(XS[0]))]

    assert calls(twins(scenario)) == 0  # the inner function is part of the outer one


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
