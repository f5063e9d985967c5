"""Sessions: create, list, look, change, end, expire."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from .conftest import Sent, SessionClient, problem, served_with
from .test_health import slow_program
from .test_pending import CUBE


def test_a_session_says_what_it_holds(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]])
    status = session.get().json()
    assert (status["tensors"], status["used_bytes"], status["device"], status["dtype"]) == (
        1,
        16,
        "cpu",
        "float32",
    )
    assert status["programs"] >= 1 and status["instructions"] >= 1
    used, expires = (datetime.fromisoformat(status[name]) for name in ("last_used_at", "expires_at"))
    assert (expires - used).total_seconds() == pytest.approx(status["ttl_s"])


def listed(session: SessionClient) -> dict[str, Any]:
    """The session's item in the list of all."""
    items = session.client.get("/v1/sessions", params={"limit": 1000}).json()["items"]
    found: dict[str, Any] = next(item for item in items if item["id"] == session.id)
    return found


def test_the_list_says_what_each_session_does(session: SessionClient) -> None:
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]])
    before = listed(session)
    assert (before["state"], before["used_bytes"]) == ("idle", 16) and before["programs"] >= 1
    session.assert_usable()
    assert listed(session)["programs"] > before["programs"]
    assert listed(session)["worker"] == session.get().json()["worker"]
    sent = Sent(session, *slow_program(60, "y"))
    assert listed(session)["state"] == "running"
    session.client.delete(session.path)
    problem(sent.answer(), 409, "cancelled")


def test_a_session_that_waits_for_its_client_says_so(session: SessionClient) -> None:
    assert session.run(*CUBE).status_code == 200
    assert session.post("/backward", {"tensors": ["loss"]}).status_code == 202
    assert listed(session)["state"] == "waiting"


def test_options(new_session: Callable[..., SessionClient]) -> None:
    a, b = (new_session(seed=7, dtype="float64", ttl_s=60, name="twin") for _ in range(2))
    assert a.id != b.id and len(a.id) >= 20
    assert a.get().json()["ttl_s"] == 60
    for each in (a, b):
        each.post("/tensors", {"id": "r", "factory": "randn", "shape": [3]})
    assert a.data("r") == b.data("r")
    assert a.get("/tensors/r").json()["dtype"] == "float64"


def test_an_empty_request_creates_one_too(client: httpx.Client) -> None:
    for body in (b"", b"null"):  # which some generated clients send in place of nothing
        created = client.post(
            "/v1/sessions", content=body, headers={"content-type": "application/json"} if body else {}
        )
        assert created.status_code == 201
        client.delete(created.headers["location"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"durable": True}, "--data-dir"),
        pytest.param(
            {"device": "cuda:0"},
            "available: cpu",
            marks=pytest.mark.one_process("a cluster may get a worker with the device, so its answer is a 503"),
        ),
        ({"dtype": "int64"}, "only floating-point types"),
        ({"dtype": "float"}, None),
        ({"dtype": "float33"}, "unknown dtype"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": 1e9}, "at most"),
        ({"ttl_s": "NaN"}, "ttl_s"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"colour": "red"}, "colour"),
        ({"name": "n" * 201}, "name"),
        ([], "body"),
    ],
)
def test_wishes_that_cannot_be(client: httpx.Client, body: object, words: str | None) -> None:
    answer = client.post("/v1/sessions", json=body)
    if words is None:
        assert answer.status_code == 201
        client.delete(answer.headers["location"])
        return
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_changing(session: SessionClient) -> None:
    changed = session.request("PATCH", json={"name": "new", "ttl_s": 5})
    assert (changed.json()["name"], changed.json()["ttl_s"]) == ("new", 5)
    assert session.request("PATCH", json={"name": None}).json()["ttl_s"] == 5
    problem(session.request("PATCH", json={"ttl_s": -1}), 422, "invalid-argument")
    problem(session.request("PATCH", json={"ttl_s": 1e12}), 422, "invalid-value")


def test_ending(client: httpx.Client, new_session: Callable[..., SessionClient]) -> None:
    session = new_session()
    assert session.request("DELETE").status_code == 204
    for method in ("GET", "DELETE"):
        problem(session.request(method), 404, "unknown-session")
    problem(session.run(), 404, "unknown-session")
    problem(client.get("/v1/sessions/nope/tensors/x"), 404, "unknown-session")


def test_sessions_do_not_share_ids(new_session: Callable[..., SessionClient]) -> None:
    a, b = new_session(), new_session()
    a.tensor("x", 1.0)
    b.tensor("x", 2.0)
    assert (a.data("x"), b.data("x")) == (1.0, 2.0)


def test_a_full_server_is_busy_until_idle_sessions_end() -> None:
    with served_with(max_sessions=2) as client:
        SessionClient(client)
        brief = SessionClient(client)
        answer = client.post("/v1/sessions")
        problem(answer, 503, "server-busy")
        assert int(answer.headers["retry-after"]) >= 1
        brief.request("PATCH", json={"ttl_s": 0.05})
        time.sleep(0.1)
        assert client.post("/v1/sessions").status_code == 201
        problem(brief.get(), 404, "unknown-session")


def test_a_session_with_heartbeats_ends_without_one(client: httpx.Client) -> None:
    with served_with(heartbeat_ttl_s=0.5) as client:
        created = [client.post("/v1/sessions", json={"heartbeats": wanted}).json() for wanted in (True, False)]
        assert [each["heartbeat_ttl_s"] for each in created] == [0.5, None]
        silent, plain = SessionClient(client, heartbeats=True), SessionClient(client)
        deadline = time.monotonic() + 30
        while silent.id in [item["id"] for item in client.get("/v1/sessions").json()["items"]]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        problem(silent.request("PUT", "/heartbeat"), 404, "unknown-session")
        assert plain.get().status_code == 200


def test_a_heartbeat_moves_the_end_and_is_not_a_use(new_session: Callable[..., SessionClient]) -> None:
    session = new_session(heartbeats=True, ttl_s=61)

    def listed() -> dict[str, Any]:
        """The session in the list, which does not use it."""
        (found,) = [each for each in session.client.get("/v1/sessions").json()["items"] if each["id"] == session.id]
        return found  # type: ignore[no-any-return]

    before = listed()
    used, expires = (datetime.fromisoformat(before[name]) for name in ("last_used_at", "expires_at"))
    assert (expires - used).total_seconds() == pytest.approx(60)
    assert session.request("PUT", "/heartbeat").status_code == 204
    after = listed()
    assert after["expires_at"] > before["expires_at"]
    assert after["last_used_at"] == before["last_used_at"]
    problem(session.client.post("/v1/sessions", json={"heartbeats": "yes"}), 422, "invalid-argument")
