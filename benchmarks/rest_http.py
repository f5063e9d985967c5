"""Single requests over kept connections, against a bare FastAPI app that reads and answers the same without computing.

Both servers are pinned to one core, and the client, this process, to the others. The client writes the bytes of a
request to a socket and reads those of the answer, so that it takes little time itself.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from .members import member
from .peers import FOLDER
from .peers.calls import LOOPBACK, serving
from .timing import Side, Timed

BARE, BARE_GET = "a bare FastAPI POST with pydantic body and response model", "a bare FastAPI GET with response model"
CLIENTS = 32
ROWS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "op": ("POST", "/ops/mul", {"inputs": ["x", 2.0]}),
    "tensor": ("POST", "/tensors", {"data": [1.0, 2.0, 3.0, 4.0]}),
    "backward": ("POST", "/backward", {"tensors": ["loss"], "retain_graph": True}),
    "program": (
        "POST",
        "/programs",
        {
            "instructions": [
                {"op": "mul", "in": ["x", "x"], "out": ["y"]},
                {"op": "sum", "in": ["y"], "out": ["s"]},
                {"op": "fetch", "in": [["s"]]},
                {"op": "free", "in": [["y", "s"]]},
            ]
        },
    ),
    "GET of a tensor": ("GET", "/tensors/x", None),
}
"""The requests, by row: method, path and body."""
PREPARATION = {
    "instructions": [
        {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0, 2.0, 3.0, 4.0]}},
        {"op": "tensor", "out": ["w"], "attrs": {"data": [1.0, 2.0, 3.0, 4.0], "requires_grad": True}},
        {"op": "mul", "in": ["w", "w"], "out": ["square"]},
        {"op": "sum", "in": ["square"], "out": ["loss"]},
    ]
}


def message(method: str, path: str, body: Any = None) -> bytes:
    """The bytes of a request."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nAccept: */*\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def read(connection: socket.socket) -> bytes:
    """Read some data. Raises ConnectionError if the server has closed the connection."""
    data = connection.recv(2**16)
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data


def receive(connection: socket.socket) -> bytes:
    """Read the answer to one request and return its body. Raises RuntimeError unless it is a success."""
    data = read(connection)
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += read(connection)
    at = data.lower().index(b"content-length:") + len(b"content-length:")
    size = int(data[at : data.index(b"\r\n", at)])
    while len(data) < end + 4 + size:
        data += read(connection)
    if data[9:10] != b"2":
        raise RuntimeError(data.decode(errors="replace"))
    return data[end + 4 :]


class Requests:
    """Sends one request again and again, over one or several connections at the same time."""

    def __init__(self, port: int, content: bytes, clients: int, stack: ExitStack) -> None:
        self._content = content
        self._ready = stack.enter_context(selectors.DefaultSelector())
        self._connections = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(clients)]
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ready.register(connection, selectors.EVENT_READ)

    def seconds(self, count: int) -> float:
        """Send ``count`` requests and return the seconds until all answers arrived."""
        begun = perf_counter()
        if len(self._connections) == 1:
            (connection,) = self._connections
            for _ in range(count):
                connection.sendall(self._content)
                receive(connection)
            return perf_counter() - begun
        for connection in self._connections:
            connection.sendall(self._content)
        left, unsent = count, count - len(self._connections)
        while left > 0:
            for key, _ in self._ready.select():
                connection = key.fileobj  # type: ignore[assignment]
                receive(connection)
                left -= 1
                if unsent > 0:
                    connection.sendall(self._content)
                    unsent -= 1
        return perf_counter() - begun


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Run this process, and the processes that it starts, on these cores, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores() -> tuple[set[int], set[int]]:
    """One core for the servers, and the others for the client."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {usable[0]}, set(usable[1:] or usable)


@contextmanager
def sides(row: str, clients: int) -> Iterator[tuple[Side, Side]]:
    """A row's request to a Telegrad server and to the bare app."""
    method, path, body = ROWS[row]
    servers, client = cores()
    with ExitStack() as stack:
        with pinned(servers):
            folder = stack.enter_context(TemporaryDirectory())
            url = stack.enter_context(member("serve", f"--database-url=sqlite:///{Path(folder) / 'none.db'}"))[0]
            bare = stack.enter_context(serving(str(FOLDER / "rest_bare.py")))
        stack.enter_context(pinned(client))
        port = urlsplit(url).port or 80
        with socket.create_connection((LOOPBACK, port)) as connection:
            connection.sendall(message("POST", "/v1/sessions", {}))
            session = f"/v1/sessions/{json.loads(receive(connection))['id']}"
            connection.sendall(message("POST", f"{session}/programs", PREPARATION))
            receive(connection)
        ours = Requests(port, message(method, session + path, body), clients, stack)
        yield ours, Requests(bare, message(method, path, body), clients, stack)


def suite(row: str, limit: float, clients: int = 1) -> Timed:
    """The comparison of a row."""
    name = f"REST: {row}" if clients == 1 else f"REST: {row}, {clients} connections, per request"
    against = BARE_GET if row.startswith("GET") else BARE
    return Timed(name, against, limit, partial(sides, row, clients), block=max(50, 4 * clients))


SUITES = [
    *(suite(row, 0.8 if row.startswith("GET") else 1.1) for row in ROWS),
    suite("op", 1.111, CLIENTS),  # at least 0.9 of the requests a second
]
