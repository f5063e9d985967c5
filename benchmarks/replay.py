"""A load generator: records the messages of an SDK session once, and replays them in many sessions at the same time.

Replayed messages cost a client a system call each, so that the servers get the cores.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.utils import apply_mask

import telegrad as tg
from telegrad.transport.websocket import WebSocket
from telegrad_engine.program.frames import BINARY, frame_header, frame_size
from telegrad_service.launch import running_server

from .compiling import settle
from .timing import Call

WINDOW = 4
"""How many messages of a session are in flight, as the SDK has at first."""
RECEIVED = 2**20
MAX_WAIT_S = 60.0


class Recording(NamedTuple):
    """The frames of a session: those that prepare it, and those of its training steps."""

    first: Sequence[bytes]
    then: Sequence[bytes]
    steps: int
    """How many steps the second part has."""


def record(prepare: Callable[[], Call], steps: int) -> Recording:
    """Record a session in which ``prepare`` returns a training step that is taken ``steps`` times.

    Before that, it is taken until its programs are planned.
    """
    with running_server() as url, _recorded() as frames, tg.connect(url) as opened:
        turn = prepare()
        settle(opened, turn)
        warm = len(frames)
        for _ in range(steps):
            turn()
        return Recording(frames[:warm], frames[warm:], steps)


@contextmanager
def _recorded() -> Iterator[list[bytes]]:
    """A list that gets each message that is sent within the block, as a masked frame."""
    frames: list[bytes] = []
    send = WebSocket.send

    def noted(self: WebSocket, body: Sequence[bytes | memoryview]) -> None:
        message, key = b"".join(body), os.urandom(4)
        frames.append(frame_header(BINARY, len(message), key) + apply_mask(message, key))
        send(self, body)

    WebSocket.send = noted  # type: ignore[method-assign]
    try:
        yield frames
    finally:
        WebSocket.send = send  # type: ignore[method-assign]


class Load:
    """Sessions that replay a recording at the same time; ``direct`` ones at their workers, past the gateway."""

    def __init__(self, url: str, recording: Recording, sessions: int, direct: bool = False) -> None:
        self._url, self._recording, self._sessions, self._direct = url, recording, sessions, direct

    @property
    def steps(self) -> int:
        """How many steps one turn takes."""
        return self._recording.steps * self._sessions

    def seconds(self, count: int) -> float:
        """The seconds that all sessions together take for ``count`` steps: those of the recording, in new sessions.

        Raises ValueError for any other number, and RuntimeError if a program fails.
        """
        if count != self.steps:
            raise ValueError(f"the recording has {self.steps} steps, not {count}")
        with ExitStack() as stack:
            replays = [stack.enter_context(_replay(self._url, self._direct)) for _ in range(self._sessions)]
            run(replays, self._recording.first)
            began = time.perf_counter()
            run(replays, self._recording.then)
            return time.perf_counter() - began


class Replay:
    """One connection to a session's stream."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames: Sequence[bytes] = ()
        self._next = self._written = self._answers = 0
        self._skipped = 0
        """Bytes of a payload that are still to arrive."""
        self._header = b""

    def begin(self, frames: Sequence[bytes]) -> None:
        """Send these frames from now on."""
        self._frames, self._next, self._written, self._answers = frames, 0, 0, 0

    @property
    def done(self) -> bool:
        """Whether all of them are answered."""
        return self._answers == len(self._frames)

    def write(self) -> bool:
        """Send as many frames as may be in flight; whether the connection takes no more for now."""
        while self._next < len(self._frames) and self._next - self._answers < WINDOW:
            frame = self._frames[self._next]
            try:
                self._written += self.connection.send(memoryview(frame)[self._written :])
            except BlockingIOError:
                return True
            if self._written == len(frame):
                self._next, self._written = self._next + 1, 0
        return False

    def read(self) -> None:
        """Count the answers that have arrived. Raises RuntimeError if one is a problem."""
        data = self.connection.recv(RECEIVED)
        if not data:
            raise RuntimeError("the connection was closed")
        while data:
            if self._skipped:
                passed = min(self._skipped, len(data))
                self._skipped -= passed
                data = data[passed:]
                self._answers += not self._skipped
                continue
            self._header += data[:1]
            data = data[1:]
            found = frame_size(self._header)
            if found is not None and self._header[0] != BINARY:
                raise RuntimeError(f"not an answer: {(self._header + data)[:300]!r}")
            if found is not None:
                self._skipped, self._header = found[1], b""


def run(replays: Sequence[Replay], frames: Sequence[bytes]) -> None:
    """Send frames on all connections, and wait until all are answered. Raises RuntimeError."""
    with selectors.DefaultSelector() as selector:
        for each in replays:
            each.begin(frames)
            selector.register(each.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
        waiting = len(replays)
        while waiting:
            ready = selector.select(MAX_WAIT_S)
            if not ready:
                raise RuntimeError(f"no answer within {MAX_WAIT_S:g} s")
            for key, events in ready:
                replay: Replay = key.data
                if events & selectors.EVENT_READ:
                    replay.read()
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if replay.write() else 0)
                if replay.done:
                    selector.unregister(replay.connection)
                    waiting -= 1
                elif wanted != key.events:
                    selector.modify(replay.connection, wanted, replay)


@contextmanager
def _replay(url: str, direct: bool) -> Iterator[Replay]:
    """A connection to the stream of a new session, which ends with the block."""
    session = _request(url, "POST", "/v1/sessions", "{}")
    path = f"/v1/sessions/{session['id']}"
    where, headers = url, {}
    if direct:
        endpoint = _request(url, "GET", f"{path}/endpoint")
        where, headers = endpoint["url"], {"Authorization": f"Bearer {endpoint['token']}"}
    with _opened(where, f"{path}/stream?sender=replay", headers) as connection:
        yield Replay(connection)
    _request(url, "DELETE", path)


def _request(url: str, method: str, path: str, body: str | None = None) -> Any:
    """The answer to a request, from JSON. Raises RuntimeError unless it succeeds."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{answer.status}: {content[:200]!r}")
    return json.loads(content) if content else None


@contextmanager
def _opened(url: str, target: str, headers: dict[str, str]) -> Iterator[socket.socket]:
    """A WebSocket after its handshake and the greeting, not blocking. Raises RuntimeError if it is refused."""
    address = urlsplit(url)
    fixed = {
        "Host": address.netloc,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (fixed | headers).items())]
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        with connection.makefile("rb") as answer:
            status = answer.readline()
            if b" 101 " not in status:
                raise RuntimeError(f"no stream: {status!r}")
            while answer.readline().strip():
                pass
            _, size = answer.read(2)
            size = int.from_bytes(answer.read(2), "big") if size == 126 else size
            answer.read(size)
        connection.setblocking(False)
        yield connection
