"""The graph as JSON, DOT, Mermaid and SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from .conftest import SessionClient, problem


@pytest.fixture(autouse=True)
def loss(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 2.0]], requires_grad=True)
    session.tensor("c", [[3.0, 4.0]])
    session.post("/ops/mul", {"inputs": ["x", "c"], "outputs": ["y"]})
    session.post("/ops/max", {"inputs": ["y"], "attrs": {"dim": 1}, "outputs": ["m", "i"]})
    session.post("/ops/sum", {"inputs": ["m"], "outputs": ["loss"]})


def test_json(session: SessionClient) -> None:
    graph = session.get("/graph", params={"root": "loss"}).json()
    nodes = {node["grad_fn"]: node for node in graph["nodes"]}
    assert [node["op"] for node in graph["nodes"]] == ["sum", "max.dim", "mul", None]
    assert nodes["MulBackward0"]["tensors"] == ["y"] and nodes["MulBackward0"]["shape"] == [1, 2]
    leaf = nodes["AccumulateGrad"]
    assert (leaf["kind"], leaf["tensors"], leaf["dtype"]) == ("leaf", ["x"], "float32")
    ids = [node["id"] for node in graph["nodes"]]
    flow = {(edge["source"], edge["target"]) for edge in graph["edges"]}
    assert flow == {(ids[3], ids[2]), (ids[2], ids[1]), (ids[1], ids[0])}
    assert session.get("/graph").json() == graph


def test_several_roots_share_their_history(session: SessionClient) -> None:
    session.post("/ops/neg", {"inputs": ["y"], "outputs": ["n"]})
    graph = session.get("/graph", params={"root": ["loss", "n"]}).json()
    assert len([node for node in graph["nodes"] if node["op"] == "mul"]) == 1
    assert len(graph["nodes"]) == 5
    alone = session.get("/graph", params={"root": ["c", "x"]}).json()
    assert [(node["kind"], node["tensors"]) for node in alone["nodes"]] == [
        ("tensor", ["c"]),
        ("leaf", ["x"]),
    ]


def test_texts(session: SessionClient) -> None:
    dot = session.get("/graph", params={"root": "loss", "format": "dot"})
    assert dot.headers["content-type"].startswith("text/vnd.graphviz")
    assert dot.text.startswith("digraph") and dot.text.count("->") == 3
    assert 'label="y\\nmul\\nfloat32 [1, 2]"' in dot.text
    mermaid = session.get("/graph", params={"root": "loss", "format": "mermaid"})
    assert mermaid.text.startswith("flowchart TB\n") and mermaid.text.count("-->") == 3
    assert session.get("/graph", headers={"accept": "text/vnd.graphviz"}).text.startswith("digraph")


def test_a_picture(session: SessionClient) -> None:
    found = session.get("/graph", params={"root": "loss", "format": "svg"})
    assert found.headers["content-type"].startswith("image/svg+xml")
    picture = ElementTree.fromstring(found.text)
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    words = {text for text in picture.itertext() if text}
    assert {"loss", "sum", "m", "max.dim", "y", "mul", "x"} <= words
    assert session.get("/graph", headers={"accept": "image/svg+xml"}).text == session.get("/graph?format=svg").text


def test_a_picture_runs_nothing_in_a_browser(session: SessionClient) -> None:
    name = '<script>alert("&1")</script>]]>'
    session.run(
        {
            "op": "client_function",
            "inputs": [["x"], ["y"]],
            "outputs": ["z"],
            "attrs": {"function": name, "ctx": "c"},
        }
    )
    found = session.get("/graph?format=svg")
    picture = ElementTree.fromstring(found.text)
    assert {element.tag.partition("}")[2] for element in picture.iter()} == {
        "svg",
        "g",
        "title",
        "path",
        "rect",
        "text",
    }
    assert any(name in text for text in picture.itertext())
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert found.headers["x-content-type-options"] == "nosniff"


def test_after_the_graph_was_freed(session: SessionClient) -> None:
    before = session.get("/graph").json()
    session.post("/backward", {"tensors": ["loss"]})
    assert session.get("/graph").json() == before


def test_bad_input(session: SessionClient) -> None:
    problem(session.get("/graph", params={"root": "nope"}), 404, "unknown-tensor")
    problem(session.get("/graph", params={"format": "png"}), 422, "invalid-argument")
    problem(session.get("/graph", headers={"accept": "image/png"}), 406, "not-acceptable")
