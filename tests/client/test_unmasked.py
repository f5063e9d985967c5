"""Frames are sent unmasked if nothing is between the SDK and the server, and masked if a proxy may be."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import telegrad as tg

from .cutting import Cutter

X = np.arange(2**18 + 3, dtype=np.float32)
RECOGNIZED = X[-64:].tobytes()
NAME = "telegrad-client"
NAMED = re.compile(rf"{NAME}: [0-9.]+:[0-9]+".encode())


class Impostor(Cutter):
    """A proxy that replaces the client's address and port in the request with its own."""

    def introduced(self, first: bytes, end: tuple[str, int]) -> bytes:
        return NAMED.sub(named(*end).encode(), first)


def named(address: str, port: int) -> str:
    return f"{NAME}: {address}:{port}"


def used() -> None:
    """Transfer a long message, one in many pieces, one in pieces of odd lengths, and short ones."""
    x = tg.tensor(X)
    np.testing.assert_array_equal((x + 1).numpy(), X + 1)
    many = [tg.tensor(np.full(3, i, np.float32)) for i in range(700)]
    assert tg.stack(many).sum().item() == 3 * sum(range(700))
    odd = [tg.tensor(np.arange(i, dtype=np.uint8)) for i in range(5, 12)]
    assert tg.cat(odd).tolist() == [j for i in range(5, 12) for j in range(i)]


def test_what_is_between_sees_masked_frames(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        used()
        assert NAMED.search(proxy.sent)
        assert RECOGNIZED not in proxy.sent and len(proxy.sent) > X.nbytes


@pytest.mark.one_process("masks are left out on a connection within a machine, and the gateway is in between")
def test_to_a_server_at_the_other_end_they_go_as_they_are(server: str) -> None:
    with Impostor(server) as proxy, tg.connect(proxy.url, stream=True):
        used()
        assert RECOGNIZED in proxy.sent


def allowed(server: str, header: Callable[[tuple[str, int]], str]) -> bool:
    """Whether the greeting allows unmasked frames after a handshake with a header for the client's address and port."""
    url = urlsplit(server)
    id = httpx.post(f"{server}/v1/sessions", json={}).json()["id"]
    with socket.create_connection((url.hostname, url.port), 20) as connection:
        lines = (
            f"GET /v1/sessions/{id}/stream HTTP/1.1",
            f"Host: {url.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            header(connection.getsockname()),
        )
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(2**16)
    httpx.delete(f"{server}/v1/sessions/{id}")
    head, _, greeting = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    return json.loads(greeting[greeting.index(b"{") :]).get("unmasked") is True


@pytest.mark.one_process("masks are left out on a connection within a machine, and the gateway is in between")
def test_the_server_allows_it_if_the_client_names_its_end(server: str) -> None:
    assert allowed(server, lambda end: named(*end))
    assert allowed(server, lambda end: f"X: y\r\n{named(*end)}")


@pytest.mark.parametrize(
    "header",
    [
        lambda end: named(end[0], end[1] ^ 1),
        lambda end: named("127.0.0.2", end[1]),
        lambda end: named("10.0.0.1", end[1]),
        lambda end: "X: y",
        lambda end: f"{NAME}: {end[1]}",
        lambda end: f"{named(*end)}0",
        lambda end: f"{NAME}:",
        lambda end: f"{NAME}: zz:-1",
        lambda end: f"{named(*end)}\r\n{named(end[0], end[1] ^ 1)}",
    ],
    ids=["port", "address", "elsewhere", "none", "half", "more", "empty", "nonsense", "twice"],
)
def test_and_nothing_else(server: str, header: Callable[[tuple[str, int]], str]) -> None:
    assert not allowed(server, header)
