"""Bodies that are too large, too deep or no JSON at all; the session is unharmed by each."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ..in_process import server_with
from .conftest import SessionClient, problem
from .raw_http import ask, leave, request, status

JSON = {"content-type": "application/json"}
OF_JSON = "Content-Type: application/json"
PATHS = ["/tensors", "/ops/add", "/backward", "/programs"]
MIB = 2**20


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b"[" * 50_000,
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"data": ' + b"9" * 5000 + b"}",
        b'"' + b'\\"' * 100_000,
    ],
    ids=lambda body: body[:10].decode("latin-1"),
)
def test_what_is_no_json(session: SessionClient, path: str, body: bytes) -> None:
    answer = session.request("POST", path, content=body, headers=JSON)
    problem(answer, 400, "malformed-request")
    session.assert_usable()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b"null", b"[]", b"1", b'""', b"{}", b"", b'{"\\ud800": 1}', b'{"id": "\\ud800"}'])
def test_json_of_another_shape(session: SessionClient, path: str, body: bytes) -> None:
    answer = session.request("POST", path, content=body, headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    session.assert_usable()


def test_texts_that_are_no_unicode(client: httpx.Client) -> None:
    answer = client.post("/v1/sessions", content=b'{"name": "\\ud800"}', headers=JSON)
    assert "unicode" in problem(answer, 422, "invalid-argument")["detail"]


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A server with small limits."""
    with server_with(max_body_bytes=2 * MIB, max_json_bytes=MIB, max_session_bytes=4 * MIB) as url:
        yield url


@pytest.fixture
def small_session(small: str) -> Iterator[SessionClient]:
    with httpx.Client(base_url=small, timeout=240) as client:
        yield SessionClient(client)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("media_type", "limit"), [("application/json", MIB), ("application/vnd.safetensors", 2 * MIB)])
def test_bodies_over_the_limit(small_session: SessionClient, media_type: str, limit: int, streamed: bool) -> None:
    body = b" " * (limit + 1)
    content = (body[i : i + 65536] for i in range(0, len(body), 65536)) if streamed else body
    answer = small_session.request("POST", "/programs", content=content, headers={"content-type": media_type})
    assert str(limit) in problem(answer, 413, "too-large")["detail"]
    small_session.assert_usable()


def test_a_body_at_the_limit_is_read(small_session: SessionClient) -> None:
    body = b'{"instructions": []}'.ljust(MIB)
    assert small_session.request("POST", "/programs", content=body, headers=JSON).status_code == 200


def test_an_endless_body_is_cut_short(small: str, small_session: SessionClient) -> None:
    """The answer comes before the body is over."""
    data = request("POST", f"{small_session.path}/programs", OF_JSON, f"Content-Length: {2**60}")
    assert status(ask(small, data)) == 413
    small_session.assert_usable()


def test_a_body_that_ends_early(small: str, small_session: SessionClient) -> None:
    leave(
        small, request("POST", f"{small_session.path}/programs", OF_JSON, "Content-Length: 1000") + b"{", abruptly=False
    )
    small_session.assert_usable()


def test_tensors_over_the_limit(small_session: SessionClient) -> None:
    million = {"factory": "zeros", "shape": [512, 1024]}
    assert small_session.post("/tensors", {**million, "id": "a"}).status_code == 201
    for attempt in [
        lambda: small_session.post("/tensors", {**million, "shape": [1024, 1024]}),
        lambda: small_session.post("/ops/cat", {"inputs": [["a", "a", "a"]]}),
        lambda: small_session.post("/tensors", {"factory": "ones", "shape": [2**60]}),
    ]:
        assert "bytes" in problem(attempt(), 413, "too-large")["detail"]
    small_session.assert_usable()
    assert small_session.request("DELETE", "/tensors/a").status_code == 204
    assert small_session.get().json()["used_bytes"] == 0
