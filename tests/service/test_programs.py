"""Programs: what runs, what stands after an error, and in which media type the answer comes.

Internals: answers are read by the codec that the SDK uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from telegrad_engine.program import wire

from . import documented
from .conftest import SessionClient, problem, served_with
from .streams import Talk

REGISTER = documented.request_examples("register_function")
RELU = {name: value for name, value in REGISTER["relu"].items() if name != "scope"}

JSON, SAFETENSORS = "application/json", "application/vnd.safetensors"
STEP: list[dict[str, Any]] = [
    {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "mul", "in": ["x", "x"], "out": ["y"]},
    {"op": "sum", "in": ["y"], "out": ["loss"]},
    {"op": "backward", "in": [["loss"]]},
    {"op": "grad_of", "in": ["x"], "out": ["g"]},
    {"op": "fetch", "in": [["loss", "g"]]},
]


def test_a_training_step(session: SessionClient) -> None:
    values = session.run(*STEP).json()["values"]
    assert values["loss"]["data"] == 5.0
    assert values["g"]["data"] == [2.0, 4.0]
    assert values["loss"]["grad_fn"] == "SumBackward0"


def test_the_answers_media_type(session: SessionClient) -> None:
    program = {"instructions": [{"op": "fetch", "in": [["x"]]}]}
    session.tensor("x", [1.0, 2.0])
    for accept, expected in [
        (None, JSON),
        ("*/*", JSON),
        (SAFETENSORS, SAFETENSORS),
        ("application/json;q=0.1, application/vnd.safetensors", SAFETENSORS),
    ]:
        headers = {} if accept is None else {"accept": accept}
        answer = session.post("/programs", program, headers=headers)
        assert answer.headers["content-type"] == expected
    np.testing.assert_array_equal(wire.decode_answer(answer.content).values["x"].array, [1, 2])
    body = save({}, {"program": json.dumps(program)})
    for accept, expected in [("*/*", SAFETENSORS), (JSON, JSON)]:
        headers = {"content-type": SAFETENSORS, "accept": accept}
        answer = session.request("POST", "/programs", content=body, headers=headers)
        assert answer.headers["content-type"] == expected
    assert answer.json()["values"]["x"]["data"] == [1.0, 2.0]
    problem(session.post("/programs", program, headers={"accept": "text/html"}), 406, "not-acceptable")


def test_uploads_travel_in_the_container(session: SessionClient) -> None:
    array = np.random.default_rng(0).standard_normal((64, 784)).astype(np.float32)
    program = [{"op": "tensor", "out": ["x"]}, {"op": "neg", "in": ["x"], "out": ["y"]}, {"op": "fetch", "in": [["y"]]}]
    body = save({"x": array}, {"program": json.dumps(program)})
    answer = session.request("POST", "/programs", content=body, headers={"content-type": SAFETENSORS})
    np.testing.assert_array_equal(wire.decode_answer(answer.content).values["y"].array, -array)


def test_what_ran_before_an_error_stands(session: SessionClient) -> None:
    answer = session.run(
        {"op": "tensor", "out": ["a"], "attrs": {"data": [1.0, 2.0]}},
        {"op": "tensor", "out": ["b"], "attrs": {"data": [1.0, 2.0, 3.0]}},
        {"op": "add", "in": ["a", "b"], "out": ["c"]},
        {"op": "neg", "in": ["a"], "out": ["d"]},
    )
    found = problem(answer, 422, "shape-mismatch")
    assert (found["instruction"], found["op"], found["ids"]) == (2, "add", ["a", "b"])
    assert found["shapes"] == {"a": [2], "b": [3]}
    assert found["detail"] == (
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"
    )
    assert [item["id"] for item in session.get("/tensors").json()["items"]] == ["a", "b"]
    session.assert_usable()


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (None, None),
        ([1], None),
        ({"instructions": [], "fetch": ["x"]}, None),
        ({}, None),
        ({"instructions": {}}, None),
        ({"instructions": [{"op": "neg"}, {"op": 1}]}, 1),
        ({"instructions": [{"op": "neg", "in": "x"}]}, 0),
        ({"instructions": [{"op": "neg", "in": [{"a": 1}]}]}, 0),
        ({"instructions": [{"op": "neg", "in": [[[[1]]]]}]}, 0),
        ({"instructions": [{"op": "neg", "out": ["not an id"]}]}, 0),
        ({"instructions": [{"op": "neg", "out": ["NaN"]}]}, 0),
        ({"instructions": [{"op": "neg", "out": [None]}]}, 0),
        ({"instructions": [{"op": "neg", "attrs": []}]}, 0),
        ({"instructions": [{"op": "neg", "grad_mode": "off"}]}, 0),
        ({"instructions": [{"op": "neg", "colour": 1}]}, 0),
    ],
)
def test_what_is_no_program(session: SessionClient, body: Any, where: int | None) -> None:
    answer = session.request("POST", "/programs", content=json.dumps(body), headers={"content-type": JSON})
    assert problem(answer, 400, "malformed-request")["instruction"] == where
    session.assert_usable()


def test_numbers_that_json_lacks_are_literals(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    answer = session.run(
        {"op": "add", "in": ["x", "Infinity"], "out": ["y"]},
        {"op": "masked_fill", "in": ["x", "m", "-Infinity"], "out": ["z"]},
    )
    assert problem(answer, 404, "unknown-tensor")["ids"] == ["m"]
    assert session.data("y") == ["Infinity"]


def test_names_are_checked_before_anything_happens(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    session.tensor("y", [1.0])
    problem(session.run({"op": "add_", "in": ["x", 1], "out": ["y"]}), 409, "tensor-exists")
    assert session.data("x") == [1.0]
    problem(session.run({"op": "max", "in": ["x"], "out": ["a", "a"], "attrs": {"dim": 0}}), 409, "tensor-exists")


def test_fetched_values_are_of_their_moment(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    answer = session.run({"op": "fetch", "in": [["x"]]}, {"op": "add_", "in": ["x", 1]})
    assert answer.json()["values"]["x"]["data"] == [1.0]
    assert session.data("x") == [2.0]


def test_values_too_large_to_fetch(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    grow = {"op": "expand", "in": ["x"], "out": ["huge"], "attrs": {"size": [2**50]}}
    problem(session.run(grow, {"op": "fetch", "in": [["huge"]]}), 413, "too-large")
    session.assert_usable()


def test_answers_too_long_for_json(session: SessionClient) -> None:
    made = session.post("/tensors", {"id": "x", "factory": "zeros", "shape": [1025, 1024], "dtype": "uint8"})
    assert made.status_code == 201
    found = problem(session.get("/tensors/x"), 413, "too-large")
    assert "safetensors" in found["detail"]
    assert session.get("/tensors/x", headers={"accept": SAFETENSORS}).status_code == 200
    problem(session.run({"op": "fetch", "in": [["x"]]}), 413, "too-large")


MADE = [
    {"op": "tensor", "outputs": ["a"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "mul", "inputs": ["a", "a"], "outputs": ["b"]},
    {"op": "sum", "inputs": ["b"], "outputs": ["c"]},
    {"op": "free", "inputs": [["b"]]},
]
WRONG = {"op": "neg", "inputs": ["nothing"], "outputs": ["never"]}


def test_the_problem_says_what_has_run_and_how_to_go_on(session: SessionClient) -> None:
    found = problem(session.run(*MADE, WRONG), 404, "unknown-tensor")
    assert found["instruction"] == 4
    progress = found["progress"]
    assert (progress["ran"], progress["outputs"], progress["rolled_back"]) == (4, ["a", "c"], False)
    assert "instructions 0 to 3 have run" in progress["next"] and "from instruction 4 on" in progress["next"]
    nothing = problem(session.run(WRONG), 404, "unknown-tensor")["progress"]
    assert (nothing["ran"], nothing["outputs"]) == (0, [])
    assert nothing["next"] == "No instruction has run. Correct the program and send it again."
    assert session.get("/tensors/nope").json()["progress"] is None


def test_the_problem_of_an_answer_that_is_too_long_says_that_everything_ran() -> None:
    with served_with(max_json_elements=10) as other:
        session = SessionClient(other)
        long = [{"op": "zeros", "outputs": ["z"], "attrs": {"size": [11]}}, {"op": "fetch", "inputs": [["z"]]}]
        found = problem(session.run(*long), 413, "too-large")
        assert (found["progress"]["ran"], found["progress"]["outputs"]) == (2, ["z"])
        undone = problem(session.post("/programs", {"instructions": long, "rollback": True}), 409, "tensor-exists")
        assert undone["progress"]["rolled_back"]
        session.run({"op": "free", "inputs": [["z"]]})
        assert session.post("/programs", {"instructions": long, "rollback": True}).status_code == 413
        assert session.get("/tensors/z").status_code == 404


CHANGES: dict[str, list[dict[str, Any]]] = {
    "names": [{"op": "neg", "inputs": ["w"], "outputs": ["new"]}],
    "frees": [{"op": "free", "inputs": [["w", "big"]]}],
    "in-place changes": [{"op": "add_", "inputs": ["big", 1]}, {"op": "mul_", "inputs": ["n", 2]}],
    "views": [{"op": "zero_", "inputs": ["view"]}],
    "gradients": [{"op": "backward", "inputs": [["loss"]]}],
    "set gradients": [{"op": "zero_grad", "inputs": [["w"]]}, {"op": "set_grad", "inputs": ["w", "n"]}],
    "random numbers": [{"op": "rand", "outputs": ["r"], "attrs": {"size": [3]}}],
    "the seed": [{"op": "manual_seed", "attrs": {"seed": 5}}],
    "the default dtype": [{"op": "set_default_dtype", "attrs": {"dtype": "float64"}}],
    "leaves": [{"op": "requires_grad_", "inputs": ["n"]}, {"op": "detach_", "inputs": ["loss"]}],
    "values": [{"op": "set_data", "inputs": ["n"], "attrs": {"data": [9.0, 9.0]}}],
    "an optimizer's step": [
        {"op": "optim_step", "inputs": [["w"], []], "attrs": {"algorithm": "sgd", "settings": {"lr": 0.1}}}
    ],
    "functions": [
        {"op": "remove_function", "attrs": {"name": "my_relu"}},
        {"op": "register_function", "attrs": {"definition": {**RELU, "name": "other"}}},
    ],
    "procedures": [
        {"op": "undefine", "attrs": {"name": "p"}},
        {"op": "define", "attrs": {"name": "q", "program": {"inputs": [], "instructions": [], "outputs": []}}},
    ],
    "checkpoints": [{"op": "checkpoint", "attrs": {"checkpoint": "c"}}],
    "profiles": [{"op": "start_profile"}],
}
BEFORE = [
    {"op": "tensor", "outputs": ["w"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "tensor", "outputs": ["n"], "attrs": {"data": [3.0, 4.0]}},
    {"op": "zeros", "outputs": ["big"], "attrs": {"size": [100_000]}},
    {"op": "narrow", "inputs": ["big"], "outputs": ["view"], "attrs": {"dim": 0, "start": 0, "length": 2}},
    {"op": "mul", "inputs": ["w", "n"], "outputs": ["product"]},
    {"op": "sum", "inputs": ["product"], "outputs": ["first"]},
    {"op": "backward", "inputs": [["first"]], "attrs": {"retain_graph": True}},
    {"op": "sum", "inputs": ["product"], "outputs": ["loss"]},
    {"op": "register_function", "attrs": {"definition": RELU}},
    {"op": "define", "attrs": {"name": "p", "program": {"inputs": [], "instructions": [], "outputs": []}}},
]


def state_of(session: SessionClient) -> dict[str, Any]:
    """All that a client can read of a session, and what it draws next."""
    tensors = {t["id"]: session.get(f"/tensors/{t['id']}").json() for t in session.get("/tensors").json()["items"]}
    grads = {name: session.get(f"/tensors/{name}/grad").text.partition("request_id")[0] for name in tensors}
    lists = [session.get(path).json() for path in ("/graph", "/functions", "/procedures", "/pending")]
    draw = {"op": "rand", "outputs": ["drawn"], "attrs": {"size": [4]}}
    ended = {"op": "end_checkpoint", "attrs": {"checkpoint": "c"}}
    answer = session.run(draw, ended, {"op": "fetch", "inputs": [["drawn"]]}, {"op": "free", "inputs": [["drawn"]]})
    return {"tensors": tensors, "grads": grads, "lists": lists, "drawn": answer.json()["values"]["drawn"]}


@pytest.mark.parametrize("change", CHANGES)
def test_rollback_undoes_what_a_failed_program_did(new_session: Callable[..., SessionClient], change: str) -> None:
    changed, twin = [new_session(seed=3) for _ in range(2)]
    for session in (changed, twin):
        assert session.run(*BEFORE).status_code == 200
    program = {"instructions": [*CHANGES[change], WRONG], "rollback": True}
    found = problem(changed.post("/programs", program), 404, "unknown-tensor")
    assert found["progress"]["rolled_back"] and found["progress"]["outputs"] == []
    assert found["progress"]["next"].startswith("The session is as it was before the program.")
    assert state_of(changed) == state_of(twin)
    for session in (changed, twin):  # and it goes on in the same way
        session.run({"op": "add_", "inputs": ["big", 1]}, {"op": "backward", "inputs": [["loss"]]})
        session.assert_usable()
    assert state_of(changed) == state_of(twin)
    assert changed.get().json()["used_bytes"] == pytest.approx(twin.get().json()["used_bytes"], abs=2**12)


def test_rollback_of_a_program_that_succeeds_changes_nothing(new_session: Callable[..., SessionClient]) -> None:
    one, other = [new_session(seed=3) for _ in range(2)]
    assert one.post("/programs", {"instructions": BEFORE, "rollback": True}).status_code == 200
    assert other.run(*BEFORE).status_code == 200
    assert state_of(one) == state_of(other)


def test_rollback_is_refused_where_it_is_not_possible(session: SessionClient) -> None:
    shared = {"op": "register_function", "attrs": {"definition": {**RELU, "name": "shared_relu"}, "scope": "server"}}
    program = {"instructions": [*MADE, shared], "rollback": True}
    found = problem(session.post("/programs", program), 422, "not-supported")
    assert found["instruction"] == 4
    session.run({"op": "start_profile"})
    assert (
        "profile"
        in problem(session.post("/programs", {**program, "instructions": MADE}), 422, "not-supported")["detail"]
    )
    assert session.get("/tensors").json()["items"] == []
    for value in (1, "true", None):
        problem(session.post("/programs", {"instructions": [], "rollback": value}), 400, "malformed-request")


def test_rollback_over_the_stream(session: SessionClient) -> None:
    program = json.dumps({"instructions": [*MADE, WRONG], "rollback": True})
    answer = Talk(session).say(save({}, {"program": program, "sequence": "1", "seen": "0"}))
    assert answer["progress"]["rolled_back"] and session.get("/tensors").json()["items"] == []
