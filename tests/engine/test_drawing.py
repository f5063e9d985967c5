"""Drawings of a graph: complete, the same each time, whatever tensors are called and however many there are.

Internals: drawings are compared as data and as text, which sessions return only of named tensors.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from telegrad_engine import visualization as drawing

from . import graph_contents
from .twins import OURS, leaf

TEXTS = {"dot": drawing.to_dot, "mermaid": drawing.to_mermaid, "json": lambda d: json.dumps(drawing.to_json(d))}


def two_outputs() -> tuple[Any, dict[str, Any]]:
    x = leaf(OURS, [[1.0, 2.0], [3.0, 4.0]])
    a, b = x.double().unbind()
    loss = (a * b).sum()
    return loss, {"x": x, "a": a, "b": b, "loss": loss}


def test_shapes_dtypes_and_outputs_are_drawn() -> None:
    loss, names = two_outputs()
    drawn = drawing.draw([loss], names)
    assert [v.grad_fn for v in drawn.nodes] == [
        "SumBackward0", "MulBackward0", "UnbindBackward0", "ToCopyBackward0", "AccumulateGrad",
    ]  # fmt: skip
    leaf_vertex = drawn.nodes[-1]
    assert (leaf_vertex.kind, leaf_vertex.tensors, leaf_vertex.shape, leaf_vertex.dtype) == (
        "leaf", ["x"], [2, 2], "float32",
    )  # fmt: skip
    by_id = {vertex.id: vertex for vertex in drawn.nodes}
    flows = [(by_id[e.source].grad_fn, e.output, e.shape, e.dtype) for e in drawn.edges]
    assert ("UnbindBackward0", 0, [2], "float64") in flows and ("UnbindBackward0", 1, [2], "float64") in flows
    assert ("AccumulateGrad", 0, [2, 2], "float32") in flows
    assert by_id[drawn.edges[1].source].tensors == ["a", "b"]
    assert '[label="1: float64 [2]"];' in drawing.to_dot(drawn)
    assert '-->|"1: float64 #91;2#93;"|' in drawing.to_mermaid(drawn)
    assert drawing.to_json(drawn)["edges"][0] == {
        "source": "n1", "target": "n0", "output": 0, "input": 0, "shape": [2], "dtype": "float64",
    }  # fmt: skip


@pytest.mark.parametrize("form", TEXTS)
def test_the_same_graph_gives_the_same_text(form: str) -> None:
    first, second = (
        {TEXTS[form](drawing.draw([loss], names)) for _ in range(3)} for loss, names in [two_outputs()] * 2
    )
    loss, names = two_outputs()
    assert first == second == {TEXTS[form](drawing.draw([loss], names))}


def test_names_cannot_break_out_of_a_drawing() -> None:
    nasty = 'a"]; evil -> b; //\\ \n &lt; \x00 <script> | } #quot; `%%`'
    x = leaf(OURS)
    drawn = drawing.draw([x * 2], {nasty: x})
    dot, mermaid = drawing.to_dot(drawn), drawing.to_mermaid(drawn)
    strings = re.compile(r'"(?:[^"\\]|\\.)*"')
    outside = strings.sub("", dot)
    assert "evil" not in outside and '"' not in outside and "\x00" not in dot and "&lt;" not in dot
    assert len(dot.splitlines()) == 3 + 2 + 1 + 1
    assert "evil" not in re.sub(r'"[^"]*"', "", mermaid)
    assert len(mermaid.splitlines()) == 1 + 2 + 1
    assert not set("<>|`%") & set(re.sub(r'<br/>|-->|\|"|"\|', "", mermaid))
    assert json.loads(json.dumps(drawing.to_json(drawn)))["nodes"][1]["tensors"] == [nasty]


@pytest.mark.full
def test_a_huge_graph_is_drawn_in_part_and_without_recursion() -> None:
    x = leaf(OURS, 1.0)
    y = x
    for _ in range(100_000):
        y = y + x
    drawn = drawing.draw([y], {"x": x})
    assert (len(drawn.nodes), drawn.omitted) == (drawing.MAX_VERTICES + 1, 90_000)
    assert drawn.nodes[0].id == "n0" and drawn.nodes[-1].tensors == ["x"]
    assert {edge.target for edge in drawn.edges} | {edge.source for edge in drawn.edges} <= {v.id for v in drawn.nodes}
    assert "90000 older operations are not drawn" in drawing.to_dot(drawn)
    assert "90000 older operations are not drawn" in drawing.to_mermaid(drawn)
    assert drawing.to_json(drawn)["omitted"] == 90_000
    whole = drawing.draw([y], {}, limit=None)
    assert (len(whole.nodes), len(whole.edges), whole.omitted) == (100_001, 200_000, 0)
    assert len(graph_contents.leaves(y.grad_fn)) == 1
    assert graph_contents.saved_bytes(y.grad_fn) == 0
