"""Many open sessions, some of them active, beside one that computes for seconds."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect

from ..service.streams import container
from .server import KIB, MIB, Figure, Loaded, loaded, percentile

SMALL = [
    {"op": "mul", "in": ["x", 1.5], "out": ["y"]},
    {"op": "sum", "in": ["y"], "out": ["z"]},
    {"op": "fetch", "in": [["z"]]},
    {"op": "free", "in": [["y", "z"]]},
]
T = TypeVar("T")
PAUSE_S = 0.2
"""How long an active client waits between two programs, on average."""
# Each takes seconds: one in BLAS, which releases Python's lock, one in many small calls, which hold it.
LONG = {
    "products": [{"op": "randn", "out": ["m"], "attrs": {"size": [1500, 1500]}}]
    + [{"op": "matmul", "in": ["m", "m"], "out": [f"n{i}"]} for i in range(20)]
    + [{"op": "free", "in": [["m", *[f"n{i}" for i in range(20)]]]}],
    "small calls": [{"op": "ones", "out": ["s"], "attrs": {"size": [8]}}]
    + [{"op": "mul_", "in": ["s", 1.0]}] * 60_000
    + [{"op": "free", "in": [["s"]]}],
}
MAX_STREAMS = 500
"""How many idle streams are opened: each takes a file descriptor, of which a process often has 1,024."""
IDLE_KIB, STREAM_KIB = 16, 64
P99_OF_MEDIAN = 20
LEFT_MIB, SETTLE_S = 128, 60.0
"""What the sessions may leave, and in how many seconds the server returns the rest."""


async def open_stream(server: Loaded, session: str) -> ClientConnection:
    url = server.url.replace("http", "ws", 1)
    query = f"?sender={secrets.token_hex(8)}"
    stream = await connect(
        f"{url}/v1/sessions/{session}/stream{query}", compression=None, max_size=None, open_timeout=120
    )
    await stream.recv()
    return stream


async def ask(stream: ClientConnection, number: int, program: list[dict[str, Any]], **arrays: Any) -> float:
    """Send a program and return the seconds that its answer took."""
    begun = time.perf_counter()
    await stream.send(container(number, *program, **arrays))
    answer = await stream.recv()
    taken = time.perf_counter() - begun
    assert isinstance(answer, bytes), answer
    return taken


async def be_active(server: Loaded, session: str, seconds: float, taken: list[float]) -> None:
    """Run small programs with pauses between them."""
    rng = random.Random(session)
    stream = await open_stream(server, session)
    begun = time.monotonic()
    await ask(stream, 1, [{"op": "ones", "out": ["x"], "attrs": {"size": [64]}}])
    deadline, number = begun + seconds, 2
    while time.monotonic() < deadline:
        await asyncio.sleep(rng.uniform(0, 2 * PAUSE_S))
        taken.append(await ask(stream, number, SMALL))
        number += 1
    await ask(stream, number, [{"op": "free", "in": [["x"]]}])
    await stream.close()


async def keep_computing(server: Loaded, session: str, program: list[dict[str, Any]], taken: list[float]) -> None:
    """Run a long program again and again, until cancelled."""
    async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:
        body = json.dumps({"instructions": program}).encode()
        while True:
            begun = time.perf_counter()
            answer = await client.post(
                f"/v1/sessions/{session}/programs", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 200, answer.text
            taken.append(time.perf_counter() - begun)


async def beside(server: Loaded, sessions: list[str], kind: str, active: int, seconds: float) -> list[Figure]:
    """The latency of active sessions beside a long program of this kind."""
    small: list[float] = []
    long: list[float] = []
    background = asyncio.create_task(keep_computing(server, sessions[-1], LONG[kind], long)) if kind in LONG else None
    await asyncio.gather(*[be_active(server, each, seconds, small) for each in sessions[:active]])
    if background is not None:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
    median, last = percentile(small, 0.5), percentile(small, 0.99)
    name = f"a small program beside {kind}"
    return [
        Figure(f"{name}: programs", len(small), ""),
        *([Figure(f"{name}: one long program", percentile(long, 0.5), "s")] if long else []),
        Figure(f"{name}: median", 1e3 * median, "ms"),
        Figure(f"{name}: p99", 1e3 * last, "ms"),
        Figure(f"{name}: p99 of median", last / median, "times", P99_OF_MEDIAN),
    ]


async def create(client: httpx.AsyncClient, count: int) -> list[str]:
    found = []
    for _ in range(count):
        answer = await client.post("/v1/sessions", json={})
        assert answer.status_code == 201, answer.text
        found.append(answer.json()["id"])
    return found


async def open_streams(server: Loaded, sessions: list[str]) -> list[ClientConnection]:
    return [await open_stream(server, each) for each in sessions]


async def measure(server: Loaded, open_sessions: int, active: int, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:

        async def measured(name: str, act: Coroutine[Any, Any, list[T]], most: float) -> list[T]:
            before = server.rss()
            found = await act
            figures.append(Figure(name, (server.rss() - before) / KIB / len(found), "KiB each", most))
            return found

        for each in await create(client, 20):  # what the first sessions load is not theirs
            await client.delete(f"/v1/sessions/{each}")
        empty = server.rss()
        sessions = await measured("an idle session", create(client, open_sessions), IDLE_KIB)
        # Before the long programs: memory that they have freed is returned to the system at any time.
        streams = await measured("its open stream", open_streams(server, sessions[:MAX_STREAMS]), STREAM_KIB)
        await asyncio.gather(*[stream.close() for stream in streams])
        for kind in ("nothing", *LONG):
            figures += await beside(server, sessions, kind, active, seconds)
        for each in sessions:
            await client.delete(f"/v1/sessions/{each}")
    left = server.settled(empty + LEFT_MIB * MIB, SETTLE_S) - empty
    figures.append(Figure("memory left after all sessions have ended", left / MIB, "MiB", LEFT_MIB))
    return figures


def run(open_sessions: int = 1000, active: int = 100, seconds: float = 20.0) -> list[Figure]:
    """Open sessions, use some, and close them."""
    room = str(open_sessions + 100)
    limits = "--max-sessions", room, "--max-sessions-per-peer", "0"
    connections = "--max-connections", room, "--max-connections-per-peer", room
    with loaded(*limits, *connections) as server:
        return asyncio.run(measure(server, open_sessions, active, seconds))
