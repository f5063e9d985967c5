"""The catalogue shows every op and verb, from their declarations."""

from __future__ import annotations

import httpx
import pytest

from telegrad_engine.program import VERBS
from telegrad_engine.schema.op import CATALOGUE

from .conftest import problem


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
