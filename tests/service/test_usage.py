"""What tenants have used: ``GET /v1/usage`` and ``telegrad top``.

Internals: several tenants need no keys if the ledger is asked directly.
"""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

import telegrad as tg
from telegrad_engine.program import parse_program
from telegrad_service.app import create_app
from telegrad_service.hosting.sequence import HostedSession
from telegrad_service.observability.metrics import MAX_TENANTS, Ledger
from telegrad_service.settings import Settings
from telegrad_service.tenants.principal import Principal

from ..in_process import server_with, telegrad
from .conftest import SessionClient, problem
from .raw_http import ask, request
from .streams import UP, Talk, fetch


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return telegrad("top", *arguments, **environment)


def test_what_was_used_and_the_table_of_it() -> None:
    with server_with() as url, httpx.Client(base_url=url, timeout=240) as client:
        assert client.get("/v1/usage").json()["items"] == []
        session = SessionClient(client)
        session.run({"op": "ones", "out": ["x"], "attrs": {"size": [1000]}}, fetch("x"))
        talk = Talk(session)
        talk.ask(1, {"op": "neg_", "in": ["x"]})
        answer = client.get("/v1/usage").json()
        assert datetime.fromisoformat(answer["since"]) < datetime.now(UTC) and answer["next_cursor"] is None
        (used,) = answer["items"]
        counts = {name: used[name] for name in ("tenant", "sessions", "sessions_created", "programs", "instructions")}
        assert counts == {"tenant": "local", "sessions": 1, "sessions_created": 1, "programs": 2, "instructions": 3}
        assert used["seconds"] > 0 and used["tensor_bytes"] >= 4000 and used["sent_bytes"] > 4000
        assert used["received_bytes"] > 0 and used["requests"] >= 3
        talk.socket.close()
        client.delete(session.path)
        (after,) = client.get("/v1/usage").json()["items"]
        assert (after["sessions"], after["tensor_bytes"], after["instructions"]) == (0, 0, 3)
        shown = top("--once", "--url", url)
        assert shown.returncode == 0, shown.stderr
        assert top("--once", TELEGRAD_URL=url).stdout.split()[:2] == shown.stdout.split()[:2] == [url, "Telegrad"]
        header, row = shown.stdout.splitlines()[-2:]
        assert header.split()[:3] == ["TENANT", "SESSIONS", "PROGRAMS"] and row.split()[:3] == ["local", "0", "2"]


@pytest.mark.full
def test_top_says_why_there_is_no_table(url: str) -> None:
    for arguments, words in (
        (("--url", "http://127.0.0.1:1"), "cannot reach http://127.0.0.1:1: "),
        (("--url", "local://"), "starts with http:// or https://"),
        (("--url", f"{url}/docs"), "404 nothing is served at"),
        (("--url", f"{url}/healthz?"), "does not answer as a Telegrad server"),
        (("--interval-s", "0"), "interval_s"),
    ):
        answer = top("--once", *arguments)
        assert answer.returncode != 0 and words in answer.stderr and "Traceback" not in answer.stderr, answer.stderr


