"""What a worker serves: requests with a token for it, as long as the directory counts on it.

Internals: only gateways make tokens, so these tests make their own, with the cluster's secret.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_service import __version__
from telegrad_service.cluster.directory import Member, WorkerState
from telegrad_service.cluster.tokens import Claims, Secrets, sign
from telegrad_service.tenants.principal import ANYONE, Principal

from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from .processes import Cluster, Started, cluster

SECRET = "0123456789abcdef" * 3
READING = [{"op": "fetch", "in": [["n"]]}]
BIG = {"op": "zeros", "out": ["big"], "attrs": {"size": [2**21]}}
LONG = [{"op": "add_", "in": ["n", 1]}, BIG, *[{"op": "add_", "in": ["big", 1]}] * 3000]
"""Seconds of computation."""


def claims_of(found: Cluster, session_id: str, **changes: Any) -> Claims:
    """What a gateway says about a request for a session."""
    placed = found.directory.find(session_id)
    assert placed is not None and placed.worker is not None
    return Claims(ANYONE, placed.worker, __version__, placed.id, placed.epoch, placed.durable)._replace(**changes)


def token_for(found: Cluster, claims: Claims, seconds: float = 60) -> dict[str, str]:
    """The header with the token of a gateway."""
    return {"Authorization": f"Bearer {sign(claims, *Secrets(found.directory.database).newest(), seconds)}"}


@pytest.fixture
def session(shared: Cluster) -> Iterator[SessionClient]:
    made = SessionClient(shared.client)
    made.tensor("n", [1.0])
    yield made
    shared.client.delete(made.path)


def owner_of(found: Cluster, session: SessionClient) -> Started:
    owner = found.owner(session.id)
    assert owner is not None
    return owner


def asked(worker: Started, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(f"{worker.url}{path}", headers=headers or {}, timeout=WAIT_S)


def test_a_worker_serves_whoever_has_its_token(shared: Cluster, session: SessionClient) -> None:
    worker, claims = owner_of(shared, session), claims_of(shared, session.id)
    path = f"{session.path}/tensors/n"
    assert asked(worker, path, token_for(shared, claims)).json()["data"] == [1.0]
    problem(asked(worker, path), 401, "unauthenticated")
    problem(asked(worker, "/v1/sessions"), 401, "unauthenticated")
    problem(httpx.post(f"{worker.url}/v1/sessions", timeout=WAIT_S), 401, "unauthenticated")
    assert asked(worker, "/healthz").status_code == asked(worker, "/metrics").status_code == 200


@pytest.mark.parametrize("wrong", ["expired", "forged", "unknown", "nonsense", "key", "session"])
def test_a_wrong_token_is_refused(shared: Cluster, session: SessionClient, wrong: str) -> None:
    worker, claims = owner_of(shared, session), claims_of(shared, session.id)
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
    worker, claims = owner_of(shared, session), claims_of(shared, session.id)

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
def test_a_secret_of_the_operator(tmp_path: Any) -> None:
    with cluster(0) as found:
        env = ("--cluster-secret", SECRET)
        found.add_worker(*env)
        gateway = found.add_gateway(*env)
        wait_until(lambda: httpx.get(f"{gateway.url}/readyz", timeout=WAIT_S).status_code == 200)
        session = SessionClient(found.client_of(gateway))
        session.assert_usable()
        # The other gateway has another secret.
        problem(found.client.get(session.path), 503, "server-busy")
    short = [sys.executable, "-m", "telegrad_service.cli", "worker", "--cluster-secret", "short"]
    refused = subprocess.run(short, capture_output=True, text=True, timeout=WAIT_S)
    assert refused.returncode == 1 and "32 characters" in refused.stderr and "short" not in refused.stderr


@pytest.mark.full
def test_a_worker_of_another_version_gets_nothing() -> None:
    with cluster(1) as found:
        # What this version says of itself, as another one.
        directory = found.directory
        [ours] = directory.workers()
        directory.join("newer", Member("http://127.0.0.1:9", "9.9.9", ["cpu"], True), 60, ours.report)
        found.wait_for_workers(2)
        assert all(found.has(found.workers[0], SessionClient(found.client).id) for _ in range(4))
        found.workers[0].stop()
        wait_until(lambda: len([each for each in directory.workers() if each.state is WorkerState.READY]) == 1)
        refusals: list[str] = []

        def refused() -> bool:
            answer = found.client.post("/v1/sessions")
            refusals.append(problem(answer, 503, "server-busy")["detail"])
            return "9.9.9" in refusals[-1]

        wait_until(refused)
        assert __version__ in refusals[-1]


@pytest.mark.full
def test_a_worker_that_stood_still_answers_for_no_session(pair: Cluster) -> None:
    """Neither to a request that it has begun, nor to a new one, nor to one with a token that is still valid."""
    durable, volatile = (SessionClient(pair.client, durable=kind, name=str(kind)) for kind in (True, False))
    while (owner := owner_of(pair, volatile)).url != owner_of(pair, durable).url:
        volatile = SessionClient(pair.client)
    for each in (durable, volatile):
        each.tensor("n", [0.0])
    headers = {each.id: token_for(pair, claims_of(pair, each.id), 600) for each in (durable, volatile)}
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
    [paused] = [each.id for each in pair.directory.workers() if each.url == owner.url]
    wait_until(lambda: {each.id: each.state for each in pair.directory.workers()}[paused] is WorkerState.DEAD)
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
    pair.wait_for_workers(2)  # it is back, as another worker
    for each in (durable, volatile):
        problem(asked(owner, f"{each.path}/tensors/n", headers[each.id]), 503, "session-moved")
    assert durable.data("n") == [0.0]
    problem(volatile.get("/tensors/n"), 410, "session-lost")


@pytest.mark.full
def test_no_session_is_lost_while_the_database_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "cluster.db"
    with cluster(database=f"sqlite:///{file}") as found:
        volatile, durable = (SessionClient(found.client, durable=kind) for kind in (False, True))
        for each in (volatile, durable):
            each.tensor("n", [1.0])
        owners = [owner_of(found, each) for each in (volatile, durable)]

        def readiness() -> str:
            return httpx.get(f"{found.gateways[0].url}/readyz", timeout=WAIT_S).text

        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            for worker in found.workers:  # so that the gateway is sure to be back before them
                worker.pause()
            wait_until(lambda: "directory" in readiness())
            connection.execute("ROLLBACK")
        wait_until(lambda: "directory" not in readiness())
        for worker in found.workers:
            worker.go_on()
        for each in (volatile, durable):
            answers: list[httpx.Response] = []

            def answered(session: SessionClient = each, answers: list[httpx.Response] = answers) -> bool:
                answers.append(session.get("/tensors/n"))
                return answers[-1].status_code != 503

            wait_until(answered)
            assert answers[-1].json()["data"] == [1.0], answers[-1].text
        assert owners == [owner_of(found, each) for each in (volatile, durable)]


# Past the gateway --------------------------------------------------------------------------------


def streams(started: Started) -> float:
    """How many streams a process has."""
    text = asked(started, "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(r"telegrad_(gateway_)?streams ", line))


@pytest.mark.full
def test_a_client_that_can_reach_the_worker_goes_past_the_gateway() -> None:
    with cluster() as found, tg.connect(found.gateways[0].url, direct=True, durable=True) as session:
        x = tg.ones(3)
        assert x.sum().item() == 3.0
        owner = found.owner(session.id)
        assert owner is not None
        assert (streams(found.gateways[0]), streams(owner)) == (0.0, 1.0)
        owner.kill()
        assert (x * 2).sum().item() == 6.0  # on the other worker
        with tg.connect(found.gateways[0].url):
            assert tg.ones(2).sum().item() == 2.0
            assert streams(found.gateways[0]) >= 1.0


@pytest.mark.one_process("it is about a server without gateways")
def test_a_server_without_gateways_is_its_own_endpoint(url: str, client: httpx.Client) -> None:
    alone = SessionClient(client)
    assert alone.get("/endpoint").json() == {"url": None, "token": None, "expires_at": None}
    with tg.connect(url, direct=True):
        assert tg.ones(3).sum().item() == 3.0


def test_a_token_of_a_client_is_for_its_session_alone(shared: Cluster, session: SessionClient) -> None:
    other = SessionClient(shared.client)
    worker = owner_of(shared, session)
    found = session.get("/endpoint")
    place = found.json()
    assert place["url"] == worker.url and found.headers["cache-control"] == "no-store"
    own = {"Authorization": f"Bearer {place['token']}"}
    assert asked(worker, f"{session.path}/tensors/n", own).json()["data"] == [1.0]
    for path in (other.path, "/v1/sessions", "/v1/keys"):
        problem(asked(worker, path, own), 401, "unauthenticated")
    assert shared.client.get("/v1/sessions", headers=own).status_code == 200  # a cluster without keys asks for none
