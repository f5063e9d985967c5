"""Clients that send more than they read, and idle ones that are pinged: what they cost, and that they can go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from ..servers import peak_bytes, running
from .conftest import SessionClient, served_with
from .streams import ADD, UP, Raw, Talk, container, fetch, written
from .test_health import slow_program

pytestmark = pytest.mark.full

MIB = 2**20
LARGE_MIB, LIMIT_MIB = 8, 16
"""What an answer to a flood has, and the longest message that the server takes."""
BOUND_MIB = {"programs": 64, "repeats": 32, "uploads": 96, "pings": 16, "pings behind programs": 48, "fragments": 64}
"""What a flood may cost: bodies, answers, the record's, and as much air again."""


def settled(process: Any) -> int:
    """The most memory that a process ever had, in bytes, when it has stopped growing."""
    last, same = peak_bytes(process), 0
    while same < 5:
        time.sleep(0.1)
        now = peak_bytes(process)
        last, same = now, same + 1 if now == last else 0
    return last


def add(number: int) -> bytes:
    return container(number, ADD, fetch("x"))


def ask(number: int) -> bytes:
    return written(0x82, container(number, fetch("x"), seen=1))


def large(number: int) -> bytes:
    """A frame of nearly the limit."""
    body = container(number, UP, seen=1, x=np.ones((LIMIT_MIB - 1) * MIB, np.uint8))
    return written(0x82, body)


def slow(number: int) -> bytes:
    """A program that keeps the session busy while more comes."""
    return written(0x82, container(number, *slow_program(1.5, "big"), seen=1))


def flood(kind: str) -> Iterator[bytes]:
    """What a client sends that never reads, from number 2 on."""
    if kind == "programs":
        yield b"".join(ask(number) for number in range(2, 1000))
    elif kind == "repeats":
        yield b"".join(ask(2) for _ in range(1000))
    elif kind == "uploads":
        yield slow(2)
        frame = large(3)
        for _ in range(40):
            yield frame
    elif kind == "pings":
        for _ in range(4000):
            yield written(0x89, b"p" * 125) * 1000
    elif kind == "pings behind programs":
        yield ask(2) + ask(3) + ask(4)  # at once: no more is read behind the first answer
        time.sleep(0.2)
        for _ in range(4000):
            yield written(0x89, b"p" * 125) * 1000
    elif kind == "fragments":
        for i in range(8000):
            yield written(0x00 if i else 0x02, b"f" * 60_000)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", BOUND_MIB)
def test_who_floods_without_reading_costs_bounded_memory(kind: str) -> None:
    with running("--max-body-bytes", str(LIMIT_MIB * MIB)) as (url, process), httpx.Client(base_url=url) as client:
        session = SessionClient(client)
        session.run({"op": "randn", "out": ["x"], "attrs": {"size": [LARGE_MIB * MIB // 4]}})
        session.run(*slow_program(0, "busy"))  # what this takes is not the flood's
        talk = Talk(session)
        talk.ask(1, {"op": "mul", "in": ["x", 2], "out": ["y"]}, fetch("y"))
        talk.socket.close()
        raw = Raw(session, timeout=0.5)
        before = settled(process)
        with suppress(OSError):  # what is not read from can take no more
            for piece in flood(kind):
                raw.socket.sendall(piece)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert settled(process) - before < BOUND_MIB[kind] * MIB
        raw.close()
        session.assert_usable()


@pytest.fixture(scope="module")
def impatient() -> Iterator[httpx.Client]:
    """Of a server that takes messages of 100,000 bytes and pings five times a second."""
    with served_with(stream_ping_s=PING_S, max_body_bytes=100_000) as client:
        yield client


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_longest_message(impatient: httpx.Client, over: int, parts: int) -> None:
    raw = Raw(SessionClient(impatient))
    body = container(1, UP, x=np.zeros(99_000, np.uint8))
    body = container(1, UP, x=np.zeros(99_000 + 100_000 + over - len(body), np.uint8))
    assert len(body) == 100_000 + over
    cuts = [body[len(body) * i // parts : len(body) * (i + 1) // parts] for i in range(parts)]
    for i, part in enumerate(cuts):
        raw.socket.sendall(written((0x00 if i else 0x02) | (0x80 if i == parts - 1 else 0), part))
    first, payload = raw.message()
    assert (first, int.from_bytes(payload[:2], "big")) == (0x88, 1009) if over else first == 0x82
    raw.close()


# Pings --------------------------------------------------------------------------------------------

PING_S = 0.2


@pytest.mark.parametrize("answers", [True, False])
def test_an_idle_stream_is_pinged_and_goes_on_whether_it_answers_or_not(impatient: httpx.Client, answers: bool) -> None:
    raw = Raw(SessionClient(impatient))
    for _ in range(4):
        first, payload = raw.frame()
        assert first == 0x89
        if answers:
            raw.socket.sendall(written(0x8A, payload))
    for number, body in enumerate([container(1, UP, fetch("x"), x=np.ones(1, np.float32)), add(2), add(3)], start=1):
        raw.socket.sendall(written(0x82, body))
        assert load(raw.message()[1])["x"] == [number]
    raw.close()


def test_a_late_answer_to_a_ping_brings_no_more_of_them(impatient: httpx.Client) -> None:
    """As it comes from a client that reads when it needs to."""
    raw = Raw(SessionClient(impatient))
    for _ in range(3):
        payload = raw.frame()[1]
        time.sleep(0.9 * PING_S)
        raw.socket.sendall(written(0x8A, payload))
    raw.socket.settimeout(None)
    started, count = time.monotonic(), 0
    while time.monotonic() - started < 5 * PING_S:
        assert raw.frame()[0] == 0x89
        count += 1
    assert count < 10
    raw.close()


def test_a_stream_ends_with_its_session_though_its_client_answers_no_pings() -> None:
    with served_with(stream_ping_s=PING_S, pending_timeout_s=0.1) as client:
        session = SessionClient(client)
        raw = Raw(session)
        assert raw.frame()[0] == 0x89
        session.request("PATCH", json={"ttl_s": 4 * PING_S})
        first, said = raw.message()
        assert (first, int.from_bytes(said[:2], "big")) == (0x88, 4404)
        raw.close()
