"""Quotas: a tenant's sessions, memory and waiting requests are limited, and leave room for other tenants.

Internals: tenants need keys, so the host is called with principals here, and the threads' work is queued directly.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from select import select
from typing import Any

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, SessionLimit
from telegrad_engine.program import parse_program
from telegrad_engine.session.session import Session
from telegrad_service.hosting.actor import Workers
from telegrad_service.hosting.host import SessionHost
from telegrad_service.hosting.session_handle import SessionOptions
from telegrad_service.settings import Settings
from telegrad_service.tenants.principal import SCOPES, Principal

from ..in_process import server_with
from .api_keys import client_with, create_key, sqlite, wait_until
from .conftest import Sent, SessionClient, problem, served_with
from .test_health import slow_program
from .test_memory import begin

MIB = 2**20
A, B = Principal("a", "key-a", SCOPES), Principal("b", "key-b", SCOPES)
WAIT_S = 60


def hosted(act: Callable[[SessionHost], Awaitable[Any]], **settings: Any) -> None:
    """Run ``act`` with a host."""

    async def go() -> None:
        host = SessionHost(Settings(**settings))
        try:
            await act(host)
        finally:
            await host.close()

    asyncio.run(go())


def zeros(session: Session, name: str, mib: int) -> None:
    """Hold so many MiB."""
    session.run(parse_program([{"op": "zeros", "out": [name], "attrs": {"size": [mib, MIB // 4]}}]))


def waits(gate: threading.Event) -> None:
    gate.wait(WAIT_S)


def meets(meeting: threading.Barrier, times: int = 1) -> None:
    for _ in range(times):
        meeting.wait(WAIT_S)


@pytest.mark.full
def test_a_tenant_has_a_limit_of_sessions_and_others_have_room() -> None:
    async def act(host: SessionHost) -> None:
        first = await host.create(SessionOptions(tenant="a"))
        await host.create(SessionOptions(tenant="a"))
        with pytest.raises(SessionLimit, match="this tenant has 2 sessions"):
            await host.create(SessionOptions(tenant="a"))
        await host.create(SessionOptions(tenant="b"))
        await host.end(A, first.id)
        await host.create(SessionOptions(tenant="a"))

    hosted(act, max_sessions_per_tenant=2)


def test_a_tenant_has_a_limit_of_memory_and_others_have_room() -> None:
    async def act(host: SessionHost) -> None:
        first, second = [await host.create(SessionOptions(tenant="a")) for _ in range(2)]
        other = await host.create(SessionOptions(tenant="b"))
        await first.call(zeros, "x", 24)
        with pytest.raises(SessionLimit, match="this tenant together may take 33554432 bytes"):
            await second.call(zeros, "x", 24)
        await other.call(zeros, "x", 24)
        with pytest.raises(ServerBusy, match="server's sessions together"):
            await other.call(zeros, "y", 7)
        await host.end(A, first.id)
        del first
        await second.call(zeros, "x", 24)

    hosted(act, max_tenant_bytes=32 * MIB, max_process_bytes=54 * MIB)


ADD = {"op": "add_", "in": ["x", 1]}


def filled(mib: int, *names: str) -> dict[str, Any]:
    """An instruction that takes so many MiB."""
    return {"op": "zeros", "out": list(names), "attrs": {"size": [mib, MIB // 4]}}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A server where a tenant may have 32 MiB and all together 54, and the keys of two tenants."""
    database = sqlite(tmp_path_factory.mktemp("quotas"))
    keys = {tenant: create_key(database, tenant) for tenant in "ab"}
    with server_with(database_url=database, max_tenant_bytes=32 * MIB, max_process_bytes=54 * MIB) as url:
        yield url, keys


