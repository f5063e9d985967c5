"""The folded graph, the details of its nodes, and a pass over it step by step."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from .conftest import SessionClient, problem

W, X = [[1.0, -2.0], [3.0, 0.5]], [0.5, 2.0]
STEPS: list[dict[str, Any]] = [
    {"op": "tensor", "out": ["w"], "attrs": {"data": W, "requires_grad": True}},
    {"op": "tensor", "out": ["x"], "attrs": {"data": X}},
    {"op": "matmul", "in": ["w", "x"], "out": ["h"]},
    {"op": "tanh", "in": ["h"], "out": ["t"]},
    {"op": "sum", "in": ["t"], "out": ["loss"]},
    {"op": "free", "in": [["t"]]},
]
LOSS = float(np.tanh(np.array(W) @ X).sum())


@pytest.fixture
def loss(session: SessionClient) -> SessionClient:
    """loss = sum(tanh(w @ x)), where nothing but the graph holds the tanh."""
    assert session.run(*STEPS).status_code == 200
    return session


def folded(session: SessionClient, **params: Any) -> Any:
    answer = session.get("/graph/folded", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def boxes_of(session: SessionClient, **params: Any) -> dict[str, Any]:
    return {box["label"]: box for box in folded(session, **params)["boxes"]}


def chain(session: SessionClient, ops: int) -> None:
    """A long chain of alternating ops from the leaf ``w``, whose end alone has an id."""
    session.tensor("w", [0.5, 0.25], requires_grad=True)
    last = "w"
    for start in range(0, ops, 2000):
        program: list[dict[str, Any]] = []
        for number in range(start, min(ops, start + 2000)):
            op, out = ("mul", "add")[number % 2], f"c{number}"
            program.append({"op": op, "in": [last, "w" if op == "mul" else 1.0], "out": [out]})
            last = out
        freed = [step["out"][0] for step in program[:-1]] + ([f"c{start - 1}"] if start else [])
        answer = session.run(*program, {"op": "free", "in": [freed]})
        assert answer.status_code == 200, answer.text


def test_a_small_graph_is_shown_whole(loss: SessionClient) -> None:
    graph = folded(loss)
    boxes = {box["label"]: box for box in graph["boxes"]}
    assert (graph["source"], graph["fold"], graph["nodes"], graph["omitted"]) == ("live", "none", 5, 0)
    assert list(boxes) == ["w", "x", "matmul", "tanh", "sum"]
    assert [boxes[label]["rank"] for label in ("w", "matmul", "tanh", "sum")] == [0, 1, 2, 3]
    assert [boxes[label]["kind"] for label in ("w", "sum", "x")] == ["leaf", "op", "tensor"]
    assert (boxes["w"]["id"], boxes["w"]["tensors"], boxes["w"]["shape"]) == ("t:w", ["w"], [2, 2])
    assert (boxes["tanh"]["bytes"], boxes["tanh"]["tensors"], boxes["sum"]["tensors"]) == (8, [], ["loss"])
    flows = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    ids = [boxes[label]["id"] for label in ("w", "matmul", "tanh", "sum")]
    assert flows == {*pairwise(ids), ("t:x", boxes["matmul"]["id"])}
    assert (boxes["sum"]["number"], boxes["tanh"]["number"]) == (pytest.approx(LOSS, rel=1e-5), None)
    again = folded(loss)
    assert again == graph  # ids and the revision stay while nothing runs
    loss.run({"op": "mul", "in": ["h", 2.0], "out": ["g"]})
    later = folded(loss)
    assert later["revision"] != graph["revision"]
    assert {box["id"] for box in graph["boxes"]} < {box["id"] for box in later["boxes"]}
    assert set(boxes_of(loss, root="h")) == {"w", "x", "matmul"}
    loss.run({"op": "backward", "in": [["loss"]]})
    assert not [edge for edge in folded(loss)["edges"] if edge["source"] == "t:x"]  # what knew of it was freed


def test_a_tensor_that_shares_an_array_with_the_graph_is_no_input(loss: SessionClient) -> None:
    loss.run(
        {"op": "detach", "in": ["h"], "out": ["shared"]},
        {"op": "mul", "in": ["h", "h"], "out": ["square"]},
    )
    graph = folded(loss)
    assert [edge["target"] for edge in graph["edges"] if edge["source"] == "t:shared"] == []
    assert {box["id"] for box in graph["boxes"]} >= {"t:shared", "t:x"}


def test_gradients_colour_the_leaves(loss: SessionClient) -> None:
    assert boxes_of(loss)["w"]["grad_norm"] is None
    loss.run({"op": "retain_grad", "in": ["h"]}, {"op": "backward", "in": [["loss"]]})
    slope = 1 - np.tanh(np.array(W) @ X) ** 2
    boxes = boxes_of(loss)
    assert boxes["w"]["grad_norm"] == pytest.approx(np.linalg.norm(np.outer(slope, X)), rel=1e-5)
    assert boxes["matmul"]["grad_norm"] == pytest.approx(np.linalg.norm(slope), rel=1e-5)


def test_a_long_graph_is_folded_and_groups_open(session: SessionClient) -> None:
    chain(session, 3000)
    graph = folded(session)
    boxes = {box["label"]: box for box in graph["boxes"]}
    assert (graph["fold"], graph["nodes"]) == ("op", 3001) and set(boxes) == {"mul", "add"}
    assert sum(box["count"] for box in boxes.values()) == 3001
    assert boxes["mul"]["expandable"] and boxes["mul"]["kind"] == "group"
    assert {(edge["source"], edge["target"]): edge["count"] for edge in graph["edges"]}[
        boxes["add"]["id"], boxes["mul"]["id"]
    ] == 1499
    opened = folded(session, expand=boxes["mul"]["id"])
    parts = [box for box in opened["boxes"] if box["label"].startswith("mul ")]
    assert [part["count"] for part in parts] == [500, 500, 500, 1]
    inner = folded(session, expand=[boxes["mul"]["id"], parts[1]["id"]])
    assert len(inner["boxes"]) == len(opened["boxes"]) - 1 + 500
    assert {box["id"] for box in opened["boxes"]} - {parts[1]["id"]} < {box["id"] for box in inner["boxes"]}
    few = folded(session, expand=[boxes["mul"]["id"], parts[1]["id"]], limit=20)
    assert len(few["boxes"]) == len(opened["boxes"])  # the part stays closed
    whole = folded(session, fold="none")
    assert [box["count"] for box in whole["boxes"]] == [500] * 6 + [1]
    for limit in (1, 2, 5):
        small = folded(session, fold="none", limit=limit)
        assert len(small["boxes"]) <= limit and sum(box["count"] for box in small["boxes"]) == 3001


@pytest.mark.full
def test_a_graph_of_100_000_nodes(session: SessionClient) -> None:
    chain(session, 100_000)
    graph = folded(session)
    assert graph["nodes"] == 100_001 and len(graph["boxes"]) == 2
    deep = folded(session, expand=["g:#mul", "g:#mul[7]"])
    assert 600 < len(deep["boxes"]) <= 1500
    session.assert_usable()


def test_names_are_text(session: SessionClient) -> None:
    name = "<img src=x onerror=alert(1)>"
    problem(session.post("/tensors", {"id": name, "data": [1.0]}), 422, "invalid-argument")
    problem(session.get("/graph/folded", params={"root": name}), 404, "unknown-tensor")
    assert folded(session, expand=name)["boxes"] == []


def test_the_details_of_an_operation(loss: SessionClient) -> None:
    boxes = boxes_of(loss)
    answer = loss.get(f"/graph/nodes/{boxes['tanh']['id']}")
    assert answer.status_code == 200, answer.text
    details = answer.json()
    assert (details["op"], details["grad_fn"], details["kind"]) == ("tanh", "TanhBackward0", "op")
    assert (details["inputs"], details["outputs"]) == ([boxes["matmul"]["id"]], [boxes["sum"]["id"]])
    assert details["saved"] == [{"name": "result", "shape": [2], "dtype": "float32", "bytes": 8, "freed": False}]
    assert details["doc"] and details["derivative"] == {"input": "grad * (1 - result ** 2)"}
    expected = np.tanh(np.array(W) @ X)
    assert details["value"]["preview"] == pytest.approx(expected.tolist(), rel=1e-5)
    assert details["value"]["norm"] == pytest.approx(np.linalg.norm(expected), rel=1e-5)
    assert sum(details["value"]["histogram"]["counts"]) == 2 and len(details["value"]["histogram"]["edges"]) == 33
    assert (details["grad"], details["grad_norm"], details["module"], details["line"]) == (None, None, None, None)
    loss.run({"op": "backward", "in": [["loss"]]})
    freed = loss.get(f"/graph/nodes/{boxes['tanh']['id']}").json()
    assert freed["saved"] == [{"name": "result", "shape": None, "dtype": None, "bytes": 0, "freed": True}]
    assert freed["value"] is None
    leaf = loss.get("/graph/nodes/t:w").json()
    assert leaf["grad"]["shape"] == [2, 2] and leaf["value"]["preview"] == W
    assert leaf["outputs"] == [boxes["matmul"]["id"]]
    for name in ("n999999999", "t:nothing", "g:#mul", "%3Cscript%3E"):
        problem(loss.get(f"/graph/nodes/{name}"), 404, "not-found")


def test_attributes_and_outputs_of_several(session: SessionClient) -> None:
    session.tensor("a", [[1.0, 5.0], [4.0, 2.0]], requires_grad=True)
    session.run(
        {"op": "max", "in": ["a"], "out": ["m", "i"], "attrs": {"dim": 1}},
        {"op": "cat", "in": [["m", "m"]], "out": ["c"], "attrs": {"dim": 0}},
    )
    boxes = boxes_of(session)
    largest = session.get(f"/graph/nodes/{boxes['max.dim']['id']}").json()
    assert largest["attrs"] == {"dim": 1} and largest["value"]["preview"] == [5.0, 4.0]
    joined = session.get(f"/graph/nodes/{boxes['cat']['id']}").json()
    assert joined["inputs"] == [boxes["max.dim"]["id"]] * 2
    assert [flow["norm"] for flow in traced(session, "c", gradient=[3.0, 0.0, 4.0, 0.0])["steps"][0]["targets"]] == [
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (["NaN", "Infinity", "-Infinity", 3.0], {"nan": 1, "inf": 2, "min": 3.0, "max": 3.0, "norm": "NaN"}),
        (["Infinity", 1.0], {"nan": 0, "inf": 1, "min": 1.0, "mean": 1.0, "norm": "Infinity"}),
        (["NaN"], {"nan": 1, "min": None, "max": None, "mean": None, "histogram": None}),
        ([], {"size": 0, "min": None, "norm": 0.0, "histogram": None, "preview": []}),
        ([1e300, -1e300], {"norm": math.sqrt(2) * 1e300, "mean": 0.0}),
        ([1e308, 1e308, 1e308], {"mean": 1e308}),
        ([-1.7e308, 1.7e308], {"histogram": None}),
        ([True, False], {"min": 0.0, "max": 1.0, "preview": [True, False]}),
        ([2**60, 1], {"preview": [2**60, 1], "max": 2.0**60}),
    ],
)
def test_statistics_of_special_values(session: SessionClient, data: Any, expected: dict[str, Any]) -> None:
    floats = not data or any(isinstance(value, (float, str)) for value in data)
    session.tensor("x", data, **({"dtype": "float64"} if floats else {}))
    found = session.get("/graph/nodes/t:x").json()["value"]
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(value) if type(value) is float else value for name, value in expected.items()
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "uint8"])
def test_statistics_of_short_dtypes(session: SessionClient, dtype: str) -> None:
    session.tensor("x", [1, 2, 3], dtype=dtype)
    found = session.get("/graph/nodes/t:x").json()["value"]
    assert (found["dtype"], found["min"], found["max"], found["preview"]) == (dtype, 1.0, 3.0, [1, 2, 3])


def test_statistics_of_a_large_tensor_are_those_of_a_sample(session: SessionClient) -> None:
    session.run(
        {"op": "arange", "out": ["row"], "attrs": {"end": 10_000}},
        {"op": "expand", "in": ["row"], "out": ["all"], "attrs": {"size": [10_000, 10_000]}},
    )
    found = session.get("/graph/nodes/t:all").json()["value"]
    assert (found["size"], found["sampled"], len(found["preview"])) == (10**8, True, 64)
    assert found["mean"] == pytest.approx(4999.5, rel=0.01) and found["max"] > 9900
    assert found["norm"] == pytest.approx(1e4 * np.linalg.norm(np.arange(1e4)) / 1e2, rel=0.01)
    assert sum(found["histogram"]["counts"]) <= 10**6
    flat = np.array(found["histogram"]["counts"])
    assert flat.max() < 1.1 * flat.min()


def traced(session: SessionClient, tensor: str, **more: Any) -> Any:
    answer = session.post("/graph/backward", {"tensor": tensor, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_pass_step_by_step_changes_nothing(loss: SessionClient) -> None:
    ids = {label: box["id"] for label, box in boxes_of(loss).items()}
    before = loss.get("/tensors/w").json()
    found = traced(loss, "loss")
    assert [step["node"] for step in found["steps"]] == [ids["sum"], ids["tanh"], ids["matmul"]]
    assert [[to["node"] for to in step["targets"]] for step in found["steps"]] == [
        [ids["tanh"]],
        [ids["matmul"]],
        [ids["w"]],
    ]
    slope = 1 - np.tanh(np.array(W) @ X) ** 2
    assert [step["grad"]["number"] for step in found["steps"]] == [1.0, None, None]
    gradient = found["steps"][2]["grad"]
    assert (gradient["min"], gradient["max"]) == (pytest.approx(slope.min(), 1e-4), pytest.approx(slope.max(), 1e-4))
    norm = pytest.approx(float(np.linalg.norm(np.outer(slope, X))), rel=1e-5)
    assert found["leaves"] == [{"id": "t:w", "box": None, "norm": norm, "number": None}] and found["truncated"] is False
    assert loss.get("/tensors/w").json() == before
    problem(loss.get("/tensors/w/grad"), 404, "not-found")
    assert traced(loss, "loss") == found
    assert traced(loss, "loss", limit=1)["truncated"] is True
    twice = traced(loss, "loss", gradient=2.0)
    assert twice["leaves"][0]["norm"] == pytest.approx(2 * found["leaves"][0]["norm"])
    assert traced(loss, "h", gradient=["NaN", 1.0])["steps"][0]["grad"]["nan"] == 1
    assert loss.run({"op": "backward", "in": [["loss"]]}).status_code == 200
    gone = problem(loss.post("/graph/backward", {"tensor": "loss"}), 409, "graph-freed")
    assert "backward through the graph a second time" in gone["detail"]


def test_the_boxes_of_a_pass_are_those_of_the_folded_graph(session: SessionClient) -> None:
    chain(session, 1200)
    for opened in ([], ["g:#mul"]):
        graph = folded(session, fold="op", expand=opened)
        boxes = {box["id"]: box for box in graph["boxes"]}
        edges = {(edge["source"], edge["target"]) for edge in graph["edges"]}
        found = traced(session, "c1199", gradient=[1.0, 1.0], fold="op", expand=opened)
        assert len(found["steps"]) == 1200
        for step in found["steps"]:
            assert boxes[step["box"]]["kind"] == ("op" if step["box"] == step["node"] else "group")
            for target in step["targets"]:
                assert target["box"] == step["box"] or (target["box"], step["box"]) in edges
        assert {step["box"] for step in found["steps"]} | {leaf["box"] for leaf in found["leaves"]} == {*boxes}
    assert {step["box"] for step in traced(session, "c1199", gradient=[1.0, 1.0])["steps"]} == {None}


def test_hooks_of_the_client_do_not_run_in_a_pass_step_by_step(session: SessionClient) -> None:
    session.run(
        {"op": "tensor", "out": ["x"], "attrs": {"data": [2.0], "requires_grad": True}},
        {"op": "mul", "in": ["x", 3.0], "out": ["y"]},
        {"op": "client_hook", "in": ["y"], "attrs": {"hook": "mine"}},
    )
    assert traced(session, "y")["leaves"] == [{"id": "t:x", "box": None, "norm": 3.0, "number": 3.0}]
    assert session.get("/pending").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        ({"tensor": "x"}, 422, "grad-required"),
        ({"tensor": "h"}, 422, "grad-required"),
        ({"tensor": "nothing"}, 404, "unknown-tensor"),
        ({"tensor": "h", "gradient": [1.0]}, 422, "shape-mismatch"),
        ({"tensor": "h", "gradient": ["x", 1.0]}, 422, "invalid-argument"),
        ({"tensor": "loss", "limit": 0}, 422, "invalid-argument"),
        ({"tensor": "loss", "fold": "colour"}, 422, "invalid-argument"),
        ({"tensor": "loss", "fold": "op", "expand": "g:#mul"}, 422, "invalid-argument"),
        ({"tensor": 7}, 422, "invalid-argument"),
        ({}, 422, "invalid-argument"),
    ],
)
def test_passes_that_cannot_be(loss: SessionClient, body: Any, status: int, slug: str) -> None:
    found = loss.post("/graph/backward", body)
    assert found.status_code == status, found.text
    problem(found, status, slug)


def test_requests_that_cannot_be(loss: SessionClient) -> None:
    problem(loss.client.get("/v1/sessions/vanished/graph/folded"), 404, "unknown-session")
    for query in ("limit=0", "limit=1501", "limit=x", "fold=colour", "source=elsewhere"):
        answer = loss.get(f"/graph/folded?{query}")
        assert answer.status_code == 422, (query, answer.text)
    problem(loss.get("/graph/folded?folds=op"), 422, "invalid-argument")
