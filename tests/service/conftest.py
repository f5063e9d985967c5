"""A real server on loopback for all of these tests."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from ..in_process import server_with
from ..servers import running
from . import documented
from .api_keys import client_with
from .databases import database, postgres, postgresql  # noqa: F401  # fixtures


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server."""
    with running() as (address, _):
        yield address


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[httpx.Client]:
    # Whatever these tests do: no operation answers with what is not documented.
    with httpx.Client(base_url=url, timeout=240, event_hooks={"response": [documented.check]}) as client:
        yield client


@contextmanager
def served(*flags: str, **options: Any) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A client of a server that is started with these flags, and the server's process."""
    with running(*flags, **options) as (address, process), client_with(address, None) as client:
        yield client, process


@contextmanager
def served_with(**settings: object) -> Iterator[httpx.Client]:
    """A client of a server with these settings, which has no process of its own."""
    with server_with(**settings) as url, client_with(url, None) as client:
        yield client


class SessionClient:
    """A session on the server, and requests below its address."""

    def __init__(self, client: httpx.Client, **options: Any) -> None:
        created = client.post("/v1/sessions", json=options)
        assert created.status_code == 201, created.text
        self._at(client, created.json()["id"])

    def _at(self, client: httpx.Client, session_id: str) -> None:
        self.client, self.id, self.path = client, session_id, f"/v1/sessions/{session_id}"

    @classmethod
    def of(cls, client: httpx.Client, session_id: str) -> SessionClient:
        """A session that exists."""
        found = cls.__new__(cls)
        found._at(client, session_id)
        return found

    def request(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        return self.client.request(method, self.path + path, **options)

    def get(self, path: str = "", **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, json=json, **options)

    def tensor(self, id: str, data: Any, **options: Any) -> dict[str, Any]:
        answer = self.post("/tensors", {"id": id, "data": data, **options})
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def data(self, id: str) -> Any:
        answer = self.get(f"/tensors/{id}")
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def run(self, *instructions: dict[str, Any], **options: Any) -> httpx.Response:
        return self.post("/programs", {"instructions": list(instructions)}, **options)

    def assert_usable(self) -> None:
        """The session still computes."""
        answer = self.run(
            {"op": "tensor", "out": ["probe"], "attrs": {"data": [1.5]}},
            {"op": "add", "in": ["probe", 1], "out": ["probe_sum"]},
            {"op": "fetch", "in": [["probe_sum"]]},
            {"op": "free", "in": [["probe", "probe_sum"]]},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["values"]["probe_sum"]["data"] == [2.5]


class Sent:
    """A program that is sent as a request, which the server has read: the program runs, or waits for its turn."""

    def __init__(self, session: SessionClient, *instructions: dict[str, Any], headers: str = "") -> None:
        body = httpx.Request("POST", "http://x/", json={"instructions": list(instructions)}).content
        url = session.client.base_url
        self._socket = socket.create_connection((url.host, url.port))
        start = f"POST {session.path}/programs HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{start}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        for _ in range(10):  # which the event loop answers behind it
            assert session.client.get("/healthz").status_code == 200

    def answer(self) -> httpx.Response:
        with self._socket, HTTPResponse(self._socket, method="POST") as answer:
            answer.begin()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())

    def close(self) -> None:
        """Go away without the answer."""
        self._socket.close()


@pytest.fixture
def session(client: httpx.Client) -> Iterator[SessionClient]:
    made = SessionClient(client)
    yield made
    client.delete(made.path)


@pytest.fixture
def new_session(client: httpx.Client) -> Iterator[Callable[..., SessionClient]]:
    made: list[SessionClient] = []

    def create(**options: Any) -> SessionClient:
        made.append(SessionClient(client, **options))
        return made[-1]

    yield create
    for each in made:
        client.delete(each.path)


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """Assert that a response is this problem document, and return it."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    found: dict[str, Any] = response.json()
    assert (response.status_code, found["type"]) == (status, f"urn:telegrad:problem:{slug}"), found
    assert found["status"] == status
    assert found["title"] and found["detail"]
    assert {"instruction", "op", "ids", "shapes"} <= set(found)
    return found
