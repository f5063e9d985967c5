"""Backward and grad over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SessionClient, problem


@pytest.fixture(autouse=True)
def y(session: SessionClient) -> None:
    """y = x ** 3 at 2, with x a leaf."""
    session.tensor("x", 2.0, requires_grad=True)
    session.tensor("c", 5.0)
    session.post("/ops/pow", {"inputs": ["x", 3], "outputs": ["y"]})


def test_gradients_accumulate(session: SessionClient) -> None:
    for expected in (12.0, 24.0):
        answer = session.post("/backward", {"tensors": ["y"], "retain_graph": True})
        assert answer.json() == {"grads": ["x"], "pending": None}
        assert session.get("/tensors/x/grad").json()["data"] == expected


def test_a_second_backward(session: SessionClient) -> None:
    session.post("/backward", {"tensors": ["y"]})
    found = problem(session.post("/backward", {"tensors": ["y"]}), 409, "graph-freed")
    assert found["detail"].startswith("Trying to backward through the graph a second time")
    assert (found["op"], found["ids"]) == ("backward", ["y"])
    session.assert_usable()


def test_a_modified_tensor(session: SessionClient) -> None:
    session.post("/ops/exp", {"inputs": ["y"], "outputs": ["z"]})
    session.post("/ops/mul_", {"inputs": ["z", 2]})
    problem(session.post("/backward", {"tensors": ["z"]}), 409, "version-conflict")
    session.post("/ops/sigmoid", {"inputs": ["y"], "outputs": ["s"]})
    session.post("/ops/mul", {"inputs": ["s", "s"], "outputs": ["q"]})
    session.run({"op": "add_", "in": ["s", 1], "grad_mode": "no_grad"})
    found = problem(session.post("/backward", {"tensors": ["q"]}), 409, "version-conflict")
    assert "modified by an inplace operation" in found["detail"]


def test_backward_into_chosen_inputs(session: SessionClient) -> None:
    assert session.post("/backward", {"tensors": ["y"], "inputs": ["y"]}).json() == {"grads": ["y"], "pending": None}
    problem(session.get("/tensors/x/grad"), 404, "not-found")


def test_grad_leaves_accumulated_ones_alone(session: SessionClient) -> None:
    found = session.post("/grad", {"outputs": ["y"], "inputs": ["x"]}).json()["grads"]
    assert found[0]["data"] == 12.0
    problem(session.get("/tensors/x/grad"), 404, "not-found")


def test_higher_orders(session: SessionClient) -> None:
    first = session.post(
        "/grad",
        {"outputs": ["y"], "inputs": ["x"], "create_graph": True, "names": ["dy"]},
        params={"data": False},
    )
    assert first.json()["grads"][0]["id"] == "dy" and first.json()["grads"][0]["data"] is None
    second = session.post("/grad", {"outputs": ["dy"], "inputs": ["x"]}).json()["grads"][0]
    assert second["data"] == 12.0


def test_unused_inputs(session: SessionClient) -> None:
    session.tensor("u", 1.0, requires_grad=True)
    body = {"outputs": ["y"], "inputs": ["u", "x"], "retain_graph": True}
    found = problem(session.post("/grad", body), 422, "grad-required")
    assert "appears to not have been used in the graph" in found["detail"]
    answer = session.post("/grad", {**body, "allow_unused": True})
    assert answer.json()["grads"][0] is None and answer.json()["grads"][1]["data"] == 12.0
    answer = session.post("/grad", {**body, "allow_unused": True, "names": ["gu", "gx"]})
    assert answer.json()["grads"][0] is None and answer.json()["grads"][1]["id"] == "gx"
    problem(session.get("/tensors/gu"), 404, "unknown-tensor")
    answer = session.post("/grad", {**body, "materialize_grads": True})
    assert [g["data"] for g in answer.json()["grads"]] == [0.0, 12.0]


@pytest.mark.parametrize(
    ("path", "body", "status", "slug", "words"),
    [
        ("/backward", {"tensors": []}, 422, "invalid-argument", "tensors"),
        ("/backward", {}, 422, "invalid-argument", "tensors"),
        ("/backward", {"tensors": ["c"]}, 422, "grad-required", "element 0 of tensors does not require grad"),
        ("/backward", {"tensors": ["nope"]}, 404, "unknown-tensor", "nope"),
        ("/backward", {"tensors": ["y"], "inputs": []}, 422, "invalid-argument", "inputs"),
        ("/backward", {"tensors": ["y"], "gradients": ["v"]}, 422, "shape-mismatch", "Mismatch in shape"),
        ("/backward", {"tensors": ["y"], "gradients": []}, 422, "invalid-operation", ""),
        ("/backward", {"tensors": ["y"], "retain_graph": "yes"}, 422, "invalid-argument", "retain_graph"),
        (
            "/backward",
            {"tensors": ["w"]},
            422,
            "grad-required",
            "can be implicitly created only for scalar outputs",
        ),
        ("/grad", {"outputs": ["y"], "inputs": ["c"]}, 422, "grad-required", "does not require grad"),
        ("/grad", {"outputs": ["y"], "inputs": ["x"], "names": []}, 422, "invalid-argument", "names"),
        ("/grad", {"outputs": ["y"], "inputs": ["x"], "names": ["x"]}, 409, "tensor-exists", "x"),
        ("/grad", {"outputs": ["y"]}, 422, "invalid-argument", "inputs"),
    ],
)
def test_bad_input(session: SessionClient, path: str, body: Any, status: int, slug: str, words: str) -> None:
    session.tensor("v", [1.0, 2.0])
    session.tensor("w", [1.0, 2.0], requires_grad=True)
    assert words in problem(session.post(path, body), status, slug)["detail"]
    session.assert_usable()
    assert session.post("/backward", {"tensors": ["y"]}).status_code == 200
