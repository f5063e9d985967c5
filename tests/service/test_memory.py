"""What is not a tensor is on an account too: bodies on their way, recorded answers, frames that unfold.

Internals: what is on an account is seen only beside the record and the session.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import httpx
import numpy as np
import pytest

from telegrad_engine.program import compression
from telegrad_service.hosting.commands import run_numbered
from telegrad_service.settings import Settings

from ..servers import computing
from .api_keys import wait_until
from .conftest import SessionClient, problem, served_with
from .raw_http import dial, request
from .streams import UP, Raw, Talk, container, hosted, written

MIB = 2**20
LIMIT = 24 * MIB
BINARY = {"content-type": "application/vnd.safetensors"}


@pytest.fixture(scope="module")
def crowded() -> Iterator[httpx.Client]:
    """A server whose sessions together have little memory."""
    with served_with(max_process_bytes=LIMIT, max_session_bytes=16 * MIB) as client:
        yield client


def begin(client: httpx.Client, path: str, length: int, body: bytes = b"") -> socket.socket:
    """A request of the client whose body is not all sent."""
    lines = [f"Content-Length: {length}", f"Content-Type: {BINARY['content-type']}"]
    if key := client.headers.get("authorization"):
        lines.append(f"Authorization: {key}")
    connection = dial(str(client.base_url))
    connection.sendall(request("POST", path, *lines) + body)
    return connection


def body_bytes(client: httpx.Client) -> float:
    """The bytes of bodies that have arrived."""
    [url] = computing(client.base_url)
    text = httpx.get(f"{url}/metrics", timeout=240).text
    return float(next(line for line in text.splitlines() if line.startswith("telegrad_body_bytes ")).split()[1])


def test_a_session_that_is_not_there_is_said_before_the_body(client: httpx.Client) -> None:
    with begin(client, "/v1/sessions/nope/programs", 100 * MIB) as connection:
        assert b" 404 " in connection.recv(100)


def test_bodies_that_never_end_leave_memory_to_others(crowded: httpx.Client) -> None:
    session = SessionClient(crowded)
    with begin(crowded, f"{session.path}/programs", 20 * MIB, bytes(15 * MIB)):
        wait_until(lambda: body_bytes(crowded) >= 14 * MIB)
        answer = session.post("/programs", content=bytes(12 * MIB), headers=BINARY)
        found = problem(answer, 503, "server-busy")
        assert "body" in found["detail"] and "retry-after" in answer.headers
        session.assert_usable()
    deadline = 200
    while session.post("/programs", content=bytes(9 * MIB), headers=BINARY).status_code == 503:
        deadline -= 1
        assert deadline, "the memory of a body is not given back"


def closing_code(raw: Raw) -> int:
    """The code with which the server closes a stream; 0 if it has not."""
    while (found := raw.frame())[0] not in (0x88, 0):
        pass
    return int.from_bytes(found[1][:2], "big")


@pytest.mark.full
@pytest.mark.parametrize("first", [0x82, 0x02], ids=["message", "fragment"])
def test_messages_that_never_end_leave_memory_to_others(crowded: httpx.Client, first: int) -> None:
    session, other = SessionClient(crowded), SessionClient(crowded)
    held, refused = Raw(session), Raw(other)
    unfinished = written(0x82, bytes(20 * MIB))[: 15 * MIB] if first == 0x82 else written(0x02, bytes(15 * MIB))
    held.socket.sendall(unfinished)
    for _ in range(200):  # until the message has arrived
        answer = session.post("/programs", content=bytes(9 * MIB), headers=BINARY)
        if answer.status_code != 400:
            break
    problem(answer, 503, "server-busy")
    with suppress(OSError):
        refused.socket.sendall(written(first, bytes(15 * MIB)))
    assert closing_code(refused) == 1013
    session.assert_usable()
    for raw in (held, refused):
        raw.close()
    deadline = 200
    while session.post("/programs", content=bytes(9 * MIB), headers=BINARY).status_code == 503:
        deadline -= 1
        assert deadline, "the memory of a message is not given back"
    talk = Talk(session)
    data = np.zeros(5 * MIB, np.uint8)
    for number in (1, 2, 3):
        again = [{"op": "free", "in": [["x"]]}] if number > 1 else []
        assert talk.ask(number, *again, UP, x=data)["sequence"] == number
    talk.socket.close()
    for each in (session, other):
        each.request("DELETE")


def test_sessions_together_have_a_limit(crowded: httpx.Client) -> None:
    zeros = {"op": "zeros", "out": ["x"], "attrs": {"size": [3 * MIB]}}
    first, second = SessionClient(crowded), SessionClient(crowded)
    assert first.run(zeros).status_code == 200
    answer = second.run({**zeros, "attrs": {"size": [7 * MIB // 2]}})
    found = problem(answer, 503, "server-busy")
    assert answer.headers["retry-after"] == "5" and "Free tensors" in found["detail"]
    problem(second.run({**zeros, "attrs": {"size": [5 * MIB]}}), 413, "too-large")  # the session's own limit
    first.request("DELETE")
    assert second.run(zeros).status_code == 200
    second.request("DELETE")


def test_a_frame_that_unfolds_to_too_much_is_refused(client: httpx.Client, session: SessionClient) -> None:
    if not compression.available():
        pytest.skip("this needs zstd")
    bomb = bytes(compression.compress(bytes(600 * MIB)))
    headers = {**BINARY, "content-encoding": "zstd"}
    for more in ({}, {"telegrad-sequence": "1"}):
        problem(session.post("/programs", content=bomb, headers={**headers, **more}), 413, "too-large")


def test_recorded_answers_are_on_the_account_until_they_are_seen() -> None:
    session = hosted()
    fetched = {"op": "fetch", "in": [["x"]]}
    body = container(1, {"op": "tensor", "out": ["x"]}, fetched, x=np.zeros(MIB, np.float32))
    assert run_numbered(session, "", body, 64, 2**30).error is None
    assert session.accounts.answer_bytes >= 4 * MIB
    assert session.accounts.total_bytes >= 8 * MIB
    assert run_numbered(session, "", container(2, seen=1), 64, 2**30).error is None
    assert session.accounts.answer_bytes < MIB


def test_a_server_leaves_memory_to_the_machine() -> None:
    from telegrad_service.process import memory_bytes

    assert 0 < Settings().max_process_bytes < memory_bytes()
