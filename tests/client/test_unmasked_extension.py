"""Frames are sent unmasked if nothing is between the SDK and the server, and masked if a proxy may be."""

from __future__ import annotations

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
NAME = "telegrad-unmasked"
OFFER = re.compile(rf"{NAME}; address=([0-9a-f]+); port=([0-9]+)".encode())


class Impostor(Cutter):
    """A proxy that replaces the client's address and port in the offer with its own."""

    def introduced(self, first: bytes, end: tuple[str, int]) -> bytes:
        return OFFER.sub(offer(*end).encode(), first)


def offer(address: str, port: int) -> str:
    return f"{NAME}; address={socket.inet_aton(address).hex()}; port={port}"


def used() -> None:
    """Transfer a long message, one in many pieces, and short ones."""
    x = tg.tensor(X)
    np.testing.assert_array_equal((x + 1).numpy(), X + 1)
    many = [tg.tensor(np.full(3, i, np.float32)) for i in range(700)]
    assert tg.stack(many).sum().item() == 3 * sum(range(700))


def test_what_is_between_sees_masked_frames(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        used()
        assert OFFER.search(proxy.sent)
        assert RECOGNIZED not in proxy.sent and len(proxy.sent) > X.nbytes


def test_to_a_server_at_the_other_end_they_go_as_they_are(server: str) -> None:
    with Impostor(server) as proxy, tg.connect(proxy.url, stream=True):
        used()
        assert RECOGNIZED in proxy.sent


def handshake(server: str, offered: Callable[[tuple[str, int]], str]) -> str:
    """Send a handshake with an offer for the client's address and port, and return the head of the server's answer."""
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
            f"Sec-WebSocket-Extensions: {offered(connection.getsockname())}",
        )
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(2**16)
    httpx.delete(f"{server}/v1/sessions/{id}")
    return received.partition(b"\r\n\r\n")[0].decode().lower()


@pytest.mark.parametrize("prefix", ["", "permessage-deflate, ", "x-unknown; a=1, "])
def test_the_server_accepts_what_names_the_clients_end(server: str, prefix: str) -> None:
    head = handshake(server, lambda end: prefix + offer(*end))
    assert head.startswith("http/1.1 101") and f"sec-websocket-extensions: {NAME}" in head


@pytest.mark.parametrize(
    "offered",
    [
        lambda end: offer(end[0], end[1] ^ 1),
        lambda end: offer("127.0.0.2", end[1]),
        lambda end: offer("10.0.0.1", end[1]),
        lambda end: NAME,
        lambda end: f"{NAME}; port={end[1]}",
        lambda end: f"{offer(*end)}; more=1",
        lambda end: f"{NAME}; address=; port=",
        lambda end: f"{NAME}; address=zz; port=-1",
    ],
    ids=["port", "address", "elsewhere", "none", "half", "more", "empty", "nonsense"],
)
def test_and_nothing_else(server: str, offered: Callable[[tuple[str, int]], str]) -> None:
    head = handshake(server, offered)
    assert head.startswith(("http/1.1 101", "http/1.1 400")) and NAME not in head