@pytest.mark.parametrize("full", ["tenant", "process"])
def test_memory_that_others_hold_is_refused_with_a_time_to_come_back(
    tenants: tuple[str, dict[str, str]], full: str
) -> None:
    url, keys = tenants
    status, slug = (429, "quota-exceeded") if full == "tenant" else (503, "server-busy")
    with client_with(url, keys["a"]) as a, client_with(url, keys["b"]) as b:
        first, second = SessionClient(a), SessionClient(a if full == "tenant" else b)
        try:
            assert first.run(filled(28, "held")).status_code == 200
            second.tensor("x", [0.0])
            answer = second.run(ADD, filled(30, "y"))
            found = problem(answer, status, slug)
            assert answer.headers["retry-after"] == "5" and found["retry_after_s"] == 5
            assert "Free tensors that are not needed" in found["detail"]
            assert (found["instruction"], found["quota"]) == (1, "memory")
            # What ran before stays, so that the number of a numbered program is used up: it does not run again.
            numbered = {"telegrad-sequence": "1", "telegrad-sender": "me"}
            for _ in range(2):
                found = problem(second.run(ADD, filled(30, "y"), headers=numbered), status, slug)
                assert (found["instruction"], found["sequence"]) == (1, 1)
            assert second.data("x") == [2.0]
            # More than the limit is never granted.
            assert "retry-after" not in second.run(filled(100, "y")).headers
            first.request("DELETE")
            assert second.run(filled(30, "y")).status_code == 200
        finally:
            for session in (first, second):
                session.request("DELETE")


