"""The catalogue shows every op and verb, from their declarations."""

from __future__ import annotations

import json
import re

import httpx
import jsonschema
import pytest

from telegrad_engine.program import VERBS
from telegrad_engine.schema.op import CATALOGUE

from .conftest import SessionClient, problem


def test_every_op_and_verb_is_there(client: httpx.Client) -> None:
    found = {entry["key"]: entry for entry in client.get("/v1/ops", params={"limit": 1000}).json()["items"]}
    callable_ops = [op for op in CATALOGUE if not op.private]
    assert set(found) == {op.key for op in callable_ops} | set(VERBS)
    for op in callable_ops:
        entry = found[op.key]
        assert (entry["name"], entry["kind"], entry["signature"]) == (op.name, "op", op.signature)
        assert entry["doc"]
        assert [p["name"] for p in entry["params"]] == [p.name for p in op.params]
        assert entry["differentiable"] is op.differentiable
    assert all(found[name]["kind"] == "verb" and found[name]["doc"] for name in VERBS)


def test_one(client: httpx.Client) -> None:
    (mul,) = client.get("/v1/ops/mul").json()["overloads"]
    assert [(p["source"], p["required"]) for p in mul["params"]] == [("input", True), ("input", True)]
    assert mul["inplace"] and mul["differentiable"] and not mul["random"]
    found = client.get("/v1/ops/max").json()
    assert (found["name"], found["kind"]) == ("max", "op")
    assert [e["key"] for e in found["overloads"]] == ["max", "max.dim", "max.other"]
    (dim,) = client.get("/v1/ops/max.dim").json()["overloads"]
    assert dim["outputs"] == ["values", "indices"]
    assert {p["name"]: p["default"] for p in dim["params"]}["keepdim"] is False
    assert {p["name"]: p["json_schema"] for p in dim["params"]}["dim"] == {"type": "integer"}
    assert client.get("/v1/ops/multiply").json() == {"name": "mul", "kind": "op", "overloads": [mul]}
    assert client.get("/v1/ops/backward").json()["kind"] == "verb"
    found = problem(client.get("/v1/ops/matmull"), 404, "unknown-op")
    assert "did you mean matmul" in found["detail"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"prefix": "log_soft"}, {"log_softmax"}),
        ({"q": "multiply", "kind": "op"}, {"mul"}),
        ({"prefix": "zero_", "kind": "verb"}, {"zero_grad"}),
        ({"prefix": "no such op"}, set()),
    ],
)
def test_searching(client: httpx.Client, query: dict[str, str], expected: set[str]) -> None:
    found = {entry["key"] for entry in client.get("/v1/ops", params=query).json()["items"]}
    assert expected <= found and len(found) <= len(expected) + 3


def test_devices(client: httpx.Client) -> None:
    cpu, *_ = client.get("/v1/devices").json()["items"]
    assert (cpu["name"], cpu["backend"]) == ("cpu", "numpy")


def test_parameters_are_where_a_request_has_them(client: httpx.Client) -> None:
    (softmax,) = client.get("/v1/ops/softmax").json()["overloads"]
    assert [param["name"] for param in softmax["inputs"]] == ["input"]
    assert {param["name"] for param in softmax["attrs"]} >= {"dim"}
    for entry in client.get("/v1/ops", params={"limit": 1000}).json()["items"]:
        both = sorted([*entry["inputs"], *entry["attrs"]], key=lambda param: param["position"])
        assert both == entry["params"], entry["key"]


def test_parameters_and_results_are_described(client: httpx.Client) -> None:
    (softmax,) = client.get("/v1/ops/softmax").json()["overloads"]
    assert {param["name"]: param["description"] for param in softmax["attrs"]}["dim"].startswith("The dimension")
    assert softmax["returns"] == "A tensor of the shape of ``input``."
    for entry in client.get("/v1/ops", params={"limit": 1000}).json()["items"]:
        assert all(param["description"] for param in entry["params"]), entry["key"]
    for optimizer in client.get("/v1/optimizers").json()["items"]:
        assert all(setting["description"] for setting in optimizer["settings"]), optimizer["name"]


def test_optimizers_can_be_used_as_they_are_described(session: SessionClient) -> None:
    listed = session.client.get("/v1/optimizers").json()["items"]
    assert [each["name"] for each in listed] == sorted(each["name"] for each in listed)
    for each in listed:
        session.tensor("w", [[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        settings = {setting["name"]: setting["default"] for setting in each["settings"]}
        for setting in each["settings"]:
            jsonschema.validate(setting["default"], setting["json_schema"])
        names, makers = [], []
        for state in each["states"]:
            if state["only_with"] is not None and not settings[state["only_with"]]:
                continue
            shape = {"parameter": [2, 2], "scalar": [], "row": [2, 1], "column": [1, 2]}[state["shape"]]
            value = settings.get(state["initial"], state["initial"])
            attrs = {"size": shape, "fill_value": float(value)}
            makers.append({"op": "full", "outputs": [state["name"]], "attrs": attrs})
            names.append(state["name"])
        answer = session.run(
            *makers,
            {"op": "ones_like", "inputs": ["w"], "outputs": ["g"]},
            {"op": "set_grad", "inputs": ["w", "g"]},
            {
                "op": "optim_step",
                "inputs": [["w"], [[name] for name in names]],
                "attrs": {"algorithm": each["name"], "settings": settings},
            },
            {"op": "fetch", "inputs": [["w"]]},
            {"op": "free", "inputs": [["w", "g", *names]]},
        )
        assert answer.status_code == 200, (each["name"], answer.text)
        assert answer.json()["values"]["w"]["data"] != [[1.0, 2.0], [3.0, 4.0]]


def test_the_document_has_every_algorithm_and_setting(client: httpx.Client) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    listed = client.get("/v1/optimizers").json()["items"]
    assert {*schemas["OptimStepAttrs"]["properties"]["algorithm"]["enum"]} == {each["name"] for each in listed}
    described = schemas["OptimStepAttrs"]["properties"]["settings"]["description"]
    for each in listed:
        (line,) = re.findall(rf"^\* {each['name']}: (.*)$", described, re.MULTILINE)
        for setting in each["settings"]:
            assert f"{setting['name']} {json.dumps(setting['default'])}" in line
        assert all(state["name"] in line.partition("States: ")[2] for state in each["states"])
