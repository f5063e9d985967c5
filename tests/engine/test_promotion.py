"""The dtypes that operations of all pairs of dtypes are computed in."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from . import oracle
from .twins import OURS, THEIRS

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "lt",
    "bitwise_and",
    "logical_or",
    "where",
]


def outcome(t: Any, name: str, a: Any, b: Any) -> Any:
    def call() -> Any:
        if name == "where":
            return t.where(t.tensor([True, False]), a, b)
        return getattr(t, name)(a, b)

    result = oracle.attempt(call)
    return result.kind if isinstance(result, oracle.Failure) else (oracle.dtype_name(result[0]), list(result[0].shape))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("left", DTYPES)
def test_promotion_of_every_pair(name: str, left: str) -> None:
    wrong = []
    for right in DTYPES:
        for first in ([1, 1], 1):
            for second in ([1, 1], 1):
                results = []
                for t in (THEIRS, OURS):
                    a = t.tensor(first, dtype=oracle.dtype_of(t, left))
                    b = t.tensor(second, dtype=oracle.dtype_of(t, right))
                    results.append(outcome(t, name, a, b))
                if results[0] != results[1]:
                    wrong.append((left, right, first, second, *results))
    assert not wrong


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("maximum", "minimum", "logical_or")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_with_numbers(name: str, dtype: str) -> None:
    wrong = []
    for value in ([1, 1], 1):
        for number in (True, 2, 2.5):
            for swapped in (False, True):
                if swapped and name in ("eq", "lt", "bitwise_and"):
                    continue
                results = []
                for t in (THEIRS, OURS):
                    a = t.tensor(value, dtype=oracle.dtype_of(t, dtype))
                    results.append(outcome(t, name, *((number, a) if swapped else (a, number))))
                if results[0] != results[1]:
                    wrong.append((dtype, value, number, swapped, *results))
    assert not wrong


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "|", "^", "@"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for number in (True, 3, 2.5):
            for expression in (f"x {operator} n", f"n {operator} x"):
                results = []
                for t in (THEIRS, OURS):
                    x = t.tensor([1, 2], dtype=oracle.dtype_of(t, left))
                    result = oracle.attempt(partial(eval, expression, {"x": x, "n": number}))
                    results.append(
                        result.kind
                        if isinstance(result, oracle.Failure)
                        else (
                            oracle.dtype_name(result[0]),
                            np.asarray(oracle.numpy(result[0].double())).tolist(),
                        )
                    )
                if repr(results[0]) != repr(results[1]):
                    wrong.append((expression, left, number, *results))
    assert not wrong


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^="])
def test_in_place_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for other in (True, 3, 2.5, *DTYPES):
            results = []
            for t in (THEIRS, OURS):
                x = t.tensor([1, 2], dtype=oracle.dtype_of(t, left))
                n = t.tensor([3, 2], dtype=oracle.dtype_of(t, other)) if isinstance(other, str) else other
                scope = {"x": x, "n": n}
                result = oracle.attempt(lambda scope=scope: exec(f"x {operator} n", scope))
                results.append(
                    "raises"
                    if isinstance(result, oracle.Failure)
                    else (scope["x"] is x, oracle.dtype_name(x), oracle.numpy(x.double()).tolist())
                )
            if repr(results[0]) != repr(results[1]):
                wrong.append((operator, left, other, *results))
    assert not wrong
