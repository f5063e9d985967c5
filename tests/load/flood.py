"""A flood of ten times what a server takes, and clients that keep connections open without using them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx

from .server import MIB, Figure, Loaded, loaded, percentile

QUEUED, TIMES = 32, 10
"""The requests that the server takes for all sessions, and how many times as many clients send one at the same time."""
SIDE = 1200
"""The side of the matrices of which each request multiplies some, so that it takes some tenths of a second."""
PROGRAM = json.dumps(
    {
        "instructions": [
            *[{"op": "matmul", "in": ["m", "m"], "out": [f"p{i}"]} for i in range(4)],
            {"op": "free", "in": [[f"p{i}" for i in range(4)]]},
        ]
    }
).encode()
REFUSED = 429, 503
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Taken = dict[int, list[float]]
"""The seconds that requests took, by the status of the answer."""


async def new_session(client: httpx.AsyncClient) -> str:
    made = await client.post("/v1/sessions", json={})
    path = f"/v1/sessions/{made.json()['id']}"
    body = {"instructions": [{"op": "randn", "out": ["m"], "attrs": {"size": [SIDE, SIDE]}}]}
    answer = await client.post(f"{path}/programs", json=body)
    assert answer.status_code == 200, answer.text
    return path


async def post(connection: Connection, path: str) -> tuple[int, dict[str, str]]:
    """Send a program, and return the status and the headers of the answer.

    By hand, because a client library takes longer for this than the server with hundreds of connections.
    """
    reader, writer = connection
    head = f"POST {path}/programs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(PROGRAM)}\r\n\r\n".encode() + PROGRAM)
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    await reader.readexactly(int(headers["content-length"]))
    return int(status.split()[1]), headers


async def keep_sending(server: Loaded, path: str, deadline: float, statuses: Counter[int], taken: Taken) -> None:
    """Send programs one after the other until the deadline; after a refusal, wait a second, as asked for."""
    address = urlsplit(server.url)
    connection = await asyncio.open_connection(address.hostname, address.port)
    while time.monotonic() < deadline:
        begun = time.perf_counter()
        status, headers = await post(connection, path)
        statuses[status] += 1
        taken.setdefault(status, []).append(time.perf_counter() - begun)
        if status != 200:
            assert headers["retry-after"].isdecimal()
            await asyncio.sleep(1.0)
    connection[1].close()


async def measure(server: Loaded, seconds: float) -> list[Figure]:
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        sessions = [await new_session(client) for _ in range(TIMES * 2)]

        async def load(clients: int) -> tuple[Counter[int], Taken]:
            statuses: Counter[int] = Counter()
            taken: Taken = {}
            deadline = time.monotonic() + seconds
            paths = [sessions[i % len(sessions)] for i in range(clients)]
            await asyncio.gather(*[keep_sending(server, path, deadline, statuses, taken) for path in paths])
            return statuses, taken

        calm, _ = await load(4)
        before = server.reset_peak()
        flooded, taken = await load(TIMES * QUEUED)
        refusals = [each for status in REFUSED for each in taken.get(status, [])]
        assert set(flooded) <= {200, *REFUSED}, flooded
        return [
            Figure("programs of 4 clients", calm[200] / seconds, "a second"),
            Figure(f"programs admitted of {TIMES * QUEUED} clients", flooded[200] / seconds, "a second"),
            Figure("the pace before, of the pace in the flood", calm[200] / max(1, flooded[200]), "times", 2),
            Figure("refused with 429", flooded[429], ""),
            Figure("refused with 503", flooded[503], ""),
            Figure("a refusal: median", 1e3 * percentile(refusals, 0.5), "ms"),
            Figure("a refusal: p99", 1e3 * percentile(refusals, 0.99), "ms"),
            Figure("an admitted program: p99", percentile(taken[200], 0.99), "s"),
            Figure("memory that the flood took", (server.peak() - before) / MIB, "MiB", 256),
        ]


BEGINNINGS = {
    "says nothing": b"",
    "sends half a header": b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "sends half a body": b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{",
}


def until_closed(connection: socket.socket, seconds: float) -> float:
    """Seconds until the server closes a connection, at most so many."""
    begun = time.monotonic()
    connection.settimeout(seconds)
    with contextlib.suppress(OSError):
        while connection.recv(2**16):
            pass
    return time.monotonic() - begun


def slow_clients(count: int = 50, timeout_s: float = 3.0) -> list[Figure]:
    """How long a server with short timeouts keeps connections whose clients do nothing."""
    flags = [f"--{name}-timeout-s={timeout_s}" for name in ("header", "body", "idle")]
    figures = []
    with loaded(*flags) as server:
        address = urlsplit(server.url)
        for name, beginning in BEGINNINGS.items():
            connections = []
            for _ in range(count):
                connections.append(socket.create_connection((address.hostname or "", address.port or 80)))
                connections[-1].sendall(beginning)
            begun = time.monotonic()
            for connection in connections:
                until_closed(connection, 10 * timeout_s)
                connection.close()
            taken = time.monotonic() - begun
            figures.append(Figure(f"a client that {name} is dropped after", taken, "s", 5 * timeout_s))
            assert httpx.get(f"{server.url}/healthz").status_code == 200
    return figures


def run(seconds: float = 15.0) -> list[Figure]:
    """Flood a server."""
    room = str(4 * TIMES * QUEUED)
    flags = "--max-queued", str(QUEUED), "--max-queued-per-session", "8"
    with loaded(*flags, "--max-connections", room, "--max-connections-per-peer", room) as server:
        return asyncio.run(measure(server, seconds)) + slow_clients()
