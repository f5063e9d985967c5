"""Requests that no library would write, on connections of their own."""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
TIMEOUT_S = 240


def dial(url: str) -> socket.socket:
    """A connection on which nothing was sent."""
    address = urlsplit(url)
    assert address.hostname is not None and address.port is not None
    return socket.create_connection((address.hostname, address.port), timeout=TIMEOUT_S)


def request(method: str, path: str, *lines: str, host: str | None = "localhost", body: bytes = b"") -> bytes:
    """A request with these header lines."""
    head = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"]), *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def upgrade(path: str, *lines: str) -> bytes:
    """The request for a stream."""
    return request("GET", path, *UPGRADE.strip().split("\r\n"), *lines)


def read_all(connection: socket.socket) -> bytes:
    """What the server still sends until it closes the connection."""
    found = b""
    try:
        while chunk := connection.recv(65536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


def status(answer: bytes) -> int:
    """The status of an answer; 0 of none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def document(answer: bytes) -> dict[str, Any]:
    """The problem document in an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    found: dict[str, Any] = json.loads(body)
    return found


def read_answer(connection: socket.socket) -> bytes:
    """One answer, whole; less if the connection ends before."""
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
        head, end, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            break
    return found


def ask(url: str, data: bytes) -> bytes:
    """The answer to one request."""
    with dial(url) as connection:
        connection.sendall(data)
        return read_answer(connection)


def leave(url: str, data: bytes, abruptly: bool) -> None:
    """Send a request and be gone before it is answered, with a FIN or a RST."""
    with dial(url) as connection:
        connection.sendall(data)
        if abruptly:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
