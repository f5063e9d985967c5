"""Clients of a session's stream that are not ours: one by a library, one that can write anything.

Internals: sessions as a host keeps them, for tests without a server.
"""

from __future__ import annotations

import json
import os
import struct
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from telegrad_service.hosting.sequence import HostedSession, SequenceRecords

from . import raw_http
from .conftest import SessionClient

TIMEOUT_S = 240
PING, PONG = 0x89, 0x8A
"""The first bytes of these frames."""


def dial(session: SessionClient, query: str = "", **options: Any) -> ClientConnection:
    """A connection to the session's stream."""
    address = str(session.client.base_url).rstrip("/").replace("http", "ws", 1)
    return connect(f"{address}{session.path}/stream{query}", compression=None, max_size=None, **options).__enter__()  # type: ignore[no-any-return]


class Talk:
    """One connection, after the server's greeting."""

    def __init__(self, session: SessionClient, query: str = "") -> None:
        self.socket = dial(session, query)
        self.greeting = json.loads(self.socket.recv(TIMEOUT_S))

    def send(self, number: int, *instructions: dict[str, Any], seen: int | None = None, **arrays: Any) -> None:
        self.socket.send(container(number, *instructions, seen=seen, **arrays))

    def receive(self) -> Any:
        """A problem document, or the metadata and tensors of an answer."""
        frame = self.socket.recv(TIMEOUT_S)
        if isinstance(frame, str):
            return json.loads(frame)
        size = int.from_bytes(frame[:8], "little")
        metadata = json.loads(frame[8 : 8 + size])["__metadata__"]
        return {"sequence": int(metadata["sequence"]), **json.loads(metadata["answer"]), "arrays": load(frame)}

    def ask(self, number: int, *instructions: dict[str, Any], **options: Any) -> Any:
        self.send(number, *instructions, **options)
        return self.receive()

    def say(self, frame: bytes) -> Any:
        self.socket.send(frame)
        return self.receive()

    def assert_read(self) -> None:
        """The server has read what was sent, so that it runs or waits for its turn."""
        assert self.socket.ping().wait(TIMEOUT_S)

    def closed(self) -> int:
        """The code with which the server closes; what it says before is of no matter."""
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                self.socket.recv(TIMEOUT_S)
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code


def container(number: Any, *instructions: dict[str, Any], seen: int | None = None, **arrays: Any) -> bytes:
    metadata = {"program": json.dumps(instructions), "seen": str(number - 1 if seen is None else seen)}
    return save(arrays, {**metadata, "sequence": str(number)})


def remembered(number: int, ids: list[str], *instructions: dict[str, Any]) -> bytes:
    """A call of a template, which has ``_0``, ``_1`` and so on in place of these ids."""
    text = json.dumps(instructions)
    digest = sha256(text.encode()).hexdigest()
    labels = {f"template.{digest}": text, "calls": json.dumps([{"template": digest, "ids": ids}])}
    return save({}, {**labels, "seen": str(number - 1), "sequence": str(number)})


UP = {"op": "tensor", "outputs": ["x"]}
UP_Y = {"op": "tensor", "outputs": ["y"]}
ADD = {"op": "add_", "inputs": ["x", 1]}
BAD = {"op": "neg", "inputs": ["nope"], "outputs": ["never"]}


def fetch(*names: str) -> dict[str, Any]:
    return {"op": "fetch", "inputs": [list(names)]}


def is_problem(found: dict[str, Any], status: int, slug: str, number: int | None) -> None:
    assert (found["status"], found["type"], found["sequence"]) == (status, f"urn:telegrad:problem:{slug}", number)
    assert found["title"] and found["detail"]


class Raw:
    """A connection on which anything can be written."""

    def __init__(self, session: SessionClient, timeout: float = TIMEOUT_S) -> None:
        self.socket = raw_http.dial(str(session.client.base_url))
        self.socket.settimeout(timeout)
        self.socket.sendall(raw_http.upgrade(f"{session.path}/stream"))
        self.file = self.socket.makefile("rb")
        assert b"101" in self.file.readline()
        while self.file.readline() != b"\r\n":
            pass
        assert self.frame()[0] == 0x81

    def frame(self) -> tuple[int, bytes]:
        """The first byte and the payload of the next frame; of none, at the end."""
        head = self.file.read(2)
        if len(head) < 2:
            return 0, b""
        length = head[1]
        if length > 125:
            length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
        return head[0], self.file.read(length)

    def message(self) -> tuple[int, bytes]:
        """The next frame that is no ping."""
        while (found := self.frame())[0] == 0x89:
            pass
        return found

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def written(first: int, payload: bytes, masked: bool = True, mask: bytes | None = None) -> bytes:
    """A frame as a client writes it."""
    size, flag = len(payload), 0x80 * masked
    if size < 126:
        head = struct.pack("!BB", first, flag | size)
    elif size < 2**16:
        head = struct.pack("!BBH", first, flag | 126, size)
    else:
        head = struct.pack("!BBQ", first, flag | 127, size)
    if not masked:
        return head + payload
    mask = mask or os.urandom(4)
    repeated = np.resize(np.frombuffer(mask, np.uint8), size)
    return head + mask + (np.frombuffer(payload, np.uint8) ^ repeated).tobytes()


def hosted(**options: Any) -> HostedSession:
    """A session as a host keeps it, with records of its senders."""
    session = HostedSession(**options)
    session.senders = SequenceRecords()
    session.senders.accounts = session.accounts
    return session
