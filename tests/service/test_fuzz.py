"""Nothing that a client can send is a fault of the server's own, and none of it harms the session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegrad_engine.program import VERBS
from telegrad_engine.schema.op import CATALOGUE

from .conftest import SessionClient

pytestmark = pytest.mark.full

FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
ITEMS = {**CATALOGUE.ops, **VERBS}
IDS = st.sampled_from(["x", "y", "i", "b", "nope", "NaN", "9", ""])
NUMBERS = st.one_of(
    st.integers(-4, 4),
    st.sampled_from([2**31, 2**63, -(2**63), 2**70, 1e308]),
    st.floats(allow_nan=False, width=32),
)
LITERALS = st.one_of(st.none(), st.booleans(), NUMBERS)
JUNK = st.recursive(
    st.one_of(LITERALS, st.text(max_size=5), IDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)
INPUTS = st.one_of(IDS, LITERALS, st.lists(st.one_of(IDS, LITERALS, st.lists(IDS, max_size=2)), max_size=3))
VALUES = st.one_of(
    JUNK,
    st.integers(-3, 3),
    st.lists(st.integers(-2, 4), max_size=3),
    st.sampled_from(["float32", "int64", "mean", "sum", "floor", "cpu"]),
)


@st.composite
def instructions(draw: st.DrawFn) -> dict[str, Any]:
    """Something near an instruction: a known op with inputs and attributes that may or may not fit."""
    name = draw(st.sampled_from(sorted(ITEMS)))
    item = ITEMS[name]
    if draw(st.booleans()):
        name = draw(st.sampled_from([name + "_", name.split(".")[0], name]))
    attrs = {p.name: draw(VALUES) for p in item.attr_params if p.default is not None or draw(st.booleans())}
    # One number of elements is drawn with the rest; a large one is refused, which other tests show.
    size = draw(st.integers(0, len(item.tensor_params) + 1))
    found: dict[str, Any] = {
        "op": name,
        "in": draw(st.lists(INPUTS, min_size=size, max_size=size)),
        "attrs": attrs,
    }
    found["out"] = draw(st.lists(st.sampled_from(["p", "q", "x"]), max_size=2))
    if draw(st.integers(0, 4)) == 0:
        found[draw(st.sampled_from(["op", "in", "out", "attrs", "grad_mode", "more"]))] = draw(JUNK)
    return found


@pytest.fixture(autouse=True)
def tensors(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    session.tensor("i", [0, 1])
    session.tensor("b", [True, False])
    session.post("/ops/mul", {"inputs": ["x", 2], "outputs": ["y"]})


def check(session: SessionClient, path: str, body: Any, params: dict[str, Any] | None = None) -> None:
    answer = session.request(
        "POST", path, content=json.dumps(body), headers={"content-type": "application/json"}, params=params
    )
    assert answer.status_code < 500, (body, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", (body, answer.text)
    session.assert_usable()
    status = session.get()
    assert status.status_code == 200 and status.json()["used_bytes"] >= 0


@FUZZ
@given(st.lists(instructions(), max_size=6))
def test_programs(session: SessionClient, program: list[dict[str, Any]]) -> None:
    check(session, "/programs", {"instructions": [*program, {"op": "fetch", "in": [["x"]]}]})


@FUZZ
@given(instructions(), JUNK)
def test_ops(session: SessionClient, instruction: dict[str, Any], junk: Any) -> None:
    op = instruction["op"]
    path = "/ops/" + (op if isinstance(op, str) and op.isidentifier() else "add")
    body = {"inputs": instruction["in"], "attrs": instruction["attrs"], "outputs": instruction["out"] or None}
    check(session, path, body, {"data": True})
    check(session, path, junk)


@FUZZ
@given(st.sampled_from(["/tensors", "/backward", "/grad", "/programs"]), JUNK)
def test_junk(session: SessionClient, path: str, body: Any) -> None:
    check(session, path, body)


@FUZZ
@given(st.dictionaries(st.sampled_from(["id", "data", "factory", "shape", "attrs", "dtype", "requires_grad"]), VALUES))
def test_tensors(session: SessionClient, body: dict[str, Any]) -> None:
    check(session, "/tensors", body)


@FUZZ
@given(st.binary(max_size=200), st.sampled_from(["application/x-npy", "application/vnd.safetensors"]))
def test_binary(session: SessionClient, body: bytes, media_type: str) -> None:
    for path in ("/tensors", "/programs"):
        answer = session.request("POST", path, content=body, headers={"content-type": media_type})
        assert 400 <= answer.status_code < 500, answer.text
    session.assert_usable()


@FUZZ
@given(st.text(max_size=12), st.text(max_size=12))
def test_addresses(session: SessionClient, a: str, b: str) -> None:
    from urllib.parse import quote

    for path in (
        f"/tensors/{quote(a, safe='')}",
        f"/tensors/{quote(a, safe='')}/grad",
        f"/{quote(a)}/{quote(b)}",
    ):
        assert session.get(path).status_code in (200, 404, 405), path
    assert session.get("/graph", params={"root": a, "format": b}).status_code < 500
    assert session.get("/tensors", params={"cursor": a, "limit": b}).status_code < 500
