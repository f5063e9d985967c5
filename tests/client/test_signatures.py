"""``inspect.signature`` of functions and methods gives the parameters that they take; test_names.py has modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad.nn import functional as F
from telegrad_engine.schema.op import CATALOGUE, Op
from tests.op_cases import CASES

DEPRECATED = {"size_average", "reduce", "_stacklevel"}
"""Parameters of torch's functions that ops do not have."""
MISSING = {"interpolate": {"antialias"}, "normalize": {"out"}}
"""Parameters that a function of ours lacks."""
ANY = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def names_of(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in DEPRECATED]


def takes_anything(function: Callable[..., Any]) -> bool:
    return {parameter.kind for parameter in inspect.signature(function).parameters.values()} >= ANY


def functions() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """The functions and methods of tensors by name, with torch's, or None."""
    for space, ours, theirs in (
        ("", tg, torch),
        ("linalg.", tg.linalg, torch.linalg),
        ("nn.functional.", F, torch.nn.functional),
        ("Tensor.", tg.Tensor, torch.Tensor),
    ):
        for name in dir(ours):
            found = None if name.startswith("_") else getattr(ours, name, None)
            if inspect.isfunction(found):
                yield f"{space}{name}", found, getattr(theirs, name, None)


FUNCTIONS = {name: (ours, theirs) for name, ours, theirs in functions()}
OF_TORCH = [
    name
    for name, (_, theirs) in FUNCTIONS.items()
    if name.startswith("nn.functional.") and inspect.isfunction(theirs) and not takes_anything(theirs)
]


def test_no_function_takes_anything() -> None:
    assert len(FUNCTIONS) > 1100
    assert {name for name, (ours, _) in FUNCTIONS.items() if takes_anything(ours)} <= {"Tensor.new", "Tensor.new_empty"}


@pytest.mark.parametrize("name", OF_TORCH)
def test_the_parameters_are_torchs(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    plain = name.removeprefix("nn.functional.")
    missing = {"return_indices"} if plain.endswith("_with_indices") else MISSING.get(plain, set())
    expected = [each for each in names_of(theirs) if each not in missing]
    assert [each for each in names_of(ours) if each != "out" or "out" in expected] == expected


def function_of(op: Op) -> Callable[..., Any] | None:
    if op.internal:
        return None
    space = {"torch": tg, "torch.linalg": tg.linalg, "torch.nn.functional": F}[op.namespace]
    found: Callable[..., Any] = getattr(space, op.public)
    return found


def test_the_parameters_are_those_of_the_op_and_calls_fit_them() -> None:
    for op in CATALOGUE:
        if (function := function_of(op)) is None:
            continue
        signature = inspect.signature(function)
        assert {param.name for param in op.params} <= {*signature.parameters}, op.key
        if CATALOGUE.overloads[op.name][0] is not op:
            continue
        for param in op.params:
            parameter = signature.parameters[param.name]
            assert parameter.default is param.default, (op.key, param.name)
            assert (parameter.kind is parameter.KEYWORD_ONLY) == param.keyword_only, (op.key, param.name)
        for case in CASES.get(op.key, []):
            if op.splat_at < 0:
                signature.bind(*case.args, **case.kwargs)


def test_methods_have_a_self() -> None:
    x = tg.ones(2)
    assert str(inspect.signature(tg.Tensor.sum)) == "(self, dim=None, keepdim=False, *, dtype=None)"
    assert str(inspect.signature(x.sum)) == "(dim=None, keepdim=False, *, dtype=None)"
    assert str(inspect.signature(tg.Tensor.add_)) == "(self, other, *, alpha=1)"


def test_overloads_are_in_one_signature() -> None:
    assert str(inspect.signature(tg.max)) == "(input, dim=None, keepdim=False, *, other=None, out=None)"
    assert str(inspect.signature(tg.Tensor.max)) == "(self, dim=None, keepdim=False, *, other=None)"


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (tg.rand, {"generator", "requires_grad", "device", "layout", "pin_memory", "memory_format", "out"}),
        (tg.Tensor.normal_, {"generator"}),
        (tg.exp, {"out"}),
        (F.relu, {"inplace"}),
        (tg.Tensor.new_zeros, {"requires_grad", "device"}),
    ],
)
def test_options_that_are_not_the_ops_are_there(function: Callable[..., Any], options: set[str]) -> None:
    assert options <= {*inspect.signature(function).parameters}
    assert all(f"{name} (" in str(function.__doc__) for name in options)


def test_functions_of_in_place_methods_and_of_methods() -> None:
    assert str(inspect.signature(F.relu_)) == "(input)"
    assert str(inspect.signature(tg.exp_)) == "(input)"
    assert str(inspect.signature(tg.numel)) == "(input)"
    assert str(inspect.signature(F.max_pool2d_with_indices)).startswith("(input, kernel_size, stride=None")