@pytest.mark.parametrize("stream", [True, False])
def test_the_sdk_reports_at_once_that_a_program_has_no_memory(
    tenants: tuple[str, dict[str, str]], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = tenants
    with client_with(url, keys["a"]) as client:
        other = SessionClient(client)
        assert other.run(filled(28, "held")).status_code == 200
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
        with tg.connect(url, api_key=keys["a"], stream=stream):
            x = tg.zeros(1)
            x.add_(1)
            y = tg.zeros(8, MIB // 4)
            with pytest.raises(SessionLimit, match="Free tensors that are not needed"):
                y.sum().item()
            assert x.item() == 1
            other.request("DELETE")
            assert tg.zeros(8, MIB // 4).sum().item() == 0


def beside_an_unfinished_body(
    client: httpx.Client, path: str, post: Callable[..., httpx.Response], stack: ExitStack
) -> httpx.Response:
    """What ``post`` answers when 22 MiB of another body have arrived, whose rest does not come."""
    # Sessions of earlier tests have ended, and free their memory soon.
    wait_until(lambda: post(content=bytes(28 * MIB)).status_code == 400)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        unfinished = stack.enter_context(begin(client, path, 30 * MIB, bytes(22 * MIB)))
        refusals = 0
        # It is answered if it was refused, because the other body was there while it arrived; so may both be, once.
        while not select([unfinished], [], [], 0)[0]:
            answer = post()
            refusals = 0 if answer.status_code == 400 else refusals + 1
            if refusals == 2:
                return answer
    pytest.fail("the unfinished body is always refused")


@pytest.mark.parametrize("stream", [True, False])
def test_request_bodies_count_towards_the_memory_of_a_tenant(tenants: tuple[str, dict[str, str]], stream: bool) -> None:
    url, keys = tenants
    headers = {"content-type": "application/vnd.safetensors"}
    with client_with(url, keys["a"]) as a, client_with(url, keys["b"]) as b:
        sessions = [SessionClient(client) for client in (a, b)]
        with tg.connect(url, api_key=keys["a"], stream=stream, retry_s=0):
            x = tg.zeros(1)
            x.add_(1)
            assert x.item() == 1
            of_a, of_b = [partial(s.post, "/programs", content=bytes(12 * MIB), headers=headers) for s in sessions]
            with ExitStack() as unfinished:
                answer = beside_an_unfinished_body(a, f"{sessions[0].path}/programs", of_a, unfinished)
                found = problem(answer, 429, "quota-exceeded")
                assert found["quota"] == "memory" and "another body" in found["detail"]
                assert answer.headers["retry-after"] == "5"
                problem(of_b(), 400, "malformed-request")
                y = tg.tensor(np.zeros(3 * MIB, np.float32))
                with pytest.raises(SessionLimit, match="this tenant has no memory left for another body"):
                    y.sum().item()
                assert x.add_(1).item() == 2
            wait_until(lambda: of_a().status_code == 400)
            assert tg.tensor(np.ones(3 * MIB, np.float32)).sum().item() == 3 * MIB
        for session in sessions:
            session.request("DELETE")


def test_a_tenant_fills_at_most_three_quarters_of_the_queue() -> None:
    async def act(host: SessionHost) -> None:
        of_a, of_b = [await host.create(SessionOptions(tenant=tenant)) for tenant in "ab"]
        for _ in range(6):
            of_a.queue.take()
        with pytest.raises(SessionLimit, match="6 requests of this tenant"):
            of_a.queue.take()
        of_b.queue.take()
        of_b.queue.take()
        with pytest.raises(ServerBusy, match="8 requests run or wait"):
            of_b.queue.take()
        of_a.queue.add(-1)
        of_b.queue.take()

    hosted(act, max_queued=8)


def test_one_tenant_never_takes_the_last_thread() -> None:
    workers, gate, ran = Workers(2), threading.Event(), threading.Event()
    try:
        for _ in range(4):
            workers.put(lambda: waits(gate), "a")
        workers.put(ran.set, "b")
        assert ran.wait(WAIT_S) and not gate.is_set()
    finally:
        gate.set()
        workers.stop()
    assert workers.ended(WAIT_S)


def test_tenants_take_turns() -> None:
    workers, ran = Workers(1), list[str]()
    meeting = threading.Barrier(2)
    workers.put(lambda: meets(meeting, 2), "a")
    meets(meeting)  # the thread is taken, and then waits
    for tenant in ["a"] * 4 + ["b"] * 2 + ["c"]:
        workers.put(partial(ran.append, tenant), tenant)
    meets(meeting)
    workers.stop()
    assert workers.ended(WAIT_S)
    assert ran == ["a", "b", "c", "a", "b", "a", "a"]


@pytest.mark.full
def test_a_jump_of_the_clock_on_the_wall_neither_ends_sessions_nor_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(host: SessionHost) -> None:
        handle, brief = [await host.create(SessionOptions(ttl_s=ttl_s)) for ttl_s in (3600, 0.01)]
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 10 * 86400)
        await host.expire()
        assert handle in host.sessions()
        monkeypatch.setattr(time, "time", lambda: now - 10 * 86400)
        deadline = time.monotonic() + WAIT_S
        while brief in host.sessions():
            assert time.monotonic() < deadline
            await host.expire()

    hosted(act)


def test_requests_beyond_the_queue_of_a_session_are_refused_before_their_body_is_read() -> None:
    with served_with(max_queued_per_session=2, reconnect_s=0.2) as client:
        session, other = SessionClient(client), SessionClient(client)
        endless = slow_program(WAIT_S, "big")
        waiting = [Sent(session, *endless) for _ in range(2)]
        for answer in (session.get(), session.run(*endless), session.get("/tensors")):
            assert "2 requests run or wait for this session" in problem(answer, 429, "quota-exceeded")["detail"]
            assert answer.headers["retry-after"] == "1"
        assert session.request("PUT", "/heartbeat").status_code == 204
        other.assert_usable()
        assert session.request("DELETE").status_code == 204
        for each in waiting:
            problem(each.answer(), 409, "cancelled")


def test_a_program_has_a_limit_of_instructions() -> None:
    with served_with(max_program_instructions=100) as client:
        session = SessionClient(client)
        session.tensor("x", [0.0])
        assert session.run(*[ADD] * 100).status_code == 200
        assert session.data("x") == [100.0]
        found = problem(session.run(*[ADD] * 101), 422, "limit-exceeded")
        assert found["instruction"] == 100 and "100 instructions" in found["detail"]
        session.assert_usable()
