"""One op a request: overloads, several outputs, in-place forms, and errors in torch's words."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SessionClient, problem


@pytest.fixture(autouse=True)
def x(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 5.0], [4.0, 2.0]])


def outputs(session: SessionClient, op: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = session.post(f"/ops/{op}", body, params={"data": True})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["outputs"]
    return found


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        ("max", ["x"], {}, [5.0]),
        ("max", ["x"], {"dim": 1}, [[5.0, 4.0], [1, 0]]),
        ("max.dim", ["x"], {"dim": 0}, [[4.0, 5.0], [1, 0]]),
        ("max", ["x", "x"], {}, [[[1.0, 5.0], [4.0, 2.0]]]),
        ("split", ["x"], {"split_size": 1}, [[[1.0, 5.0]], [[4.0, 2.0]]]),
        ("unbind", ["x"], {}, [[1.0, 5.0], [4.0, 2.0]]),
        ("cat", [["x", "x"]], {"dim": 1}, [[[1.0, 5.0, 1.0, 5.0], [4.0, 2.0, 4.0, 2.0]]]),
        ("div", ["x", 2], {"rounding_mode": "floor"}, [[[0.0, 2.0], [2.0, 1.0]]]),
        ("div", ["x", 2], {}, [[[0.5, 2.5], [2.0, 1.0]]]),
        ("divide", ["x", 2], {}, [[[0.5, 2.5], [2.0, 1.0]]]),
        ("clamp", ["x", None, 2.0], {}, [[[1.0, 2.0], [2.0, 2.0]]]),
        ("sum", ["x"], {"dim": [0, 1]}, [12.0]),
        ("zeros", [], {"size": [2]}, [[0.0, 0.0]]),
        ("arange", [], {"end": 3}, [[0, 1, 2]]),
        ("arange", [], {"start": 1, "end": 3, "dtype": "float32"}, [[1.0, 2.0]]),
        ("histogram", ["x"], {"bins": 2}, [[2.0, 2.0], [1.0, 3.0, 5.0]]),
    ],
)
def test_ops(session: SessionClient, op: str, inputs: list[Any], attrs: dict[str, Any], expected: list[Any]) -> None:
    found = outputs(session, op, {"inputs": inputs, "attrs": attrs})
    assert [each["data"] for each in found] == expected
    assert len({each["id"] for each in found}) == len(expected)
    for each in found:
        assert session.data(each["id"]) == each["data"]


def test_outputs_have_the_names_they_are_given(session: SessionClient) -> None:
    found = outputs(session, "max", {"inputs": ["x"], "attrs": {"dim": 1}, "outputs": ["values", "indices"]})
    assert [each["id"] for each in found] == ["values", "indices"]
    found = outputs(session, "max", {"inputs": ["x"], "attrs": {"dim": 1}, "outputs": ["only"]})
    assert [each["id"] for each in found] == ["only"]
    answer = session.post("/ops/neg", {"inputs": ["x"], "outputs": ["a", "b"]})
    problem(answer, 422, "invalid-argument")


def test_values_come_when_asked_for(session: SessionClient) -> None:
    assert session.post("/ops/neg", {"inputs": ["x"]}).json()["outputs"][0]["data"] is None


def test_in_place(session: SessionClient) -> None:
    found = outputs(session, "mul_", {"inputs": ["x", 2]})
    assert (found[0]["id"], found[0]["version"], found[0]["data"]) == ("x", 1, [[2.0, 10.0], [8.0, 4.0]])
    found = outputs(session, "div_", {"inputs": ["x", 4], "attrs": {"rounding_mode": "trunc"}})
    assert (found[0]["id"], found[0]["data"]) == ("x", [[0.0, 2.0], [2.0, 1.0]])
    assert session.get().json()["tensors"] == 1


@pytest.mark.parametrize(
    ("op", "body", "status", "slug", "words"),
    [
        ("nope", {"inputs": ["x"]}, 404, "unknown-op", "unknown op 'nope'"),
        ("softmx", {"inputs": ["x"]}, 404, "unknown-op", "did you mean softmax"),
        ("maximum_", {"inputs": ["x", "x"]}, 404, "unknown-op", "maximum_"),
        ("backward", {"inputs": [["x"]]}, 404, "unknown-op", "backward"),
        ("add", {"inputs": ["x"]}, 422, "invalid-argument", "missing required input 'other'"),
        ("add", {"inputs": ["x", "x", "x"]}, 422, "invalid-argument", "at most 2 inputs"),
        ("add", {"inputs": ["x", None]}, 422, "invalid-argument", "must be Tensor, not NoneType"),
        ("add", {"inputs": ["x", "9"]}, 404, "unknown-tensor", "no tensor '9' in this session"),
        ("add", {"inputs": ["x", {"a": 1}]}, 400, "malformed-request", "not dict"),
        ("add", {"inputs": "x"}, 422, "invalid-argument", "body.inputs"),
        ("add", {"inputs": ["x", 1], "outputs": [".1"]}, 422, "invalid-argument", "body.outputs.0"),
        ("add", {"inputs": ["x", 1], "attrs": {"beta": 1}}, 422, "invalid-argument", "beta"),
        ("sum", {"inputs": ["x"], "attrs": {"dim": "0"}}, 422, "invalid-argument", "'dim' must be"),
        ("sum", {"inputs": ["x"], "attrs": {"dim": 2}}, 422, "index-out-of-range", "Dimension out of range"),
        ("max", {"inputs": ["x", "x"], "attrs": {"dim": 1}}, 422, "invalid-argument", "expected one of"),
        ("matmul", {"inputs": ["x", "v"]}, 422, "shape-mismatch", "size mismatch"),
        (
            "reshape",
            {"inputs": ["x"], "attrs": {"shape": [3]}},
            422,
            "shape-mismatch",
            "invalid for input of size 4",
        ),
        ("zeros", {"attrs": {"size": [2**60]}}, 413, "too-large", ""),
        ("add", {"inputs": ["x", 10**400]}, 422, None, ""),
        ("logical_and", {"inputs": ["x", "x"], "attrs": {"": 0}}, 422, "invalid-argument", ""),
    ],
)
def test_bad_input(session: SessionClient, op: str, body: Any, status: int, slug: str | None, words: str) -> None:
    session.tensor("v", [1.0, 2.0, 3.0])
    answer = session.post(f"/ops/{op}", body)
    assert answer.status_code == status, answer.text
    if slug is not None:
        assert words in problem(answer, status, slug)["detail"]
    assert session.get().json()["tensors"] == 2
    session.assert_usable()
