"""Registered functions compose with what the engine does to any operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.errors import InvalidFunction, LimitExceeded
from telegrad_engine.profiler import profile
from telegrad_engine.program import parse_program
from telegrad_engine.program.registered_functions import FunctionProgram, Library
from telegrad_engine.session.session import Session
from telegrad_engine.utils import checkpoint

from .. import fake_gpu

SLOPE = [
    {"op": "pow", "in": ["x", {"sub": [{"param": "power"}, 1]}], "out": ["root"]},
    {"op": "mul", "in": ["root", {"param": "power"}], "out": ["slope"]},
    {"op": "mul", "in": ["slope", "g"], "out": ["result"]},
]
POWER: dict[str, Any] = {
    "name": "my_power",
    "parameters": [{"name": "power", "default": 3}],
    "forward": {
        "inputs": ["x"],
        "instructions": [{"op": "pow", "in": ["x", {"param": "power"}], "out": ["y"]}],
        "outputs": ["y"],
        "saves": ["x"],
    },
    "backward": {"inputs": ["x", "g"], "instructions": SLOPE, "outputs": ["result"]},
    "jvp": {"inputs": ["x", "g"], "instructions": SLOPE, "outputs": ["result"]},
}
X = [1.0, 2.0, -3.0]


def read(definition: dict[str, Any]) -> FunctionProgram:
    return FunctionProgram(definition, Library().find)


def cube(x: Any) -> Any:
    return read(POWER).call([x], {})[0]


def leaf() -> Any:
    return tg.tensor(X, dtype=tg.dtypes.float64, requires_grad=True)


def test_derivatives_of_all_kinds() -> None:
    assert autograd.gradcheck(cube, (leaf(),), check_forward_ad=True)
    assert autograd.gradgradcheck(cube, (leaf(),))
    theirs = torch.autograd.functional.hessian(lambda x: (x**3).sum(), torch.tensor(X, dtype=torch.float64))
    ours = autograd.functional.hessian(lambda x: cube(x).sum(), leaf())
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("reentrant", [True, False])
def test_in_a_checkpoint(reentrant: bool) -> None:
    x = leaf()
    checkpoint.checkpoint(cube, x, use_reentrant=reentrant).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0, 27.0]


def test_in_a_profile_and_in_the_graph() -> None:
    x = leaf()
    with profile() as found:
        y = cube(x)
        y.sum().backward()
    assert {"aten::pow", "MyPowerBackward"} <= {event.key for event in found.key_averages()}
    assert y.grad_fn.name() == "MyPowerBackward" and "MyPowerBackward" in repr(y)
    with tg.no_grad():
        assert not cube(x).requires_grad


HOSTILE = [
    {"pow": [10, {"pow": [10, 1000]}]},
    {"mul": ["aaaa", 100]},
    {"pow": [{"pow": [10, 900]}, 900]},
    {"div": [1, 0]},
    {"item": [{"shape": "x"}, 7]},
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_an_expression_without_a_value(expression: Any) -> None:
    step = {"op": "mul", "in": ["x", expression], "out": ["y"]}
    function = read({"name": "f", "forward": {"inputs": ["x"], "instructions": [step], "outputs": ["y"]}})
    with pytest.raises(ValueError):
        function.call([leaf()], {})


def test_an_expression_that_is_too_deep() -> None:
    expression: Any = {"numel": "x"}
    for _ in range(100):
        expression = {"neg": [expression]}
    step = {"op": "mul", "in": ["x", expression], "out": ["y"]}
    with pytest.raises((InvalidFunction, LimitExceeded)):
        read({"name": "f", "forward": {"inputs": ["x"], "instructions": [step], "outputs": ["y"]}})


def test_on_another_array_library() -> None:
    backward = {**POWER["backward"], "outputs": ["scaled"]}
    constant = {"op": "tensor", "out": ["one"], "attrs": {"data": [1.0], "dtype": "float64"}}
    scale = {"op": "mul", "in": ["result", "one"], "out": ["scaled"]}
    definition = {**POWER, "backward": {**backward, "instructions": [*SLOPE, constant, scale]}}
    program = [
        {"op": "register_function", "attrs": {"definition": definition}},
        {"op": "tensor", "out": ["x"], "attrs": {"data": X, "dtype": "float64", "requires_grad": True}},
        {"op": "apply", "in": [["x"]], "out": ["y"], "attrs": {"function": "my_power"}},
        {"op": "sum", "in": ["y"], "out": ["total"]},
        {"op": "backward", "in": [["total"]]},
        {"op": "grad_of", "in": ["x"], "out": ["g"]},
        {"op": "fetch", "in": [["g"]]},
    ]
    with fake_gpu.installed():
        session = Session(device="cuda")
        assert session.run(parse_program(program)).values["g"].array.tolist() == [3.0, 12.0, 27.0]