@pytest.mark.full
def test_commands_trust_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, certificate = str(tmp_path / "ca.pem"), str(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    with server_with(tls_cert=certificate) as url:
        for words in (("top", "--once"), ("sessions", "list")):
            assert telegrad(*words, "--url", url, "--ca", ca).returncode == 0
            assert telegrad(*words, TELEGRAD_URL=url, TELEGRAD_CA=ca).returncode == 0
            assert "certificate verify failed" in telegrad(*words, "--url", url).stderr
            unreadable = telegrad(*words, "--url", url, "--ca", str(tmp_path / "none.pem"))
            assert unreadable.returncode == 1 and "certificates cannot be read" in unreadable.stderr
            assert "Traceback" not in unreadable.stderr


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_the_live_table_ends_with_ctrl_c(url: str, client: httpx.Client) -> None:
    def requests() -> float:
        metrics = client.get("/metrics").text
        found = re.search(
            r'^telegrad_http_requests_total{method="GET",route="/v1/usage",status="200"} (.*)$', metrics, re.M
        )
        return float(found[1]) if found else 0.0

    before, deadline = requests(), time.monotonic() + 60
    command = [sys.executable, "-m", "telegrad_service.cli", "top", "--url", url, "--interval-s", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while requests() < before + 3:
            assert process.poll() is None and time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "") and "TENANT" in output


async def usage_of(app: Any) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return (await client.get("/v1/usage")).json()["items"]


def test_a_tenant_sees_its_own_usage_and_an_administrator_all() -> None:
    app = create_app(Settings())
    for tenant in ("a", "b", "c"):
        app.state.host.ledger.count_request(tenant, 1, 1)

    def seen(tenant: str, *scopes: Any) -> list[str]:
        app.state.authenticator.remembered = lambda header: Principal(tenant, "key", frozenset(scopes))
        return [item["tenant"] for item in asyncio.run(usage_of(app))]

    assert seen("b", "read", "sessions", "functions") == ["b"]
    assert seen("new", "read") == ["new"]
    assert seen("b", "read", "admin") == ["a", "b", "c"]


def ran(session: HostedSession, times: int) -> None:
    for _ in range(times):
        session.run(parse_program([UP | {"attrs": {"data": [1.0]}}, {"op": "free", "in": [["x"]]}]))


def test_a_program_that_outlives_its_session_is_counted() -> None:
    ledger, session = Ledger(), HostedSession()
    account = ledger.opened("a", session)
    account.sent += 7
    ran(session, 2)
    ledger.ended["deleted"] += 1  # the program that still runs holds the session
    ran(session, 3)
    assert ledger.totals()["a"].programs == 5
    del session
    gc.collect()
    found = ledger.totals()["a"]
    assert (found.programs, found.instructions, found.stream_sent, found.tensor_bytes) == (5, 10, 7, 0)
    assert ledger.total().statistics.families == {"tensor": 5, "free": 5}
    assert ledger.totals("b") == {}


@pytest.mark.full
def test_more_tenants_than_are_counted_one_by_one() -> None:
    ledger = Ledger()
    for number in range(MAX_TENANTS + 5):
        ledger.count_request(f"tenant-{number}", 1, 2)
    session = HostedSession()
    ledger.opened(f"tenant-{MAX_TENANTS}", session)
    ran(session, 1)
    found = ledger.totals()
    assert len(found) == MAX_TENANTS + 1
    assert (found[None].requests, found[None].received, found[None].programs) == (5, 5, 1)
    assert found["tenant-0"].requests == 1 and ledger.total().requests == MAX_TENANTS + 5


@pytest.mark.full
def test_pages(client: httpx.Client, session: SessionClient) -> None:
    whole = client.get("/v1/usage").json()["items"]
    page = client.get("/v1/usage", params={"limit": 1}).json()
    assert [item["tenant"] for item in page["items"]] == [whole[0]["tenant"]] and page["next_cursor"] is None
    problem(client.get("/v1/usage", params={"cursor": "zzz"}), 422, "invalid-value")
    assert client.get("/v1/usage", params={"limit": 0}).status_code == 422


@pytest.mark.full
@pytest.mark.parametrize("path", ["/v1/usage", "/metrics"])
def test_no_page_of_another_site_reads_it(url: str, path: str) -> None:
    assert ask(url, request("GET", path, "Origin: http://evil.example")).startswith(b"HTTP/1.1 403")


def test_the_sdk_is_counted_as_any_client(url: str, client: httpx.Client) -> None:
    before = client.get("/v1/usage").json()["items"][0]["programs"]
    with tg.connect(url):
        assert tg.ones(3).sum().item() == 3.0
    assert client.get("/v1/usage").json()["items"][0]["programs"] > before


@pytest.mark.one_process("tests/service/cluster/test_gateway.py has the list of a gateway")
def test_a_server_without_workers_is_its_own(client: httpx.Client) -> None:
    answer = client.get("/v1/workers").json()
    (own,) = answer["items"]
    assert (own["name"], own["url"], own["state"], answer["next_cursor"]) == ("server", None, "ready", None)
    assert own["sessions"] == len(client.get("/v1/sessions").json()["items"]) and own["used_bytes"] >= 0
    assert "cpu" in own["device"].split(", ")
