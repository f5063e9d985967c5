"""Accept and Content-Type, and what HTTP says about addresses and methods.

Internals: the rule for ``Accept`` is tested alone, with all its forms.
"""

from __future__ import annotations

import httpx
import pytest

from telegrad_engine.errors import NotAcceptable, UnsupportedMediaType
from telegrad_service.http.representations import JSON, NPY, SAFETENSORS, accept, media_type_of

from .conftest import SessionClient, problem

OFFERED = (JSON, SAFETENSORS, NPY)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (NPY, NPY),
        (NPY.upper(), NPY),
        ("text/html, application/x-npy;q=0.5", NPY),
        ("application/json;q=0.2, application/x-npy;q=0.9", NPY),
        ("application/json;q=0, */*", SAFETENSORS),
        ("*/*;q=0.1, application/x-npy", NPY),
        ("application/*;q=0.3, application/json;q=0.1", SAFETENSORS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", JSON),
    ],
)
def test_accept(header: str | None, expected: str) -> None:
    assert accept(header, OFFERED) == expected


@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "application/json;q=0",
        "bogus",
        "/",
        ";;;",
        "application/json;q=x",
        "*/*;q=nan",
        "a/b," * 99,
    ],
)
def test_not_acceptable(header: str) -> None:
    with pytest.raises(NotAcceptable, match="application/x-npy"):
        accept(header, OFFERED)


def test_content_type() -> None:
    assert media_type_of("application/json; charset=utf-8", OFFERED) == JSON
    for header in (None, "", "text/plain", "application/jsonx", ";"):
        with pytest.raises(UnsupportedMediaType):
            media_type_of(header, OFFERED)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_every_answer_is_negotiated(session: SessionClient, method: str) -> None:
    headers = {"accept": "image/png", "content-type": "application/json"}
    path = "/backward" if method == "POST" else ""
    problem(session.request(method, path, headers=headers, content=b"{}"), 406, "not-acceptable")
    assert session.get().status_code == 200


@pytest.mark.parametrize("accept", ["application/problem+json", "image/png"])
def test_without_content_nothing_is_negotiated(session: SessionClient, accept: str) -> None:
    """A generated client accepts what the document says: for an operation without content, only problem documents."""
    session.tensor("x", [1.0])
    for path, headers in [("/tensors/x/grad", {}), ("/tensors/x", {"telegrad-sequence": "1"})]:
        answer = session.request("DELETE", path, headers={"accept": accept, **headers})
        assert (answer.status_code, answer.content) == (204, b"")
    answer = session.request("DELETE", "/tensors/x", headers={"accept": accept, "telegrad-sequence": "1"})
    assert answer.status_code == 204, "a repeated request"
    problem(session.request("DELETE", "/tensors/x", headers={"accept": accept}), 404, "unknown-tensor")


@pytest.mark.parametrize("header", ["text/plain", "application/x-www-form-urlencoded", "bogus", "multipart/form-data"])
@pytest.mark.parametrize("path", ["/tensors", "/ops/add", "/backward", "/grad", "/programs"])
def test_media_types_that_are_not_read(session: SessionClient, path: str, header: str) -> None:
    answer = session.request("POST", path, content=b"{}", headers={"content-type": header})
    assert header in problem(answer, 415, "unsupported-media-type")["detail"]


def test_a_body_without_content_type(session: SessionClient) -> None:
    request = session.client.build_request("POST", session.path + "/backward", content=b"{}")
    problem(session.client.send(request), 415, "unsupported-media-type")


def test_a_body_in_chunks_without_content_type_is_not_json(session: SessionClient) -> None:
    body = iter([b'{"tensors": ["x"]}'])
    request = session.client.build_request("POST", session.path + "/backward", content=body)
    detail = problem(session.client.send(request), 422, "invalid-argument")["detail"]
    assert detail == "body: Input should be a valid dictionary or object to extract fields from"


def test_addresses_and_methods(client: httpx.Client) -> None:
    for path in ("/v1", "/v2/sessions", "/v1/sessions/", "/v1/sessions/a/b/c", "/%00", "/v1/ops/%ff"):
        assert client.get(path).status_code == 404
        assert client.get(path).headers["content-type"] == "application/problem+json"
    answer = client.put("/v1/sessions")
    problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["allow"].replace(" ", "").split(",")) == {"GET", "HEAD", "POST"}
    assert client.get("/docs").status_code == 200
    assert client.get("/openapi.json").json()["info"]["title"] == "Telegrad"


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/v1/sessions", "/v1/ops/mul", "/docs", "/openapi.json"])
def test_head_is_get_without_the_body(client: httpx.Client, path: str) -> None:
    got, answer = client.get(path), client.head(path)
    assert (answer.status_code, answer.content) == (got.status_code, b"")
    for name in ("content-type", "content-length"):
        assert answer.headers[name] == got.headers[name]


def test_head_of_what_is_not_there_or_not_read(session: SessionClient) -> None:
    assert session.request("HEAD", "/tensors/nothing").status_code == 404
    assert session.request("HEAD", "/backward").status_code == 405
