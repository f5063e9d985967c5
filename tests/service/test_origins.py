"""Web pages of others: DNS rebinding, and requests and streams from other origins. On loopback, as everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ..in_process import server_with
from .conftest import SessionClient, problem
from .raw_http import ask, document, request, status, upgrade

EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def told() -> Iterator[str]:
    """A server that was told of names and origins."""
    hosts = "gpu.example.org,*.lab.example"
    with server_with(allowed_host=hosts, cors_origin="https://notebook.example") as url:
        yield url


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/", "/v1/sessions", "/healthz", "/docs", "/nowhere"])
def test_a_name_that_was_made_to_resolve_to_the_server_is_refused(client: httpx.Client, host: str, path: str) -> None:
    found = problem(client.get(path, headers={"host": host}), 421, "unknown-host")
    assert "--allowed-host" in found["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:99", "[::1]:8000", "app.localhost"]
)
def test_loopback_and_addresses_are_known(client: httpx.Client, host: str) -> None:
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["a b", "localhost:port", "user@localhost", "", "[::1", "localhost/x"])
def test_what_is_no_host(client: httpx.Client, host: str) -> None:
    problem(client.get("/healthz", headers={"host": host}), 400, "malformed-request")


def test_a_request_has_one_host(url: str) -> None:
    for data in (request("GET", "/healthz", host=None), request("GET", "/healthz", "Host: localhost")):
        assert status(ask(url, data)) == 400
    assert status(ask(url, b"GET /healthz HTTP/1.0\r\n\r\n")) == 200


def test_names_that_the_server_was_told(told: str) -> None:
    for host, expected in {
        "gpu.example.org": 200,
        "GPU.example.org.:80": 200,
        "a.lab.example": 200,
        "a.b.lab.example": 200,
        "lab.example": 421,
        "evillab.example": 421,
        "gpu.example.org.evil.example": 421,
    }.items():
        assert httpx.get(told + "/healthz", headers={"host": host}).status_code == expected, host


def test_any_name_if_the_operator_says_so() -> None:
    with server_with(allowed_host="*") as url:
        assert httpx.get(url + "/healthz", headers={"host": "whatever.example"}).status_code == 200


@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "http://localhost.evil.example", "nonsense"])
def test_a_page_of_another_origin_makes_no_session(client: httpx.Client, origin: str) -> None:
    before = client.get("/v1/sessions?limit=1000").json()
    problem(client.post("/v1/sessions", headers={"origin": origin}), 403, "forbidden-origin")
    problem(client.get("/v1/sessions", headers={"origin": origin}), 403, "forbidden-origin")
    assert client.get("/v1/sessions?limit=1000").json() == before


def test_a_form_whose_browser_sends_no_origin_makes_no_session(client: httpx.Client) -> None:
    for site in ("cross-site", "same-site"):
        problem(client.post("/v1/sessions", headers={"sec-fetch-site": site}), 403, "forbidden-origin")
    assert client.get("/healthz", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_the_servers_own_pages_may(client: httpx.Client, url: str) -> None:
    answer = client.post("/v1/sessions", headers={"origin": url, "sec-fetch-site": "same-origin"})
    assert answer.status_code == 201
    client.delete(answer.headers["location"])
    # Behind a proxy that speaks TLS.
    proxied = {"host": "localhost", "origin": "https://localhost"}
    assert client.get("/v1/sessions", headers=proxied).status_code == 200


def test_a_page_of_another_origin_gets_no_stream(session: SessionClient, url: str) -> None:
    path = f"{session.path}/stream"
    refused = ask(url, upgrade(path, f"Origin: {EVIL}"))
    assert (status(refused), document(refused)["type"]) == (403, "urn:telegrad:problem:forbidden-origin")
    refused = ask(url, upgrade(path).replace(b"Host: localhost", b"Host: evil.example"))
    assert (status(refused), document(refused)["type"]) == (421, "urn:telegrad:problem:unknown-host")
    assert status(ask(url, upgrade(path, "Origin: http://localhost"))) == 101
    assert status(ask(url, upgrade(path))) == 101


def test_an_origin_that_the_server_was_told(told: str) -> None:
    mine = {"origin": "https://notebook.example"}
    asked = {"access-control-request-method": "PATCH", "access-control-request-headers": "telegrad-sequence"}
    preflight = httpx.options(told + "/v1/sessions", headers=mine | asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == mine["origin"]
    assert "PATCH" in preflight.headers["access-control-allow-methods"]
    assert "telegrad-sequence" in preflight.headers["access-control-allow-headers"]
    made = httpx.post(told + "/v1/sessions", headers=mine, json={})
    assert made.status_code == 201 and made.headers["access-control-allow-origin"] == mine["origin"]
    assert "Location" in made.headers["access-control-expose-headers"]
    assert status(ask(told, upgrade(made.headers["location"] + "/stream", f"Origin: {mine['origin']}"))) == 101
    refused = httpx.options(told + "/v1/sessions", headers={"origin": EVIL} | asked)
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers


def test_without_such_an_origin_no_page_is_told_that_it_may(client: httpx.Client, url: str) -> None:
    assert "access-control-allow-origin" not in client.get("/healthz", headers={"origin": url}).headers
