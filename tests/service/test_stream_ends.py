"""Streams that end, or are taken over, with programs under way: each program runs once, and nobody waits in vain."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from .conftest import Sent, SessionClient, served, served_with
from .streams import ADD, TIMEOUT_S, UP, Raw, Talk, container, fetch, is_problem, written
from .test_health import slow_program

pytestmark = pytest.mark.full

SLOW_S = 1.0


@pytest.fixture(scope="module")
def slow() -> list[dict[str, Any]]:
    """A program that takes a while."""
    return slow_program(SLOW_S, "big")


@pytest.fixture
def talk(session: SessionClient) -> Iterator[Talk]:
    """A connection whose first program has made ``x``."""
    made = Talk(session)
    made.ask(1, UP, x=np.zeros(1, np.float32))
    yield made
    made.socket.close()


def busy(slow: list[dict[str, Any]], number: int) -> bytes:
    """A program that takes a while and then adds one to ``x``."""
    return container(number, *slow, ADD, fetch("x"))


def add(number: int, seen: int | None = None) -> bytes:
    return container(number, ADD, fetch("x"), seen=seen)


def ends(found: dict[str, Any]) -> tuple[int, float]:
    return found["sequence"], found["arrays"]["x"][0]


# Two programs under way ---------------------------------------------------------------------------


def test_a_client_that_vanishes_with_programs_under_way(session: SessionClient, talk: Talk, slow: Any) -> None:
    sent = [busy(slow, 2), add(3, 1), add(4, 1), add(5, 1)]
    for body in sent:
        talk.socket.send(body)
    talk.socket.socket.shutdown(socket.SHUT_RDWR)
    again = Talk(session)
    assert again.greeting["last"] < 5
    for body in sent:
        again.socket.send(body)
    assert [ends(again.receive()) for _ in sent] == [(2, 1), (3, 2), (4, 3), (5, 4)]
    assert ends(again.say(add(6))) == (6, 5)
    again.socket.close()


def test_a_second_connection_takes_over_with_programs_under_way(session: SessionClient, talk: Talk, slow: Any) -> None:
    sent = [busy(slow, 2), add(3, 1), add(4, 1), add(5, 1)]
    for body in sent:
        talk.socket.send(body)
    others = []
    for _ in range(3):
        others.append(Talk(session))
        for body in sent:
            others[-1].socket.send(body)
    last = others.pop()
    assert [ends(last.receive()) for _ in sent] == [(2, 1), (3, 2), (4, 3), (5, 4)]
    assert [each.closed() for each in (talk, *others)] == [4409] * 3
    assert ends(last.say(add(6))) == (6, 5)
    last.socket.close()


def test_a_number_that_is_repeated_while_it_runs(session: SessionClient, talk: Talk, slow: Any) -> None:
    body = busy(slow, 2)
    for each in (body, body, add(3, 1), body, add(2, 1)):
        talk.socket.send(each)
    assert [ends(talk.receive()) for _ in range(4)] == [(2, 1), (2, 1), (3, 2), (2, 1)]
    is_problem(talk.receive(), 409, "sequence-conflict", 2)
    assert session.data("x") == [2.0]


def test_numbered_requests_between_programs(session: SessionClient, talk: Talk, slow: Any) -> None:
    talk.socket.send(busy(slow, 2))
    talk.assert_read()
    with ThreadPoolExecutor() as pool:
        posted = pool.submit(session.run, ADD, fetch("x"), headers={"telegrad-sequence": "3"})
        repeated = pool.submit(session.run, ADD, fetch("x"), headers={"telegrad-sequence": "3"})
        wrong = pool.submit(session.run, ADD, headers={"telegrad-sequence": "2"})
        for answer in posted, repeated:
            assert answer.result().json()["values"]["x"]["data"] == [2.0]
        assert wrong.result().status_code == 409
    assert ends(talk.receive()) == (2, 1)
    is_problem(talk.say(add(3, 2)), 409, "sequence-conflict", 3)
    assert ends(talk.say(add(4, 2))) == (4, 3)


def test_a_stream_that_waits_for_its_turn_can_be_stopped(session: SessionClient, talk: Talk, slow: Any) -> None:
    posted = Sent(session, *slow, ADD, headers="Telegrad-Sequence: 2\r\n")
    talk.socket.send(add(3, 2))
    other = Talk(session)
    assert talk.closed() == 4409
    assert other.greeting["last"] == 1
    assert ends(other.say(add(3, 2))) == (3, 2)
    assert posted.answer().status_code == 200
    other.socket.close()


def test_what_breaks_the_protocol_behind_programs_leaves_the_session_usable(session: SessionClient, slow: Any) -> None:
    raw = Raw(session)
    first = container(1, UP, x=np.zeros(1, np.float32))
    sent = [first, busy(slow, 2), add(3, 1)]
    raw.socket.sendall(b"".join(written(0x82, body) for body in sent) + written(0x83, b"no such kind"))
    while (frame := raw.frame())[0] == 0x82:
        pass
    assert frame[0] == 0x88 and int.from_bytes(frame[1][:2], "big") == 1002
    raw.close()
    talk = Talk(session)
    for body in sent:
        talk.socket.send(body)
    assert talk.receive()["sequence"] == 1
    assert [ends(talk.receive()) for _ in range(2)] == [(2, 1), (3, 2)]
    talk.socket.close()


# A client that takes nothing ----------------------------------------------------------------------

MIB = 2**20
LARGE = {"op": "zeros", "out": ["large"], "attrs": {"size": [4 * MIB]}}


def stuck(session: SessionClient, slow: list[dict[str, Any]]) -> Raw:
    """A client that has asked for 16 MiB three times, of which it takes none; the second takes long."""
    raw = Raw(session)
    session.run(LARGE)
    programs = [container(i, *between, fetch("large"), seen=0) for i, between in enumerate([[], slow, []], start=1)]
    raw.socket.sendall(b"".join(written(0x82, body) for body in programs))  # at once: no more is read behind an answer
    for _ in range(10):  # which the event loop answers behind it
        assert session.client.get("/healthz").status_code == 200
    time.sleep(SLOW_S / 4)
    return raw


def sockets(process: Any) -> int:
    """How many a process has."""
    return sum(os.readlink(each).startswith("socket") for each in Path(f"/proc/{process.pid}/fd").iterdir())


@pytest.mark.one_process("the sockets of a gateway are not those of its streams alone")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sockets are counted in /proc")
def test_who_takes_no_answers_holds_up_no_other_connection(slow: Any) -> None:
    with served("--stream-ping-s", "0.5") as (client, process):
        session = SessionClient(client)
        before = sockets(process)
        raw = stuck(session, slow)
        other = Talk(session)
        assert other.greeting["last"] in (1, 2)
        assert ends(other.ask(4, UP, fetch("x"), seen=0, x=np.ones(1, np.float32))) == (4, 1)
        other.socket.close()
        deadline = time.monotonic() + TIMEOUT_S
        while sockets(process) > before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert sockets(process) == before
        raw.close()
        process.terminate()
        assert "Traceback" not in process.communicate(timeout=TIMEOUT_S)[1]


@pytest.mark.one_process("a gateway that stops ends its streams, and clients connect to another one")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_who_takes_answers_slowly_gets_them_from_a_server_that_stops(slow: Any) -> None:
    with served("--stream-ping-s", "0.2") as (client, process):
        session = SessionClient(client)
        raw = stuck(session, slow)
        process.terminate()
        time.sleep(2 * SLOW_S)
        *answers, said = [body for first, body in iter(raw.frame, (0, b"")) if first in (0x82, 0x88)]
        assert [load(body)["large"].size for body in answers] == [4 * MIB] * 3
        assert int.from_bytes(said[:2], "big") == 1001
        raw.close()
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_who_takes_no_answers_does_not_keep_a_server_from_stopping(slow: Any) -> None:
    with served("--drain-s", "0.2") as (client, process):
        raw = stuck(SessionClient(client), slow)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        raw.close()


# Ends ---------------------------------------------------------------------------------------------


def test_the_end_of_the_session_is_the_end_of_its_stream(client: httpx.Client, session: SessionClient) -> None:
    talk = Talk(session)
    client.delete(session.path)
    assert talk.closed() == 4404


def test_what_runs_when_its_session_ends_is_cancelled(
    client: httpx.Client, session: SessionClient, talk: Talk, slow: Any
) -> None:
    endless = [*slow, *slow[1:] * 30]
    for body in (busy(endless, 2), add(3, 1)):
        talk.socket.send(body)
    talk.assert_read()
    talk.socket.send(add(4, 1))  # nothing after it is read before an answer
    client.delete(session.path)
    is_problem(talk.receive(), 409, "cancelled", 2)
    is_problem(talk.receive(), 409, "not-run", 3)
    assert talk.closed() == 4404


def test_an_idle_session_expires_under_an_open_stream_and_a_busy_one_does_not(slow: Any) -> None:
    # It is looked for expired sessions as often as passes that wait are given up.
    with served_with(pending_timeout_s=0.1) as client:
        session = SessionClient(client)
        talk = Talk(session)
        talk.ask(1, UP, x=np.zeros(1, np.float32))
        for body in (busy(slow, 2), add(3, 1)):
            talk.socket.send(body)
        talk.assert_read()
        session.request("PATCH", json={"ttl_s": SLOW_S / 2})  # at once, but the answer waits for its turn
        assert [ends(talk.receive()) for _ in range(2)] == [(2, 1), (3, 2)]
        assert talk.closed() == 4404


@pytest.mark.one_process("a gateway that stops ends its streams, and clients connect to another one")
def test_a_server_that_stops_finishes_what_runs_and_says_so(slow: Any) -> None:
    with served() as (client, process):
        session = SessionClient(client)
        talk, idle = Talk(session), Talk(SessionClient(client))
        talk.ask(1, UP, x=np.zeros(1, np.float32))
        for body in (busy(slow, 2), add(3, 1)):
            talk.socket.send(body)
        talk.assert_read()
        process.terminate()
        assert idle.closed() == 1001
        assert [ends(talk.receive()) for _ in range(2)] == [(2, 1), (3, 2)]
        assert talk.closed() == 1001
        assert process.wait(TIMEOUT_S) in (0, -15)
