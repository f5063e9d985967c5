"""Workers that are killed, stand still or stop while sessions are in use.

The sessions' clients send numbered programs, and repeat those that were not answered; each holds its session against a
twin in this process, bit for bit (tests/chaos.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_engine.errors import SessionLost

from ... import chaos
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from .processes import Cluster, Started, cluster

pytestmark = pytest.mark.full

PROGRAMS = 30
"""How many programs each client has answered before and after what happens."""


@contextmanager
def clients(url: str, number: int) -> Iterator[list[chaos.Client]]:
    """Clients that use one durable session each."""
    server: Any = SimpleNamespace(url=url)
    users = [chaos.Client(server, seed) for seed in range(number)]
    try:
        for user in users:
            user.start()
        yield users
    finally:
        for user in users:
            user.close()


def advance(users: list[chaos.Client]) -> None:
    """Wait until each client has had more programs answered."""
    goals = [user.done + PROGRAMS for user in users]
    wait_until(lambda: all(user.failure or user.done >= goal for user, goal in zip(users, goals, strict=True)))


def verify(users: list[chaos.Client]) -> None:
    """Stop the clients, and hold each session against its twin."""
    for user in users:
        user.stopped = True
        user.join(WAIT_S)
        assert not user.is_alive(), "a client hangs"
        user.verify()


def id_of(user: chaos.Client) -> str:
    return user.path.rpartition("/")[2]


def crowded(pair: Cluster, users: list[chaos.Client]) -> Started:
    """A worker that has sessions of these clients, and so has the other."""
    found = {worker.url: [user for user in users if pair.has(worker, id_of(user))] for worker in pair.workers}
    assert all(found.values()), "the sessions are not spread over the workers"
    return pair.workers[0]


def test_durable_sessions_go_on_after_their_worker_was_killed(pair: Cluster) -> None:
    with clients(pair.gateways[0].url, 4) as users:
        volatile = [SessionClient(pair.client) for _ in range(4)]
        advance(users)
        victim = crowded(pair, users)
        lost = [session for session in volatile if pair.has(victim, session.id)]
        kept = [session for session in volatile if session not in lost]
        victim.kill()
        advance(users)
        verify(users)
        assert all(pair.has(pair.workers[1], id_of(user)) for user in users)
    assert lost and kept
    for session in lost:
        gone = problem(session.get(), 410, "session-lost")
        assert "durable" in gone["detail"]
    for session in kept:
        session.assert_usable()
    assert {item["id"] for item in pair.client.get("/v1/sessions").json()["items"]} == {
        *(session.id for session in kept),
        *(id_of(user) for user in users),
    }


@pytest.mark.full
def test_a_training_loop_goes_on_after_its_worker_was_killed(database: str) -> None:
    steps = 1500
    with cluster(database=database) as pair:
        durable = chaos.Trainer(pair.gateways[0].url, 1, steps, durable=True, name="run")
        durable.start()
        assert durable.connected.wait(WAIT_S)
        wait_until(lambda: len(durable.losses) > 20 or durable.failure is not None)
        [session] = pair.client.get("/v1/sessions").json()["items"]
        owner = pair.owner(session["id"])
        assert owner is not None
        owner.kill()
        durable.join(2 * WAIT_S)
        assert not durable.is_alive()
        assert durable.failure is None
        assert pair.owner(session["id"]) is not owner
    twin = chaos.Trainer("local://", 1, steps)
    twin.train()
    assert durable.losses == twin.losses


@pytest.mark.full
def test_a_volatile_session_ends_clearly_with_its_worker(pair: Cluster) -> None:
    with tg.connect(pair.gateways[0].url) as session:
        x = tg.ones(3)
        assert x.sum().item() == 3.0
        owner = pair.owner(session.id)
        assert owner is not None
        owner.kill()
        with pytest.raises(SessionLost, match="not durable"):
            for _ in range(100):
                (x + 1).sum().item()


def test_a_worker_that_stood_still_has_lost_its_sessions(pair: Cluster) -> None:
    with clients(pair.gateways[0].url, 4) as users:
        advance(users)
        paused = crowded(pair, users)
        before = {id_of(user): pair.directory.find(id_of(user)) for user in users if pair.has(paused, id_of(user))}
        volatile = [SessionClient(pair.client) for _ in range(4)]
        lost = [session for session in volatile if pair.has(paused, session.id)]
        paused.pause()
        advance(users)  # also those whose worker stands still
        other = pair.workers[1]
        assert all(pair.has(other, id_of(user)) for user in users)
        paused.go_on()
        # It joins again, under another id, and takes new sessions only.
        pair.wait_for_workers(2)
        advance(users)
        verify(users)
        for session_id, placed in before.items():
            now = pair.directory.find(session_id)
            assert placed is not None and now is not None and now.epoch == placed.epoch + 1
        for session in volatile:
            if session in lost:
                problem(pair.client.get(session.path), 410, "session-lost")
            else:
                session.assert_usable()


@pytest.mark.full
def test_what_a_paused_worker_had_begun_is_not_acknowledged_by_it(pair: Cluster) -> None:
    """The connection to a worker that stands still ends with it; what it answers later reaches nobody."""
    session = SessionClient(pair.client, durable=True)
    session.tensor("n", [0.0])
    owner = pair.owner(session.id)
    assert owner is not None
    owner.pause()
    begun = time.monotonic()
    add = {"inputs": ["n", 1.0]}
    answer = None
    while answer is None or answer.status_code == 503:
        answer = session.post("/ops/add_", add, headers={"Telegrad-Sequence": "1"})
        assert time.monotonic() - begun < WAIT_S
    assert answer.status_code == 200, answer.text
    owner.go_on()
    pair.wait_for_workers(2)
    assert session.post("/ops/add_", add, headers={"Telegrad-Sequence": "1"}).content == answer.content
    assert session.data("n") == [1.0]


@pytest.mark.full
def test_a_worker_that_stops_hands_its_sessions_over(pair: Cluster) -> None:
    with clients(pair.gateways[0].url, 4) as users:
        advance(users)
        leaving = crowded(pair, users)
        leaving.process.terminate()
        advance(users)
        leaving.process.wait(WAIT_S)
        assert leaving.process.returncode == 0
        advance(users)
        verify(users)
        assert all(pair.has(pair.workers[1], id_of(user)) for user in users)


def worker_id_of(found: Cluster, worker: Started) -> str:
    [only] = [each.id for each in found.directory.workers() if each.url == worker.url]
    return only


@pytest.mark.full
def test_a_worker_that_drains_hands_its_sessions_over_and_takes_no_others(pair: Cluster) -> None:
    url, steps = pair.gateways[0].url, 3000  # so many that none ends before the last one has begun
    trainers = [chaos.Trainer(url, seed, steps, durable=seed % 2 == 0) for seed in range(4)]
    for trainer in trainers:
        trainer.start()
    wait_until(lambda: all(len(trainer.losses) > 5 or trainer.failure is not None for trainer in trainers))
    assert all(trainer.failure is None and trainer.is_alive() for trainer in trainers)
    training = pair.client.get("/v1/sessions").json()["items"]
    draining = next(pair.owner(item["id"]) for item in training if not item["durable"])
    assert draining is not None
    waiting = [SessionClient(pair.client) for _ in range(4)]
    add = {"inputs": ["n", 1.0]}
    answers = []
    for session in waiting:  # not durable, with a graph, and with an answer that may be asked for again
        session.tensor("n", [1.0])
        session.tensor("x", [2.0], requires_grad=True)
        session.run({"op": "mul", "in": ["x", "x"], "out": ["y"]})
        answers.append(session.post("/ops/add_", add, headers={"Telegrad-Sequence": "1"}).content)
    assert any(pair.has(draining, session.id) for session in waiting)
    worker = worker_id_of(pair, draining)
    assert pair.directory.drain(worker)
    wait_until(lambda: pair.directory.session_count(worker) == 0)
    for session, answer in zip(waiting, answers, strict=True):
        assert session.post("/ops/add_", add, headers={"Telegrad-Sequence": "1"}).content == answer
        assert session.data("n") == [2.0]
        assert session.run({"op": "backward", "in": [["y"]]}).status_code == 200
        assert session.get("/tensors/x/grad").json()["data"] == [4.0]
        assert session.get().json()["durable"] is False
    for trainer in trainers:
        trainer.join(2 * WAIT_S)
        assert trainer.failure is None and not trainer.is_alive()
        twin = chaos.Trainer("local://", trainer.seed, steps)
        twin.train()
        assert trainer.losses == twin.losses
    assert not any(pair.has(draining, SessionClient(pair.client).id) for _ in range(4))
    # What was handed over without being durable is nowhere but in the other worker.
    for session in waiting:
        assert not list((pair.folder / "data").rglob(f"*{session.id}*"))
        session.request("DELETE")
        problem(session.get(), 404, "unknown-session")


@pytest.mark.full
def test_a_session_that_is_handed_over_twice(database: str) -> None:
    with cluster(1, database=database) as found:
        session = SessionClient(found.client)
        session.tensor("n", [1.0])
        for number in range(2):
            leaving = found.workers[-1]
            leaving.stop()  # with nobody to take the session, which waits in the data folder
            assert leaving.process.returncode == 0
            problem(session.get("/tensors/n"), 503, "server-busy")
            assert session.id in {item["id"] for item in found.client.get("/v1/sessions").json()["items"]}
            found.add_worker()
            found.wait_for_workers(1)
            assert session.data("n") == [1.0 + number]
            assert session.post("/ops/add_", {"inputs": ["n", 1.0]}).status_code == 200


@pytest.mark.full
def test_a_session_that_was_handed_over_waits_for_a_worker_with_room(database: str) -> None:
    with cluster(1, database=database) as found:
        session = SessionClient(found.client)
        ones = {"op": "ones", "out": ["x"], "attrs": {"size": [6 * 2**20]}}
        assert session.run(ones).status_code == 200
        found.workers[0].stop()
        small = found.add_worker("--max-process-bytes", str(20 * 2**20))
        found.wait_for_workers(1)
        for _ in range(2):
            answer = session.get("/tensors/x")
            assert "no worker has room" in problem(answer, 503, "server-busy")["detail"]
            assert answer.headers["retry-after"] == "1"
        small.stop()
        found.add_worker()
        found.wait_for_workers(1)
        total = {"op": "sum", "in": ["x"], "out": ["s"]}
        assert session.run(total).status_code == 200
        assert session.data("s") == 6 * 2**20


@pytest.mark.full
def test_a_session_that_was_handed_over_and_is_not_used_ends(database: str) -> None:
    with cluster(1, database=database) as found:
        session = SessionClient(found.client, ttl_s=1)
        session.tensor("n", [1.0])
        found.workers[0].stop()
        assert list((found.folder / "data").rglob(f"*{session.id}*"))
        found.add_worker()
        wait_until(lambda: found.directory.find(session.id) is None)
        wait_until(lambda: not list((found.folder / "data").rglob(f"*{session.id}*")))
        problem(session.get(), 404, "unknown-session")


@pytest.mark.full
def test_a_session_that_cannot_move_stays_until_its_worker_ends() -> None:
    with cluster(data=False) as pair:
        sessions = [SessionClient(pair.client) for _ in range(4)]
        draining = pair.workers[0]
        stays = [session for session in sessions if pair.has(draining, session.id)]
        assert stays
        assert pair.directory.drain(worker_id_of(pair, draining))
        wait_until(lambda: not any(pair.has(draining, SessionClient(pair.client).id) for _ in range(2)))
        for session in sessions:
            session.assert_usable()
        assert all(pair.has(draining, session.id) for session in stays)
        draining.stop()
        for session in stays:
            assert "not durable" in problem(session.get(), 410, "session-lost")["detail"]


@pytest.mark.full
def test_nothing_is_lost_without_any_worker(database: str) -> None:
    with cluster(1, database=database) as alone:
        session = SessionClient(alone.client, durable=True)
        session.tensor("n", [1.0])
        alone.workers[0].kill()
        refused = session.get("/tensors/n")
        assert refused.status_code == 503 and "retry-after" in refused.headers
        alone.add_worker()
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answers.append(session.get("/tensors/n"))
            return answers[-1].status_code == 200

        wait_until(answered)
        assert answers[-1].json()["data"] == [1.0]
