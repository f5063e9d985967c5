"""Workers serve requests with a token for them, while their lease lasts.

Internals: only gateways make tokens, so these tests make their own, with the cluster's secret.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_service import __version__
from telegrad_service.cluster.directory import Member, WorkerState
from telegrad_service.cluster.tokens import Claims, Secrets, sign
from telegrad_service.tenants.principal import ANYONE, Principal

from ...in_process import telegrad
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from .processes import Cluster, Started, answer_of, cluster

SECRET = "0123456789abcdef" * 3
READING = [{"op": "fetch", "in": [["n"]]}]
BIG = {"op": "zeros", "out": ["big"], "attrs": {"size": [2**21]}}
LONG = [{"op": "add_", "in": ["n", 1]}, BIG, *[{"op": "add_", "in": ["big", 1]}] * 3000]
"""Seconds of computation."""


def claims_of(found: Cluster, session_id: str, **changes: Any) -> Claims:
    """The claims of a gateway about a request for a session."""
    placed = found.directory.find(session_id)
    assert placed is not None and placed.worker is not None
    return Claims(ANYONE, placed.worker, __version__, placed.id, placed.epoch, placed.durable)._replace(**changes)


def token_for(found: Cluster, claims: Claims, seconds: float = 60) -> dict[str, str]:
    """The header with the token of a gateway."""
    return {"Authorization": f"Bearer {sign(claims, *Secrets(found.directory.database).newest(), seconds)}"}


@pytest.fixture
def session(shared: Cluster) -> SessionClient:
    made = SessionClient(shared.client)
    made.tensor("n", [1.0])
    return made


def asked(worker: Started, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(f"{worker.url}{path}", headers=headers or {}, timeout=WAIT_S)


def test_a_worker_serves_requests_with_its_token(shared: Cluster, session: SessionClient) -> None:
    worker, claims = shared.owner(session.id), claims_of(shared, session.id)
    path = f"{session.path}/tensors/n"
    assert asked(worker, path, token_for(shared, claims)).json()["data"] == [1.0]
    problem(asked(worker, path), 401, "unauthenticated")
    problem(asked(worker, "/v1/sessions"), 401, "unauthenticated")
    problem(httpx.post(f"{worker.url}/v1/sessions", timeout=WAIT_S), 401, "unauthenticated")
    assert asked(worker, "/healthz").status_code == asked(worker, "/metrics").status_code == 200


@pytest.mark.parametrize("wrong", ["expired", "forged", "unknown", "nonsense", "key", "session"])
def test_a_wrong_token_is_refused(shared: Cluster, session: SessionClient, wrong: str) -> None:
    worker, claims = shared.owner(session.id), claims_of(shared, session.id)
    other = SessionClient(shared.client)
    secret_id, secret = Secrets(shared.directory.database).newest()
    given = {
        "expired": sign(claims, secret_id, secret, seconds=-3600),
        "forged": sign(claims, secret_id, SECRET),
        "unknown": sign(claims, "9999", secret),
        "nonsense": "a.b.c",
        "key": "tg_0a1B2c3D4e5F_secret",
        "session": sign(claims_of(shared, other.id, worker=claims.worker), secret_id, secret),
    }[wrong]
    refused = asked(worker, session.path, {"Authorization": f"Bearer {given}"})
    problem(refused, 401, "unauthenticated")
    assert given not in refused.text and secret not in refused.text
    assert session.data("n") == [1.0]


def test_a_token_is_for_one_worker_tenant_epoch_and_version(shared: Cluster, session: SessionClient) -> None:
    worker, claims = shared.owner(session.id), claims_of(shared, session.id)

    def refusal(status: int, slug: str, **changes: Any) -> str:
        found = asked(worker, session.path, token_for(shared, claims._replace(**changes)))
        return str(problem(found, status, slug)["detail"])

    refusal(503, "session-moved", worker="another")
    refusal(503, "session-moved", epoch=0)
    refusal(404, "unknown-session", principal=Principal("another", None, ANYONE.scopes))
    refusal(403, "missing-scope", principal=ANYONE._replace(scopes=frozenset()))
    text = refusal(503, "server-busy", version="9.9.9")
    assert "9.9.9" in text and __version__ in text
    assert session.data("n") == [1.0]


@pytest.mark.full
def test_gateways_and_workers_need_the_same_secret() -> None:
    with cluster(0) as found:
        env = ("--cluster-secret", SECRET)
        found.add_worker(*env)
        gateway = found.add_gateway(*env)
        wait_until(lambda: httpx.get(f"{gateway.url}/readyz", timeout=WAIT_S).status_code == 200)
        session = SessionClient(found.client_of(gateway))
        session.assert_usable()
        # The other gateway has another secret.
        problem(found.client.get(session.path), 503, "server-busy")
    refused = telegrad("worker", "--cluster-secret", "short")
    assert refused.returncode == 1 and "32 characters" in refused.stderr and "short" not in refused.stderr


@pytest.mark.full
def test_a_worker_of_another_version_gets_no_sessions(shared: Cluster) -> None:
    directory, [first, second] = shared.directory, shared.workers
    second.stop()
    # The report of this version under the number of another one.
    report = directory.workers()[0].report
    directory.join("newer", Member("http://127.0.0.1:9", "9.9.9", ["cpu"], True), 60, report)
    shared.wait_for_workers(2)
    assert all(shared.has(first, SessionClient(shared.client).id) for _ in range(4))
    first.stop()
    wait_until(lambda: len([each for each in directory.workers() if each.state is WorkerState.READY]) == 1)
    refusals: list[str] = []

    def refused() -> bool:
        answer = shared.client.post("/v1/sessions")
        refusals.append(problem(answer, 503, "server-busy")["detail"])
        return "9.9.9" in refusals[-1]

    wait_until(refused)
    assert __version__ in refusals[-1]


@pytest.mark.full
def test_a_worker_answers_for_no_session_after_it_was_stopped(stoppable: Cluster) -> None:
    """It answers neither a request that it has begun, nor a new one, though the token is still valid."""
    durable, volatile = (SessionClient(stoppable.client, durable=kind, name=str(kind)) for kind in (True, False))
    while (owner := stoppable.owner(volatile.id)).url != stoppable.owner(durable.id).url:
        volatile = SessionClient(stoppable.client)
    for each in (durable, volatile):
        each.tensor("n", [0.0])
    headers = {each.id: token_for(stoppable, claims_of(stoppable, each.id), 600) for each in (durable, volatile)}
    answers: list[httpx.Response] = []

    def run(session: SessionClient) -> None:
        url = f"{owner.url}{session.path}/programs"
        body = {"instructions": [*LONG, *READING]}
        answers.append(httpx.post(url, json=body, headers=headers[session.id], timeout=WAIT_S))

    threads = [threading.Thread(target=run, args=(each,)) for each in (durable, volatile)]
    for thread in threads:
        thread.start()
    wait_until(lambda: "telegrad_busy_threads 2.0" in asked(owner, "/metrics").text)
    owner.pause()
    [stopped] = [each.id for each in stoppable.directory.workers() if each.url == owner.url and each.alive]
    wait_until(lambda: {each.id: each.state for each in stoppable.directory.workers()}[stopped] is WorkerState.DEAD)
    deadline = time.monotonic() + WAIT_S
    while (here := durable.get("/tensors/n")).status_code == 503:
        assert time.monotonic() < deadline
    assert here.json()["data"] == [0.0]  # the program was not acknowledged
    owner.go_on()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert [answer.status_code for answer in answers] == [503, 503], [answer.text for answer in answers]
    for each in (durable, volatile):
        found = asked(owner, f"{each.path}/tensors/n", headers[each.id])
        assert found.status_code == 503, found.text
    stoppable.wait_for_workers(2)  # it is back, as another worker
    for each in (durable, volatile):
        problem(asked(owner, f"{each.path}/tensors/n", headers[each.id]), 503, "session-moved")
    assert durable.data("n") == [0.0]
    problem(volatile.get("/tensors/n"), 410, "session-lost")


@pytest.mark.full
def test_no_session_is_lost_while_the_database_cannot_be_used(shared: Cluster) -> None:
    sessions = [SessionClient(shared.client, durable=durable) for durable in (False, True)]
    for session in sessions:
        session.tensor("n", [1.0])
    owners = [shared.owner(session.id) for session in sessions]

    def readiness() -> str:
        return httpx.get(f"{shared.gateways[0].url}/readyz", timeout=WAIT_S).text

    file = shared.directory.database.file
    assert file is not None
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        for worker in shared.workers:  # so that the gateway is sure to be back before them
            worker.pause()
        wait_until(lambda: "directory" in readiness())
        connection.execute("ROLLBACK")
    wait_until(lambda: "directory" not in readiness())
    for worker in shared.workers:
        worker.go_on()
    for session in sessions:
        assert answer_of(session, "/tensors/n").json()["data"] == [1.0]
    assert owners == [shared.owner(session.id) for session in sessions]


# Without the gateway ------------------------------------------------------------------------------


def streams(started: Started) -> float:
    """How many streams a process has."""
    text = asked(started, "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(r"telegrad_(gateway_)?streams ", line))


@pytest.mark.full
def test_a_direct_client_sends_its_programs_to_the_worker(shared: Cluster) -> None:
    gateway = shared.gateways[0]
    with tg.connect(gateway.url, direct=True, durable=True) as session:
        x = tg.ones(3)
        assert x.sum().item() == 3.0
        owner = shared.owner(session.id)
        assert (streams(gateway), streams(owner)) == (0.0, 1.0)
        owner.kill()
        assert (x * 2).sum().item() == 6.0  # on the other worker
        with tg.connect(gateway.url):
            assert tg.ones(2).sum().item() == 2.0
            assert streams(gateway) >= 1.0


@pytest.mark.one_process("it is about a server without gateways")
def test_a_server_without_gateways_is_its_own_endpoint(url: str, client: httpx.Client) -> None:
    alone = SessionClient(client)
    assert alone.get("/endpoint").json() == {"url": None, "token": None, "expires_at": None}
    with tg.connect(url, direct=True):
        assert tg.ones(3).sum().item() == 3.0


def test_a_token_of_a_client_is_for_its_session_alone(shared: Cluster, session: SessionClient) -> None:
    other = SessionClient(shared.client)
    worker = shared.owner(session.id)
    found = session.get("/endpoint")
    place = found.json()
    assert place["url"] == worker.url and found.headers["cache-control"] == "no-store"
    own = {"Authorization": f"Bearer {place['token']}"}
    assert asked(worker, f"{session.path}/tensors/n", own).json()["data"] == [1.0]
    for path in (other.path, "/v1/sessions", "/v1/keys"):
        problem(asked(worker, path, own), 401, "unauthenticated")
    assert shared.client.get("/v1/sessions", headers=own).status_code == 200  # a cluster without keys asks for none
