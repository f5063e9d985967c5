"""Untrusted certificates, addresses that clients cannot reach, slow workers, wrong clocks and full disks.

Internals: only in the directory can a worker have another address for gateways than for clients.
"""

from __future__ import annotations

import re
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import httpx
import pytest
import trustme
from sqlalchemy import update
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import telegrad as tg
from telegrad_service.cluster.directory import WorkerRow

from ...servers import free_port
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from .processes import Cluster, Started, answer_of, cluster
from .test_workers import asked, claims_of, streams, token_for

pytestmark = pytest.mark.full


class Certificates(NamedTuple):
    """The files of an authority and of a server's certificate."""

    authority: str
    flags: tuple[str, ...]
    """The flags of a server with the certificate."""


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    known, chain, secret = (str(tmp_path / name) for name in ("authority.pem", "server.pem", "server.key"))
    authority.cert_pem.write_to_path(known)
    for part in issued.cert_chain_pems:
        part.write_to_path(chain, append=True)
    issued.private_key_pem.write_to_path(secret)
    return Certificates(known, ("--tls-cert", chain, "--tls-key", secret))


def metric(started: Started, name: str) -> float:
    """The value of a metric without labels."""
    text = httpx.get(f"{started.url}/metrics", timeout=WAIT_S).text
    return float(re.search(rf"^{name} (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]


# TLS and addresses -------------------------------------------------------------------------------


def test_tls_from_the_client_to_the_gateway_and_from_the_gateway_to_the_worker(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(0) as found:
        worker = found.add_worker(*certificates.flags)
        found.wait_for_workers(1)
        trusting = found.add_gateway(*certificates.flags, "--worker-ca", certificates.authority)
        assert worker.url.startswith("https://") and trusting.url.startswith("https://")
        # The first gateway does not know the authority. It does not send tokens to such a worker.
        refused = problem(found.client.post("/v1/sessions"), 503, "server-busy")
        assert "cannot be reached" in refused["detail"] and worker.url not in refused["detail"]
        monkeypatch.setenv("SSL_CERT_FILE", certificates.authority)  # for the clients here
        with httpx.Client(base_url=trusting.url, timeout=WAIT_S) as client:
            session = SessionClient(client)
            session.assert_usable()
            assert [item["id"] for item in client.get("/v1/sessions").json()["items"]] == [session.id]
            assert client.get("/v1/devices").json()["items"]
        for stream in (True, False):
            with tg.connect(trusting.url, stream=stream):
                assert (tg.ones(2**20) + 1).sum().item() == 2**21
        with tg.connect(trusting.url, direct=True) as direct:
            assert tg.ones(3).sum().item() == 3.0
            assert found.has(worker, direct.id) and (streams(trusting), streams(worker)) == (0.0, 1.0)


def test_the_error_of_a_gateway_names_the_file_of_authorities_that_it_cannot_read(tmp_path: Path) -> None:
    wrong = tmp_path / "nothing.pem"
    with (
        pytest.raises(AssertionError, match=f"authorities of workers cannot be read from {wrong}"),
        cluster(0, gateways=0) as found,
    ):
        found.add_gateway("--worker-ca", str(wrong))


@pytest.mark.parametrize("reason", ["nothing listens", "its certificate is not trusted"])
def test_a_client_that_cannot_reach_the_worker_goes_through_the_gateway(
    certificates: Certificates, reason: str
) -> None:
    with cluster(0, gateways=0) as found, ExitStack() as stack:
        if reason == "nothing listens":
            # The worker gives clients one address, and the gateway uses another.
            port = free_port()
            closed = stack.enter_context(socket.socket())
            closed.bind(("127.0.0.1", 0))  # so that nobody else gets the port
            closed_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
            found.add_worker("--advertise", closed_url, "--port", str(port))
            with found.directory.database.transaction(writes=True) as session:
                session.execute(update(WorkerRow).values(url=f"http://127.0.0.1:{port}"))
            gateway = found.add_gateway()
        else:
            found.add_worker(*certificates.flags)
            gateway = found.add_gateway("--worker-ca", certificates.authority)
        found.wait_for_workers(1)
        with tg.connect(gateway.url, direct=True):
            x = tg.ones(3, requires_grad=True)
            (x * 2).sum().backward()
            assert x.grad is not None and x.grad.tolist() == [2.0] * 3
            assert streams(gateway) == 1.0


# Clocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [
        (20, None),
        (120, "gateway's clock is more than 30 s ahead"),
        (-80, None),  # the token is valid for a minute
        (-3600, "clock is minutes behind"),
    ],
)
def test_tokens_of_a_gateway_whose_clock_differs(
    shared: Cluster, monkeypatch: pytest.MonkeyPatch, ahead_s: float, words: str | None
) -> None:
    session = SessionClient(shared.client)
    session.tensor("n", [1.0])
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + ahead_s)
        token = token_for(shared, claims_of(shared, session.id))
    answer = asked(shared.owner(session.id), f"{session.path}/tensors/n", token)
    if words is None:
        assert answer.json()["data"] == [1.0]
    else:
        assert words in problem(answer, 401, "unauthenticated")["detail"]


