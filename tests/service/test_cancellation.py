"""Nothing that runs is unstoppable: time limits, ended sessions, clients that go away, and a server that stops."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ..servers import STOP_S
from .conftest import Sent, SessionClient, problem, served, served_with
from .streams import PING, PONG, Raw, Talk, container, fetch, is_problem, written
from .test_health import slow_program, wait_until_taken

pytestmark = pytest.mark.full

LONG_S = 300.0
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def endless() -> list[dict[str, Any]]:
    """A program that takes minutes."""
    return slow_program(LONG_S, "big")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[httpx.Client]:
    """A server with one thread, for which every program runs alone."""
    with served_with(threads=1, reconnect_s=0.2, max_program_s=60) as client:
        yield client


def test_a_program_that_runs_too_long_is_a_problem(endless: Any) -> None:
    with served_with(max_program_s=0.5) as client:
        session = SessionClient(client)
        found = problem(session.run(*endless), 422, "time-limit-exceeded")
        assert "0.5 seconds" in found["detail"] and found["instruction"] > 0
        session.assert_usable()
        talk = Talk(session)
        is_problem(talk.say(container(1, *endless[1:], fetch("big"))), 422, "time-limit-exceeded", 1)


def test_deleting_a_session_stops_what_it_runs(one_thread: httpx.Client, endless: Any) -> None:
    session, other = SessionClient(one_thread), SessionClient(one_thread)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(session.run, *endless)
        wait_until_taken(one_thread)
        assert session.request("DELETE").status_code == 204
        problem(answer.result(), 409, "cancelled")
    other.assert_usable()


@pytest.mark.parametrize("headers", ["", "Telegrad-Sequence: 1\r\n"])
def test_a_request_whose_client_goes_away_is_stopped(one_thread: httpx.Client, endless: Any, headers: str) -> None:
    session, other = SessionClient(one_thread), SessionClient(one_thread)
    Sent(session, *endless, headers=headers).close()
    other.assert_usable()
    session.assert_usable()


def test_a_numbered_request_is_not_stopped_while_its_repetition_waits(one_thread: httpx.Client) -> None:
    session = SessionClient(one_thread)
    program = [*slow_program(3), {"op": "sum", "in": ["x"], "out": ["total"]}, fetch("total")]
    first, again = [Sent(session, *program, headers="Telegrad-Sequence: 1\r\n") for _ in range(2)]
    first.close()
    answer = again.answer()
    assert answer.status_code == 200 and list(answer.json()["values"]) == ["total"]


@pytest.mark.parametrize("programs", [1, 3])
def test_programs_of_a_stream_whose_client_vanishes_are_stopped(
    one_thread: httpx.Client, endless: Any, programs: int
) -> None:
    session, other = SessionClient(one_thread), SessionClient(one_thread)
    raw = Raw(session)
    following = [container(number, *endless[1:]) for number in range(2, programs + 1)]
    raw.socket.sendall(b"".join(written(0x82, body) for body in [container(1, *endless), *following[:1]]))
    raw.socket.sendall(written(PING, b"there?"))
    assert raw.frame() == (PONG, b"there?")
    raw.close()
    other.assert_usable()
    session.assert_usable()


@pytest.mark.one_process("a gateway is ready as long as a worker is")
def test_a_server_whose_threads_are_taken_is_not_ready(one_thread: httpx.Client, endless: Any) -> None:
    session = SessionClient(one_thread)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(session.run, *endless)
        deadline = time.monotonic() + PATIENCE_S
        while one_thread.get("/readyz").status_code == 200:
            assert time.monotonic() < deadline, "the server never said that it is taken"
            time.sleep(0.2)
        problem(one_thread.get("/readyz"), 503, "server-busy")
        assert one_thread.get("/healthz").status_code == 200
        session.request("DELETE")
        problem(answer.result(), 409, "cancelled")
    while one_thread.get("/readyz").status_code == 503:
        assert time.monotonic() < deadline


@pytest.mark.one_process("it is about the end of a process")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_a_stop_drains_once_though_a_program_is_stuck_and_another_waits() -> None:
    # One call into NumPy, which nothing interrupts: the process ends beneath it.
    drain_s = 6
    with served("--drain-s", str(drain_s), "--threads", "1", "--blas-threads", "1") as (client, process):
        session = SessionClient(client)
        program = [
            {"op": "randn", "out": ["x"], "attrs": {"size": [4000, 4000]}},
            {"op": "linalg_svd", "in": ["x"]},
        ]
        with ThreadPoolExecutor(1) as pool:
            running_one = pool.submit(session.run, *program)
            wait_until_taken(client)
            waiting = Sent(session, {"op": "ones", "out": ["y"], "attrs": {"size": [1]}})
            process.send_signal(signal.SIGTERM)
            answer = running_one.result()
            drained = time.monotonic()
            problem(answer, 503, "server-busy")
            assert "retry-after" not in answer.headers, "parts of it may have run"
            answer = waiting.answer()
            problem(answer, 503, "server-busy")
            assert answer.headers["retry-after"].isdecimal()
        assert process.wait(STOP_S) == 0
        assert time.monotonic() - drained < drain_s  # and not that long once more
