"""Lists: each has pages of one shape, whose cursors go on where the last page stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import SessionClient, problem
from .documented import document

SESSION = "/v1/sessions/{session}"
LISTS = ["/v1/ops", "/v1/devices", "/v1/sessions", *(f"{SESSION}/{name}" for name in (
    "tensors", "functions", "procedures", "pending", "compiled",
))]  # fmt: skip
COUNT = 3
"""How many of each a session has in these tests."""


@pytest.fixture
def filled(session: SessionClient) -> SessionClient:
    """A session with some of everything that is listed."""
    body = {"inputs": ["x"], "instructions": [{"op": "exp", "in": ["x"], "out": ["y"]}], "outputs": ["y"]}
    ops = ("exp", "neg", "tanh")
    session.tensor("a", [1.0], requires_grad=True)
    for i in range(COUNT):
        session.post("/functions", {"name": f"f{i}", "forward": body})
        program = {"in": ["x"], "instructions": [{"op": ops[i], "in": ["x"], "out": ["y"]}], "out": ["y"]}
        session.post("/procedures", {"name": f"p{i}", "program": program})
        for _ in range(3):  # a program that recurs is planned
            assert session.post(f"/procedures/p{i}/apply", {"inputs": ["a"]}).status_code == 200
        answer = session.run(
            {"op": "mul", "in": ["a", 2.0], "out": [f"y{i}"], "grad_mode": "no_grad"},
            {
                "op": "client_function",
                "in": [["a"], [f"y{i}"]],
                "attrs": {"function": "Double", "ctx": f"c{i}"},
            },
            {"op": "sum", "in": [f"y{i}"], "out": [f"loss{i}"]},
            {"op": "backward", "in": [[f"loss{i}"]]},
        )
        assert answer.json()["pending"], answer.text
    return session


def pages(client: httpx.Client, path: str, **query: Any) -> list[dict[str, Any]]:
    found = [client.get(path, params=query).json()]
    while (cursor := found[-1]["next_cursor"]) is not None:
        assert len(found) < 1000
        found.append(client.get(path, params={**query, "cursor": cursor}).json())
    return found


def test_these_are_all_lists() -> None:
    found = {
        path
        for path, operations in document()["paths"].items()
        if "cursor" in {parameter["name"] for parameter in operations.get("get", {}).get("parameters", ())}
    }
    assert set(LISTS) <= found
    schemas = document()["components"]["schemas"]
    for name, schema in schemas.items():
        if "items" in schema.get("properties", {}):
            assert {"items", "next_cursor"} <= set(schema["properties"]), name


@pytest.mark.parametrize("path", LISTS)
def test_pages_are_the_whole_list(filled: SessionClient, new_session: Callable[..., SessionClient], path: str) -> None:
    made = [new_session().id for _ in range(COUNT)]
    address = path.replace(SESSION, filled.path)
    whole = filled.client.get(address, params={"limit": 1000}).json()
    if path == "/v1/sessions":
        assert [item["id"] for item in whole["items"]][-COUNT:] == made, "in the order of their creation"
    assert set(whole) == {"items", "next_cursor"} and whole["next_cursor"] is None
    found = pages(filled.client, address, limit=100 if path == "/v1/ops" else 2)
    assert [item for page in found for item in page["items"]] == whole["items"]
    if path != "/v1/devices":
        assert len(found) > 1


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_belongs_to_its_list(session: SessionClient, path: str) -> None:
    address = path.replace(SESSION, session.path)
    other = "/v1/ops" if path != "/v1/ops" else "/v1/ops?kind=verb"
    foreign = session.client.get(other, params={"limit": 1}).json()["next_cursor"]
    for cursor in (
        foreign if path != "/v1/ops" else "WyJ0ZW5zb3JzIiwieCJd",
        "x",
        "",
        "a b",
        "WyJvcHMiLFtdXQ",
        "9" * 2000,
    ):
        problem(session.client.get(address, params={"cursor": cursor}), 422, "invalid-value")
    problem(session.client.get(address, params={"limit": 0}), 422, "invalid-argument")


def test_tensors_by_the_start_of_their_ids(session: SessionClient) -> None:
    for name in ("a1", "b1", "b2", "b3", "c1"):
        session.tensor(name, 1.0)
    found = pages(session.client, session.path + "/tensors", prefix="b", limit=2)
    assert [[item["id"] for item in page["items"]] for page in found] == [["b1", "b2"], ["b3"]]
    assert found[0]["items"][0]["data"] is None


def test_a_page_goes_on_after_an_item_that_was_deleted(session: SessionClient) -> None:
    for name in "abcd":
        session.tensor(name, 1.0)
    first = session.get("/tensors", params={"limit": 2}).json()
    session.request("DELETE", "/tensors/b")
    rest = session.get("/tensors", params={"cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in rest["items"]] == ["c", "d"]
