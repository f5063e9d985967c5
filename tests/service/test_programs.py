"""Programs: what runs, what stands after an error, and in which media type the answer comes.

Internals: answers are read by the codec that the SDK uses.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from telegrad_engine.program import wire

from .conftest import SessionClient, problem

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
