"""Offers of other protocols: a request with `Upgrade: h2c`, as Java's HTTP client sends it, is an ordinary request."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

OFFER = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n"


def request(method: str, path: str, offer: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{offer}"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def response(connection: socket.socket) -> tuple[int, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536) or pytest.fail(f"closed after {received!r}")
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = int(next(line.split(":")[1] for line in lines if line.startswith("content-length")))
    while len(body) < length:
        body += connection.recv(65536) or pytest.fail(f"closed after {received!r}")
    return int(lines[0].split()[1]), body


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.2"])
def test_an_offer_is_ignored_and_the_body_is_read(url: str, pieces: int, protocol: str) -> None:
    body = json.dumps({"name": "offered"}).encode()
    sent = request("POST", "/v1/sessions", f"{OFFER}Upgrade: {protocol}\r\n", body)
    ends = {1: [], 2: [len(sent) - len(body)], 3: [40, len(sent) - 4]}[pieces]
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        for _ in range(2):
            start = 0
            for end in [*ends, len(sent)]:
                connection.sendall(sent[start:end])
                start = end
            status, answer = response(connection)
            created = json.loads(answer)
            assert (status, created.get("name")) == (201, "offered"), created
            connection.sendall(request("GET", f"/v1/sessions/{created['id']}", f"{OFFER}Upgrade: {protocol}\r\n"))
            status, answer = response(connection)
            assert (status, json.loads(answer)["id"]) == (200, created["id"])


def test_several_requests_in_one_packet(url: str) -> None:
    address = urlsplit(url)
    offered = request("GET", "/healthz", f"{OFFER}Upgrade: h2c\r\n")
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(offered + request("POST", "/v1/sessions", f"{OFFER}Upgrade: h2c\r\n", b"{}") + offered)
        received = b""
        while received.count(b"HTTP/1.1 ") < 3 or not received.endswith(b"}"):
            received += connection.recv(65536) or pytest.fail(f"closed after {received!r}")
        assert [line.split()[1] for line in received.split(b"HTTP/1.1 ")[1:]] and received.count(b"200 OK") == 2
        assert received.count(b"201 Created") == 1
