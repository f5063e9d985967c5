"""``GET …/events``: what happens in a session, as it happens, to those who listen.

Internals: a listener is made slow without a connection, whose buffers are large.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from telegrad_service.observability.feed import MAX_EVENTS, Event, Feed
from telegrad_service.resources.inspection import listen

from ..servers import STOP_S
from .conftest import SessionClient, problem, served, served_with
from .streams import BAD, Talk, fetch

UP = {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0]}}


class Listening:
    """The events of a session, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        assert next(self._lines).startswith(": ")

    def comment(self) -> str:
        """The next line that is not empty."""
        return next(line for line in self._lines if line)

    def event(self) -> tuple[str, Any]:
        name = next(line for line in self._lines if line and not line.startswith(":"))
        data = next(self._lines)
        assert name.startswith("event: ") and data.startswith("data: ") and next(self._lines) == ""
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    def has_ended(self) -> bool:
        return not any(self._lines)


@contextmanager
def listening(session: SessionClient) -> Iterator[Listening]:
    with session.client.stream("GET", f"{session.path}/events") as answer:
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
        yield Listening(answer)


def test_programs_and_the_end(client: httpx.Client) -> None:
    session = SessionClient(client)
    with listening(session) as events, listening(session) as others:
        answer = session.run(UP, fetch("x"), headers={"Telegrad-Sequence": "1", "X-Request-ID": "mine"})
        assert answer.status_code == 200
        name, data = events.event()
        assert name == "program" and data["seconds"] > 0 and data["used_bytes"] >= 4
        shown = {key: data[key] for key in ("sequence", "instructions", "error", "request_id")}
        assert shown == {"sequence": 1, "instructions": 2, "error": None, "request_id": "mine"}
        session.get("")  # reads only
        assert session.run(BAD).status_code == 404
        _, data = events.event()
        assert (data["sequence"], data["instructions"], data["error"]) == (None, 1, "unknown-tensor")
        talk = Talk(session, "?sender=me")
        for number in (1, 2, 3):
            talk.ask(number, {"op": "mul_", "in": ["x", 2]}, fetch("x"))
            _, data = events.event()
            assert (data["sequence"], data["instructions"], data["error"]) == (number, 2, None)
            assert data["request_id"] == f"{talk.greeting['request_id']}-{number}"
        talk.ask(4, BAD)
        assert events.event()[1]["error"] == "unknown-tensor"
        client.delete(session.path)
        assert events.event() == ("ended", {"reason": "the session has ended"})
        assert events.has_ended()
        assert [others.event()[0] for _ in range(7)] == ["program"] * 6 + ["ended"]


def test_only_an_existing_session_in_this_media_type(client: httpx.Client, session: SessionClient) -> None:
    problem(client.get("/v1/sessions/vanished/events"), 404, "unknown-session")
    problem(session.get("/events", headers={"accept": "application/json"}), 406, "not-acceptable")
    answer = session.request("HEAD", "/events")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    problem(session.request("POST", "/events"), 405, "method-not-allowed")


def test_listeners_are_limited(session: SessionClient) -> None:
    url, listeners = session.client.base_url, []
    for _ in range(16):
        listeners.append(socket.create_connection((url.host, url.port), STOP_S))
        listeners[-1].sendall(f"GET {session.path}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert listeners[-1].recv(1024)
    problem(session.get("/events"), 422, "limit-exceeded")
    for each in listeners:
        each.close()


@pytest.mark.full
def test_comments_while_nothing_happens_and_a_warning() -> None:
    # Sessions that expire are looked for as often as heartbeats.
    with served_with(stream_ping_s=0.05, heartbeat_ttl_s=0.2) as client:
        with listening(SessionClient(client)) as events:
            assert events.comment() == ": still here"
        with listening(SessionClient(client, ttl_s=30)) as events:
            name, data = events.event()
            expires_at = client.get("/v1/sessions").json()["items"][-1]["expires_at"]
            assert name == "expiring" and data["expires_at"][:19] == expires_at[:19]
        with listening(SessionClient(client, ttl_s=2)) as events:
            names = [events.event()[0]]
            while names[-1] != "ended":
                names.append(events.event()[0])
        assert set(names) <= {"expiring", "ended"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
@pytest.mark.one_process("a gateway that stops is no event of a session, which goes on at another gateway")
def test_a_server_that_stops_says_so() -> None:
    with served() as (client, process):
        session = SessionClient(client)
        with listening(session) as events:
            process.send_signal(signal.SIGTERM)
            name, data = events.event()
            assert name == "closing" and data["reason"]
            assert events.has_ended()
        assert process.wait(STOP_S) == 0


def test_a_slow_listener_is_told_how_much_it_lost() -> None:
    async def hear() -> str:
        feed = Feed()
        listener = feed.listen()
        sent = listen(feed, listener, STOP_S)
        assert (await anext(sent)).startswith(b": ")
        for number in range(MAX_EVENTS + 7):
            feed.publish([Event("program", {"sequence": number})])
        found = (await anext(sent)).decode()
        feed.publish([Event("program", {"sequence": 0})])
        feed.end("ended", "of the test")
        found += b"".join([each async for each in sent]).decode()
        assert not feed.listeners
        return found

    heard = asyncio.run(hear()).split("\n\n")
    assert len(heard) == MAX_EVENTS + 4 and heard[-1] == ""
    assert heard[-4:-1] == [
        'event: lost\ndata: {"count":7}',
        'event: program\ndata: {"sequence":0}',
        'event: ended\ndata: {"reason":"of the test"}',
    ]