def test_a_gateway_whose_tokens_are_refused_does_not_blame_the_client(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    session.tensor("n", [1.0])
    gateway = shared.add_gateway("--cluster-secret", "another secret than the workers have")
    wrong = shared.client_of(gateway)
    for answer in (wrong.get(session.path), wrong.post("/v1/sessions"), wrong.get("/v1/ops/add")):
        detail = problem(answer, 503, "server-busy")["detail"]
        assert "does not accept the gateway's token" in detail and "clocks" in detail
    with pytest.raises(InvalidStatus) as caught:
        connect(f"{gateway.url.replace('http', 'ws')}{session.path}/stream")
    assert caught.value.response.status_code == 503
    assert session.data("n") == [1.0]


# Two gateways ------------------------------------------------------------------------------------


def test_requests_with_one_key_at_two_gateways_at_once_create_one_session(on_both: Cluster) -> None:
    clients = [on_both.client_of(gateway) for gateway in on_both.gateways]
    for number in range(10):
        key, body = {"Idempotency-Key": str(uuid4())}, {"name": f"run {number}"}
        with ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(lambda n: clients[n % 2].post("/v1/sessions", json=body, headers=key), range(8))  # noqa: B023
            )
        for answer in answers:
            if answer.status_code != 201:  # the first request is not answered yet
                problem(answer, 409, "idempotency-conflict")
                answer = clients[0].post("/v1/sessions", json=body, headers=key)
            assert answer.status_code == 201, answer.text
        made = [each for each in clients[0].get("/v1/sessions").json()["items"] if each["name"] == body["name"]]
        assert len(made) == 1


def test_two_gateways_that_move_one_session_at_once_move_it_once(on_both: Cluster) -> None:
    def moves() -> float:
        return sum(metric(gateway, "telegrad_gateway_moves_total") for gateway in on_both.gateways)

    on_both.add_worker()
    on_both.wait_for_workers(3)
    clients, before = [on_both.client_of(gateway) for gateway in on_both.gateways], moves()
    sessions = [SessionClient(clients[0], durable=True) for _ in range(6)]
    for session in sessions:
        session.tensor("n", [1.0])
    victim = on_both.workers[0]
    moving = [session for session in sessions if on_both.has(victim, session.id)]
    assert moving
    victim.kill()

    def read(number: int) -> list[float]:
        session = SessionClient.of(clients[number % 2], moving[number % len(moving)].id)
        data: list[float] = answer_of(session, "/tensors/n").json()["data"]
        return data

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(read, range(32))) == [[1.0]] * 32
    assert moves() - before == len(moving)
    for session in moving:
        placed = on_both.directory.find(session.id)
        assert placed is not None and placed.epoch == 2
        assert session.run({"op": "add_", "in": ["n", 1]}).status_code == 200
        assert session.data("n") == [2.0]


# Slow workers ------------------------------------------------------------------------------------


def test_a_gateway_waits_for_a_slow_worker(postgres: str) -> None:
    with cluster(0, gateways=0, database=postgres) as found:
        worker, gateway = found.add_worker("--worker-timeout-s", "300"), found.add_gateway("--worker-timeout-s", "300")
        found.wait_for_workers(1)
        client = found.client_of(gateway)
        session = SessionClient(client, name="before")
        session.tensor("n", [1.0])
        with tg.connect(gateway.url), ThreadPoolExecutor(4) as pool:
            x = tg.ones(3)
            assert x.sum().item() == 3.0
            worker.pause()
            read = pool.submit(session.data, "n")
            made = pool.submit(client.post, "/v1/sessions")
            wait_until(lambda: metric(gateway, "telegrad_gateway_under_way") == 2)
            # The list shows the session as it was when the worker created it.
            assert client.get("/v1/sessions").json()["items"][0]["name"] == "before"
            assert httpx.get(f"{gateway.url}/readyz", timeout=WAIT_S).status_code == 200
            assert not read.done() and not made.done()
            worker.go_on()
            assert read.result(WAIT_S) == [1.0]
            assert made.result(WAIT_S).status_code == 201
            assert (x + 1).sum().item() == 6.0
        assert metric(gateway, "telegrad_gateway_deaths_total") == 0


# Full disks --------------------------------------------------------------------------------------

LIMIT = 2**20


def small_files() -> None:
    """Limit files of this process to a mebibyte, so that the journal of a session is full before the database is."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def test_a_full_disk_loses_nothing_that_was_answered() -> None:
    with cluster(0) as found:
        full = found.add_worker(prepare=small_files)
        found.wait_for_workers(1)
        session = SessionClient(found.client, durable=True)
        session.tensor("a", [1.0])
        program = {"op": "tensor", "out": ["big"], "attrs": {"data": [0.5] * (LIMIT // 4)}}
        assert "journal" in problem(session.run(program), 503, "server-busy")["detail"]
        assert session.get("/tensors/big").status_code == 404
        assert session.data("a") == [1.0]
        session.tensor("b", [2.0])
        found.add_worker()
        found.wait_for_workers(2)
        full.kill()
        assert answer_of(session, "/tensors/b").json()["data"] == [2.0]
        assert session.data("a") == [1.0] and session.get("/tensors/big").status_code == 404
        assert session.run(program).status_code == 200
