"""Offers of other protocols: a request with `Upgrade: h2c`, as Java's HTTP client sends it, is an ordinary request."""

from __future__ import annotations

import json

import pytest

from .raw_http import dial, read_answer, request, status

OFFER = "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"
JSON = "Content-Type: application/json"


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.2"])
def test_an_offer_is_ignored_and_the_body_is_read(url: str, pieces: int, protocol: str) -> None:
    body = json.dumps({"name": "offered"}).encode()
    lines = *OFFER, f"Upgrade: {protocol}"
    sent = request("POST", "/v1/sessions", *lines, JSON, body=body)
    ends = {1: [], 2: [len(sent) - len(body)], 3: [40, len(sent) - 4]}[pieces]
    with dial(url) as connection:
        for _ in range(2):
            start = 0
            for end in [*ends, len(sent)]:
                connection.sendall(sent[start:end])
                start = end
            answer = read_answer(connection)
            created = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert (status(answer), created.get("name")) == (201, "offered"), created
            connection.sendall(request("GET", f"/v1/sessions/{created['id']}", *lines))
            answer = read_answer(connection)
            assert (status(answer), json.loads(answer.partition(b"\r\n\r\n")[2])["id"]) == (200, created["id"])


def test_several_requests_in_one_packet(url: str) -> None:
    lines = *OFFER, "Upgrade: h2c"
    offered = request("GET", "/healthz", *lines)
    with dial(url) as connection:
        connection.sendall(offered + request("POST", "/v1/sessions", *lines, JSON, body=b"{}") + offered)
        received = b""
        while received.count(b"HTTP/1.1 ") < 3 or not received.endswith(b"}"):
            received += connection.recv(65536) or pytest.fail(f"closed after {received!r}")
        assert received.count(b"200 OK") == 2
        assert received.count(b"201 Created") == 1
