"""Sessions as files, and forks of sessions, over REST."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .conftest import SessionClient, served_with

SAFETENSORS = "application/vnd.safetensors"
FORWARD = [
    {"op": "tensor", "out": ["w"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "rand_like", "in": ["w"], "out": ["r"]},
    {"op": "mul", "in": ["w", "w"], "out": ["y"]},
    {"op": "sum", "in": ["y"], "out": ["loss"]},
]
BACKWARD = [
    {"op": "backward", "in": [["loss"]]},
    {"op": "grad_of", "in": ["w"], "out": ["g"]},
    {"op": "rand_like", "in": ["w"], "out": ["s"]},
    {"op": "fetch", "in": [["g", "s"]]},
]


def program(client: httpx.Client, session: str, instructions: list[dict[str, Any]]) -> Any:
    answer = client.post(f"/v1/sessions/{session}/programs", json={"instructions": instructions})
    assert answer.status_code == 200, answer.text
    return answer.json()["values"]


def import_file(client: httpx.Client, content: bytes, **query: Any) -> httpx.Response:
    return client.post("/v1/sessions/import", content=content, params=query, headers={"content-type": SAFETENSORS})


@pytest.fixture
def session(client: httpx.Client) -> SessionClient:
    made = SessionClient(client, seed=3, name="original", ttl_s=1234)
    program(client, made.id, FORWARD)
    return made


def test_a_fork_continues_on_its_own(client: httpx.Client, session: SessionClient) -> None:
    answer = session.request("POST", "/fork")
    assert answer.status_code == 201
    fork = answer.json()
    assert answer.headers["location"] == f"/v1/sessions/{fork['id']}"
    assert (fork["name"], fork["ttl_s"], fork["tensors"]) == ("original", 1234, 4)
    values = program(client, fork["id"], BACKWARD)
    assert values["g"]["data"] == [2, 4]
    assert session.request("GET", "/tensors/w/grad").status_code == 404
    assert program(client, session.id, BACKWARD) == values, "the graph is there, and the next random numbers are equal"
    named = session.request("POST", "/fork", json={"name": "another", "ttl_s": 60}).json()
    assert (named["name"], named["ttl_s"]) == ("another", 60)


def test_an_exported_session_is_imported_elsewhere(client: httpx.Client, session: SessionClient) -> None:
    exported = session.request("GET", "/snapshot")
    assert exported.status_code == 200
    assert exported.headers["content-type"] == SAFETENSORS
    expected = program(client, session.id, BACKWARD)
    with served_with() as elsewhere:
        answer = import_file(elsewhere, exported.content, name="moved")
        assert answer.status_code == 201
        moved = answer.json()
        assert answer.headers["location"] == f"/v1/sessions/{moved['id']}"
        assert moved["name"] == "moved"
        assert elsewhere.get(f"/v1/sessions/{moved['id']}/snapshot").content == exported.content
        assert program(elsewhere, moved["id"], BACKWARD) == expected


def test_what_is_no_snapshot_is_refused(client: httpx.Client, session: SessionClient) -> None:
    content = session.request("GET", "/snapshot").content
    for bad in (b"", content[:-1], content[:60], content.replace(b'"mul"', b'"mol"'), b"PK" * 100):
        refused = import_file(client, bad)
        assert refused.status_code == 400, refused.text
    assert client.post("/v1/sessions/import", json={}).status_code == 415
    assert client.post("/v1/sessions/nowhere/fork").status_code == 404
    assert client.get("/v1/sessions/nowhere/snapshot").status_code == 404
    assert session.request("POST", "/fork", json={"ttl_s": 10**9}).status_code == 422


def test_a_session_that_waits_for_its_client_is_refused(client: httpx.Client, session: SessionClient) -> None:
    hook = [{"op": "client_hook", "in": ["y"], "attrs": {"hook": "mine"}}]
    program(client, session.id, [*hook, {"op": "backward", "in": [["loss"]]}])
    for answer in (session.request("POST", "/fork"), session.request("GET", "/snapshot")):
        assert answer.status_code == 422
        assert "resume or cancel" in answer.json()["detail"]


def test_forks_and_imports_count_as_sessions_and_their_tensors_as_memory(client: httpx.Client) -> None:
    large = SessionClient(client)
    program(client, large.id, [{"op": "zeros", "out": ["x"], "attrs": {"size": [2**19]}}])
    too_large = large.request("GET", "/snapshot").content
    with served_with(max_sessions=2, max_session_bytes=2**20) as small:
        assert import_file(small, too_large).status_code == 413
        session = SessionClient(small)
        program(small, session.id, FORWARD)
        content = session.request("GET", "/snapshot").content
        assert session.request("POST", "/fork").status_code == 201
        assert session.request("POST", "/fork").status_code == 503
        assert import_file(small, content).status_code == 503
