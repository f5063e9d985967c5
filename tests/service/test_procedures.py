"""Procedures over HTTP: any client can define and call them in JSON, and is told what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest

from .api_keys import wait_until
from .conftest import SessionClient, problem

STEP: dict[str, Any] = {
    "in": ["x", "y", "w", "lr"],
    "instructions": [
        {"op": "zero_grad", "in": [["w"]]},
        {"op": "matmul", "in": ["x", "w"], "out": ["guess"]},
        {"op": "mse_loss", "in": ["guess", "y"], "out": ["loss"]},
        {"op": "backward", "in": [["loss"]]},
        {"op": "optim_step", "in": [["w"], []], "attrs": {"algorithm": "sgd", "settings": {"lr": "lr"}}},
    ],
    "out": ["loss"],
}


def define(program: dict[str, Any]) -> dict[str, Any]:
    return {"op": "define", "attrs": {"name": "step", "program": program}}


def call(*inputs: Any, out: str) -> dict[str, Any]:
    return {"op": "call", "in": [list(inputs)], "out": [out], "attrs": {"name": "step"}}


def test_a_training_step_is_one_instruction(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 0.0], [0.0, 1.0]])
    session.tensor("y", [[1.0], [2.0]])
    session.run({"op": "tensor", "out": ["w"], "attrs": {"data": [[0.0], [0.0]], "requires_grad": True}}, define(STEP))
    losses = [
        session.run(call("x", "y", "w", 0.5, out=f"l{i}"), {"op": "fetch", "in": [[f"l{i}"]]}).json()["values"][f"l{i}"]
        for i in range(3)
    ]
    assert [loss["data"] for loss in losses] == [2.5, 0.625, 0.15625]
    names = {item["id"] for item in session.get("/tensors").json()["items"]}
    assert names == {"x", "y", "w", "l0", "l1", "l2"}

    def is_planned() -> bool:
        session.run(call("x", "y", "w", 0.5, out="next"), {"op": "free", "in": [["next"]]})
        return any(report["planned_runs"] for report in session.get("/compiled").json()["items"])

    wait_until(is_planned)


def test_a_call_is_an_op_like_any_other(session: SessionClient) -> None:
    session.tensor("x", [1.0, 2.0])
    program = {"in": ["a"], "instructions": [{"op": "exp", "in": ["a"], "out": ["b"]}], "out": ["b"]}
    session.run(define(program))
    session.run(call("x", out="y"), {"op": "undefine", "attrs": {"name": "step"}})
    answer = session.post("/programs", {"instructions": [call("x", out="z")]})
    assert "no procedure 'step'" in problem(answer, 404, "not-found")["detail"]


def test_an_error_names_the_procedure_and_the_instruction_in_it(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 0.0]])
    session.tensor("w", [[1.0], [1.0], [1.0]])
    session.run(define(STEP))
    answer = session.post("/programs", {"instructions": [call("x", "x", "w", 0.5, out="l")]})
    found = problem(answer, 422, "shape-mismatch")
    assert (found["instruction"], found["op"], found["ids"]) == (0, "call", ["x", "x", "w"])
    assert (found["procedure"], found["step"], found["step_op"]) == ("step", 1, "matmul")


@pytest.mark.parametrize(
    ("program", "status", "slug"),
    [
        ({**STEP, "out": ["nothing"]}, 422, "invalid-value"),
        ({**STEP, "in": ["x"]}, 422, "invalid-value"),
        ({**STEP, "instructions": [{"op": "no_such_op"}]}, 404, "unknown-op"),
        ({**STEP, "instructions": [{"op": "call", "in": [["x"]], "attrs": {"name": "step"}}]}, 422, "invalid-value"),
        ({**STEP, "instructions": [{"op": "fetch", "in": [["x"]]}]}, 422, "invalid-value"),
        ({**STEP, "instructions": "x"}, 400, "malformed-request"),
        ({**STEP, "instructions": [3]}, 400, "malformed-request"),
        ({**STEP, "in": [1]}, 400, "malformed-request"),
        ({}, 422, "invalid-value"),
        (3, 422, "invalid-argument"),
    ],
)
def test_what_is_no_procedure_is_refused(session: SessionClient, program: Any, status: int, slug: str) -> None:
    problem(session.post("/programs", {"instructions": [define(program)]}), status, slug)


# As a resource ---------------------------------------------------------------------------


def test_a_procedure_is_a_resource(session: SessionClient) -> None:
    defined = session.post("/procedures", {"name": "step", "program": STEP})
    assert (defined.status_code, defined.headers["location"]) == (201, f"{session.path}/procedures/step")
    entry = {"name": "step", "inputs": STEP["in"], "outputs": STEP["out"], "instructions": 5}
    assert defined.json() == {**entry, "program": STEP} == session.get("/procedures/step").json()
    assert session.get("/procedures").json() == {"items": [entry], "next_cursor": None}
    session.tensor("x", [[1.0, 0.0], [0.0, 1.0]])
    session.tensor("y", [[1.0], [2.0]])
    session.tensor("w", [[0.0], [0.0]], requires_grad=True)
    losses = []
    for _ in range(3):
        applied = session.post("/procedures/step/apply?data=true", {"inputs": ["x", "y", "w", 0.5]})
        assert applied.status_code == 200, applied.text
        losses += [tensor["data"] for tensor in applied.json()["outputs"]]
    assert losses == [2.5, 0.625, 0.15625]
    assert session.run(call("x", "y", "w", 0.5, out="l")).status_code == 200  # the verb finds the same procedures
    assert session.request("DELETE", "/procedures/step").status_code == 204
    for answer in (session.get("/procedures/step"), session.request("DELETE", "/procedures/step")):
        problem(answer, 404, "not-found")


def test_a_name_is_taken_until_it_is_deleted(session: SessionClient) -> None:
    assert session.run(define(STEP)).status_code == 200
    problem(session.post("/procedures", {"name": "step", "program": STEP}), 409, "procedure-exists")
    problem(session.run(define(STEP)), 409, "procedure-exists")


def test_a_gradient_that_is_absent_is_null(session: SessionClient) -> None:
    session.tensor("x", [1.0], requires_grad=True)
    program = {"in": ["a"], "instructions": [{"op": "grad_of", "in": ["a"], "out": ["g"]}], "out": ["g"]}
    session.post("/procedures", {"name": "gradient", "program": program})
    assert session.post("/procedures/gradient/apply", {"inputs": ["x"]}).json() == {"outputs": [None]}


def test_a_wrong_definition_names_the_instruction(session: SessionClient) -> None:
    program = {"in": ["a"], "instructions": [{"op": "exp", "in": ["b"], "out": ["c"]}], "out": ["c"]}
    answer = session.post("/procedures", {"name": "wrong", "program": program})
    found = problem(answer, 422, "invalid-value")
    assert (found["step"], found["step_op"]) == (0, "exp")
    problem(session.post("/procedures", {"name": "not a name", "program": STEP}), 422, "invalid-argument")
    problem(session.post("/procedures", {"name": "wrong", "program": 3}), 422, "invalid-argument")
