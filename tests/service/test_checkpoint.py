"""Checkpoints over REST: two instructions around others."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SessionClient, problem

BEGIN: dict[str, Any] = {"op": "checkpoint", "in": [["x"]], "attrs": {"checkpoint": "c"}}
END: dict[str, Any] = {"op": "end_checkpoint", "attrs": {"checkpoint": "c"}}
BODY: list[dict[str, Any]] = [
    {"op": "sin", "in": ["x"], "out": ["a"]},
    {"op": "exp", "in": ["a"], "out": ["b"]},
    {"op": "cos", "in": ["b"], "out": ["y"]},
    {"op": "free", "in": [["a", "b"]]},
]
BACKWARD: list[dict[str, Any]] = [{"op": "sum", "in": ["y"], "out": ["loss"]}, {"op": "backward", "in": [["loss"]]}]


@pytest.fixture(autouse=True)
def x(session: SessionClient) -> None:
    session.tensor("x", [0.5] * 1000, requires_grad=True)


def used(session: SessionClient) -> int:
    return int(session.get().json()["used_bytes"])


def test_less_is_held_and_the_gradient_is_the_same(session: SessionClient) -> None:
    before = used(session)
    session.run(*BODY)
    plain = used(session) - before
    session.run(*BACKWARD)
    expected = session.get("/tensors/x/grad").json()["data"]
    session.run({"op": "free", "in": [["y", "loss"]]}, {"op": "set_grad", "in": ["x", None]})
    assert used(session) == before
    session.run(BEGIN, *BODY, END)
    assert used(session) - before == 4000 < plain
    session.run(*BACKWARD)
    assert session.get("/tensors/x/grad").json()["data"] == expected
    session.run({"op": "free", "in": [["y", "loss"]]}, {"op": "set_grad", "in": ["x", None]})
    assert used(session) == before


def test_over_several_programs_and_tensors_that_are_freed(session: SessionClient) -> None:
    session.tensor("w", [2.0] * 1000)
    session.run(BEGIN, {"op": "mul", "in": ["x", "w"], "out": ["m"]})
    session.run({"op": "sin", "in": ["m"], "out": ["y"]}, {"op": "free", "in": [["m", "w"]]})
    session.run(END)
    assert session.run(*BACKWARD).status_code == 200
    assert session.get("/tensors/x/grad").json()["data"][0] == pytest.approx(1.0806046)


def test_an_end_that_never_came(session: SessionClient) -> None:
    problem(session.run(BEGIN, *BODY, {"op": "fetch", "in": [["nothing"]]}, END), 404, "unknown-tensor")
    assert session.run(BEGIN, {"op": "sin", "in": ["y"], "out": ["z"]}, END, END).status_code == 200
    session.run({"op": "sum", "in": ["z"], "out": ["loss"]}, BACKWARD[1])
    assert len(session.get("/tensors/x/grad").json()["data"]) == 1000
    session.assert_usable()


def test_what_is_modified_before_backward(session: SessionClient) -> None:
    session.run({"op": "mul", "in": ["x", 2], "out": ["t"]}, {**BEGIN, "in": [["t"]]})
    session.run({"op": "sin", "in": ["t"], "out": ["y"]}, END, {"op": "mul_", "in": ["t", 3]})
    found = problem(session.run(*BACKWARD), 409, "version-conflict")
    assert "modified by an inplace operation" in found["detail"]
    session.assert_usable()


def test_too_many(session: SessionClient) -> None:
    many = [{**BEGIN, "attrs": {"checkpoint": f"c{i}"}} for i in range(101)]
    problem(session.run(*many), 422, "invalid-operation")
    session.assert_usable()
