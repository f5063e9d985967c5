"""The hint of a problem document: how to correct a program, where the text is PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SessionClient, problem

STEP = {"algorithm": "sgd", "settings": {"lr": 0.1}}
HINTS: list[tuple[dict[str, Any], str]] = [
    ({"op": "backward", "inputs": ["x"]}, '"inputs": [["x"]]'),
    ({"op": "grad", "inputs": ["x", "x"]}, '"inputs": [["x"], ["x"]]'),
    ({"op": "fetch", "inputs": ["x", "whole"]}, '"inputs": [["x", "whole"]]'),
    ({"op": "optim_step", "inputs": ["x", []], "attrs": STEP}, '"inputs": [["x"], []]'),
    ({"op": "optim_step", "inputs": [["x"]], "attrs": {"algorithm": "sgd", "lr": 0.1}}, '"settings": {"lr": 0.1}'),
    ({"op": "backward", "inputs": [["x"]]}, '"sum" or "mean"'),
    ({"op": "tensor", "outputs": ["t"], "attrs": {"data": [[1, 2], [3, None]]}}, "null at data[1][1]"),
    ({"op": "tensor", "outputs": ["t"], "attrs": {"data": ["NaN", [1, "2,5"]]}}, "text at data[1][1]"),
    ({"op": "neg", "inputs": ["hole"]}, "did you mean 'whole'?"),
    ({"op": "dot", "inputs": ["x", "whole"]}, 'whole is int64: whole numbers in JSON become int64'),
    ({"op": "binary_cross_entropy_with_logits", "inputs": ["x", "whole"]}, '"dtype": "float32"'),
]  # fmt: skip


@pytest.fixture
def two(session: SessionClient) -> SessionClient:
    session.tensor("x", [1.0, 2.0], requires_grad=True)
    session.tensor("whole", [1, 2])
    return session


@pytest.mark.parametrize(("instruction", "hint"), HINTS)
def test_a_program_that_failed_has_a_hint(two: SessionClient, instruction: dict[str, Any], hint: str) -> None:
    answer = two.run(instruction)
    assert answer.status_code in (404, 422), answer.text
    assert hint in answer.json()["hint"]


NONE: list[dict[str, Any]] = [
    {"op": "tensor", "outputs": ["t"], "attrs": {"data": [[1, 2], [3]]}},
    {"op": "neg", "inputs": ["nothing"]},
    {"op": "dot", "inputs": ["x", "f64"]},
    {"op": "cat", "inputs": [["x", 1]]},
    {"op": "optim_step", "inputs": [["x"]], "attrs": {"algorithm": "none", "lr": 0.1}},
]


@pytest.mark.parametrize("instruction", NONE)
def test_an_error_that_says_all_has_none(two: SessionClient, instruction: dict[str, Any]) -> None:
    two.run({"op": "arange", "outputs": ["f64"], "attrs": {"end": 2, "dtype": "float64"}})
    assert two.run(instruction).json()["hint"] is None


def test_an_invalid_id_is_explained_in_words(session: SessionClient) -> None:
    rule = "not a tensor id: 'w 3'; an id has letters, digits and _ . : -, begins with none of . : -"
    told = [
        problem(session.post("/tensors", {"id": "w 3", "data": [1.0]}), 422, "invalid-argument"),
        problem(session.post("/ops/ones", {"attrs": {"size": [2]}, "outputs": ["w 3"]}), 422, "invalid-argument"),
        problem(session.run({"op": "ones", "attrs": {"size": [2]}, "outputs": ["w 3"]}), 400, "malformed-request"),
    ]
    assert [rule in each["detail"] for each in told] == [True] * 3
    session.assert_usable()
