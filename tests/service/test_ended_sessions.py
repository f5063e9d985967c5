"""The memory of a session is free when it has ended, whatever its client did before.

Internals: sessions that have ended are looked for in this process, where no garbage is collected meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, ShapeMismatch
from telegrad_service.hosting.sequence import HostedSession

from ..in_process import serving
from .api_keys import wait_until
from .conftest import SessionClient, problem
from .streams import ADD, BAD, Raw, Talk, container, is_problem, written
from .test_health import slow_program

MIB = 2**20
LIMIT = 32 * MIB
TOO_LARGE = {"op": "zeros", "out": ["y"], "attrs": {"size": [LIMIT]}}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(max_process_bytes=LIMIT, stream_ping_s=0.5) as url, httpx.Client(base_url=url, timeout=240) as made:
        yield made


@pytest.fixture
def session(client: httpx.Client) -> Iterator[SessionClient]:
    """A session of which nothing is left after the test."""
    gc.collect()
    gc.disable()
    before = hosted()
    try:
        made = SessionClient(client)
        made.tensor("x", [0.0])
        yield made
        made.request("DELETE")
        wait_until(lambda: hosted() == before)
    finally:
        gc.enable()


def hosted() -> int:
    """The number of sessions in the memory of this process."""
    return sum(type(each) is HostedSession for each in gc.get_objects())


def test_after_programs_that_fail(session: SessionClient) -> None:
    problem(session.run(BAD), 404, "unknown-tensor")
    problem(session.run({"op": "nope"}), 404, "unknown-op")
    problem(session.run(TOO_LARGE), 503, "server-busy")
    problem(session.get("/tensors/nope"), 404, "unknown-tensor")
    problem(session.run({"op": "backward", "in": [["x"]]}), 422, "grad-required")


def test_after_numbered_programs_that_fail(session: SessionClient) -> None:
    for number, status in (1, 404), (1, 404), (3, 409):
        headers = {"telegrad-sequence": str(number), "telegrad-sender": "me"}
        assert session.run(BAD, headers=headers).status_code == status


def test_after_a_stream_with_errors(session: SessionClient) -> None:
    talk = Talk(session)
    is_problem(talk.say(b"\xff" * 1000), 400, "malformed-request", None)
    is_problem(talk.ask(1, BAD), 404, "unknown-tensor", 1)
    is_problem(talk.ask(2, TOO_LARGE), 503, "server-busy", 2)
    session.request("DELETE")
    assert talk.closed() == 4404


def test_after_a_stream_that_breaks(session: SessionClient) -> None:
    talk = Talk(session)
    talk.ask(1, ADD)
    talk.socket.socket.close()


def test_after_cancelled_programs(session: SessionClient) -> None:
    talk = Talk(session)
    talk.socket.send(container(1, *slow_program(60, "big")))
    talk.socket.send(container(2, ADD))
    talk.assert_read()
    session.request("DELETE")
    assert talk.closed() == 4404


@pytest.mark.parametrize("stream", [True, False])
def test_after_errors_of_the_sdk(session: SessionClient, stream: bool) -> None:
    with tg.connect(str(session.client.base_url), stream=stream):
        x = tg.zeros(3, requires_grad=True)
        with pytest.raises(ShapeMismatch):
            (x @ tg.zeros(4)).tolist()
        with pytest.raises(ServerBusy):
            tg.zeros(LIMIT).sum().item()
        x.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [1, 1, 1]


def fill(session: SessionClient, room: int) -> None:
    """Take all memory of the server but so many MiB."""
    one: dict[str, Any] = {"op": "zeros", "attrs": {"size": [MIB // 4]}}
    names = [f"mib{i}" for i in range(LIMIT // MIB)]
    taken = next(i for i in count() if session.run(one | {"out": [names[i]]}).status_code == 503)
    session.run({"op": "free", "in": [names[taken - room : taken]]})


@pytest.mark.parametrize(
    "room, size, first",
    [
        pytest.param(0, MIB + 1, 0, id="when it has arrived"),
        pytest.param(7, 5 * MIB, MIB + MIB // 2, id="when its turn has come"),
    ],
)
def test_after_a_message_without_memory(
    client: httpx.Client, session: SessionClient, room: int, size: int, first: int
) -> None:
    other = SessionClient(client)
    try:
        fill(other, room)
        frame = written(0x82, bytes(size))
        with closing(Raw(session)) as raw:
            raw.socket.sendall(frame[:first])
            time.sleep(0.3)  # memory is reserved for what has arrived, and some more
            raw.socket.sendall(frame[first:])
            kind, body = raw.message()
            assert (kind, int.from_bytes(body[:2], "big")) == (0x88, 1013 if not room else 1001)
    finally:
        other.request("DELETE")
