"""Workers that are killed, stopped by SIGSTOP, drained or ended while their sessions are in use."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import telegrad as tg
from telegrad_engine.errors import SessionLost

from ...chaos import Trainer
from ..api_keys import WAIT_S, wait_until
from ..conftest import SessionClient, problem
from .load import Load, load
from .processes import Cluster, Started, answer_of, cluster

pytestmark = pytest.mark.full

USERS, PROGRAMS, PAUSE_S = 4, 10, 0.02
"""How many clients there are, how many programs each has answered before and after what happens, and their pause."""
ADD = {"inputs": ["n", 1.0]}
FIRST = {"Telegrad-Sequence": "1"}


def busy_worker(found: Cluster, users: Load) -> Started:
    """A worker that has sessions of the users; the other has some, too."""
    for worker in found.workers:
        assert any(found.has(worker, user.session) for user in users.users), "the sessions are on one worker"
    return found.workers[0]


def worker_id(found: Cluster, worker: Started) -> str:
    [only] = [row.id for row in found.directory.workers() if row.url == worker.url and row.alive]
    return only


def test_durable_sessions_go_on_after_their_worker_was_killed(on_both: Cluster) -> None:
    with load(on_both.gateways[0].url, 0, USERS, PAUSE_S) as users:
        volatile = [SessionClient(on_both.client) for _ in range(4)]
        users.advance(PROGRAMS)
        victim = busy_worker(on_both, users)
        lost = [session for session in volatile if on_both.has(victim, session.id)]
        kept = [session for session in volatile if session not in lost]
        victim.kill()
        users.advance(PROGRAMS)
        users.finish()
        assert all(on_both.has(on_both.workers[1], user.session) for user in users.users)
        assert lost and kept
        for session in lost:
            assert "durable" in problem(session.get(), 410, "session-lost")["detail"]
        for session in kept:
            session.assert_usable()
        assert {item["id"] for item in on_both.client.get("/v1/sessions").json()["items"]} == {
            *(session.id for session in kept),
            *(user.session for user in users.users),
        }


def test_a_volatile_session_of_the_sdk_ends_with_its_worker(shared: Cluster) -> None:
    with tg.connect(shared.gateways[0].url) as session:
        x = tg.ones(3)
        assert x.sum().item() == 3.0
        shared.owner(session.id).kill()
        with pytest.raises(SessionLost, match="not durable"):
            for _ in range(100):
                (x + 1).sum().item()


def test_a_stopped_worker_has_lost_its_sessions(stoppable: Cluster) -> None:
    with load(stoppable.gateways[0].url, 0, USERS, PAUSE_S) as users:
        users.advance(PROGRAMS)
        stopped = busy_worker(stoppable, users)
        ids = [user.session for user in users.users]
        before = {each: stoppable.directory.find(each) for each in ids if stoppable.has(stopped, each)}
        volatile = [SessionClient(stoppable.client) for _ in range(4)]
        lost = [session for session in volatile if stoppable.has(stopped, session.id)]
        stopped.pause()
        users.advance(PROGRAMS)  # also those whose worker is stopped
        assert all(stoppable.has(stoppable.workers[1], each) for each in ids)
        stopped.go_on()
        # It joins again, under another id, and takes new sessions only.
        stoppable.wait_for_workers(2)
        users.advance(PROGRAMS)
        users.finish()
        for each, placed in before.items():
            now = stoppable.directory.find(each)
            assert placed is not None and now is not None and now.epoch == placed.epoch + 1
        for session in volatile:
            if session in lost:
                problem(session.get(), 410, "session-lost")
            else:
                session.assert_usable()


def test_a_request_to_a_stopped_worker_is_answered_by_another_one_alone(stoppable: Cluster) -> None:
    """The connection to a stopped worker ends with it: what it answers later reaches nobody."""
    session = SessionClient(stoppable.client, durable=True)
    session.tensor("n", [0.0])
    owner = stoppable.owner(session.id)
    owner.pause()
    begun = time.monotonic()
    while (answer := session.post("/ops/add_", ADD, headers=FIRST)).status_code == 503:
        assert time.monotonic() - begun < WAIT_S
    assert answer.status_code == 200, answer.text
    owner.go_on()
    stoppable.wait_for_workers(2)
    assert session.post("/ops/add_", ADD, headers=FIRST).content == answer.content
    assert session.data("n") == [1.0]


def test_a_worker_that_ends_hands_its_sessions_over(shared: Cluster) -> None:
    with load(shared.gateways[0].url, 0, USERS, PAUSE_S) as users:
        users.advance(PROGRAMS)
        leaving = busy_worker(shared, users)
        leaving.process.terminate()
        users.advance(PROGRAMS)
        assert leaving.process.wait(WAIT_S) == 0
        users.advance(PROGRAMS)
        users.finish()
        assert all(shared.has(shared.workers[1], user.session) for user in users.users)


def test_a_drained_worker_hands_its_sessions_over_and_takes_no_others(shared: Cluster) -> None:
    trainers = [Trainer(shared.gateways[0].url, seed, 0.1, durable=seed % 2 == 0) for seed in range(4)]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.wait_for(5)
    draining = shared.owner(trainers[1].session)  # which is not durable
    waiting = [SessionClient(shared.client) for _ in range(4)]
    answers = []
    for session in waiting:  # not durable, with a graph, and with an answer that may be asked for again
        session.tensor("n", [1.0])
        session.tensor("x", [2.0], requires_grad=True)
        session.run({"op": "mul", "in": ["x", "x"], "out": ["y"]})
        answers.append(session.post("/ops/add_", ADD, headers=FIRST).content)
    assert any(shared.has(draining, session.id) for session in waiting)
    worker = worker_id(shared, draining)
    assert shared.directory.drain(worker)
    wait_until(lambda: shared.directory.session_count(worker) == 0)
    for session, answer in zip(waiting, answers, strict=True):
        assert session.post("/ops/add_", ADD, headers=FIRST).content == answer
        assert session.data("n") == [2.0]
        assert session.run({"op": "backward", "in": [["y"]]}).status_code == 200
        assert session.get("/tensors/x/grad").json()["data"] == [4.0]
        assert session.get().json()["durable"] is False
    for trainer in trainers:
        trainer.wait_for(trainer.done + 5)
        trainer.finish()
    assert not any(shared.has(draining, SessionClient(shared.client).id) for _ in range(4))
    # A session that is not durable is in the data folder only while it is handed over.
    for session in waiting:
        assert not list((shared.folder / "data").rglob(f"*{session.id}*"))
        session.request("DELETE")
        problem(session.get(), 404, "unknown-session")


# Without another worker ---------------------------------------------------------------------------


@pytest.fixture
def alone(on_sqlite: Cluster) -> Cluster:
    """A cluster with one worker."""
    on_sqlite.restore(workers=1, gateways=2)
    return on_sqlite


def replace_worker(found: Cluster) -> None:
    found.add_worker()
    found.wait_for_workers(1)


def test_a_session_waits_in_the_data_folder_for_another_worker(alone: Cluster) -> None:
    session = SessionClient(alone.client)
    session.tensor("n", [1.0])
    for number in range(2):
        leaving = alone.workers[-1]
        leaving.stop()
        assert leaving.process.returncode == 0
        problem(session.get("/tensors/n"), 503, "server-busy")
        assert session.id in {item["id"] for item in alone.client.get("/v1/sessions").json()["items"]}
        replace_worker(alone)
        assert session.data("n") == [1.0 + number]
        assert session.post("/ops/add_", ADD).status_code == 200


def test_a_session_waits_for_a_worker_that_has_memory_for_it(alone: Cluster) -> None:
    session = SessionClient(alone.client)
    ones = {"op": "ones", "out": ["x"], "attrs": {"size": [6 * 2**20]}}
    assert session.run(ones).status_code == 200
    alone.workers[0].stop()
    small = alone.add_worker("--max-process-bytes", str(20 * 2**20))
    alone.wait_for_workers(1)
    for _ in range(2):
        answer = session.get("/tensors/x")
        assert "no worker has room" in problem(answer, 503, "server-busy")["detail"]
        assert answer.headers["retry-after"] == "1"
    small.stop()
    replace_worker(alone)
    assert session.run({"op": "sum", "in": ["x"], "out": ["s"]}).status_code == 200
    assert session.data("s") == 6 * 2**20


def test_a_session_that_waits_for_another_worker_expires(alone: Cluster) -> None:
    session = SessionClient(alone.client, ttl_s=1)
    session.tensor("n", [1.0])
    alone.workers[0].stop()
    assert list((alone.folder / "data").rglob(f"*{session.id}*"))
    alone.add_worker()
    wait_until(lambda: alone.directory.find(session.id) is None)
    wait_until(lambda: not list((alone.folder / "data").rglob(f"*{session.id}*")))
    problem(session.get(), 404, "unknown-session")


def test_a_durable_session_outlives_the_last_worker(alone: Cluster) -> None:
    session = SessionClient(alone.client, durable=True)
    session.tensor("n", [1.0])
    alone.workers[0].kill()
    refused = session.get("/tensors/n")
    assert refused.status_code == 503 and "retry-after" in refused.headers
    alone.add_worker()
    assert answer_of(session, "/tensors/n").json()["data"] == [1.0]


def test_a_program_of_a_worker_that_was_declared_dead_runs_again(alone: Cluster) -> None:
    """Its first run is cancelled before another worker has the session, and that is not the program's answer."""

    def declare_dead() -> None:
        wait_until(lambda: "running" in {each["state"] for each in alone.client.get("/v1/sessions").json()["items"]})
        assert alone.directory.leave(worker_id(alone, alone.workers[0]))

    with tg.connect(alone.gateways[0].url, durable=True, stream=True), ThreadPoolExecutor(1) as pool:
        n, x = tg.tensor(1.0), tg.ones(2**22)
        assert n.item() == 1
        died = pool.submit(declare_dead)
        n.add_(1)
        for _ in range(200):
            x.tanh_()
        assert n.item() == 2
        died.result()


def test_without_a_data_folder_a_session_stays_with_its_worker_until_that_ends() -> None:
    with cluster(data=False) as found:
        refused = found.client.post("/v1/sessions", json={"durable": True})
        assert "--data-dir" in problem(refused, 422, "invalid-value")["detail"]
        sessions = [SessionClient(found.client) for _ in range(4)]
        draining = found.workers[0]
        stays = [session for session in sessions if found.has(draining, session.id)]
        assert stays
        assert found.directory.drain(worker_id(found, draining))
        # From the first moment on no client is refused: the gateway asks another worker.
        wait_until(lambda: not any(found.has(draining, SessionClient(found.client).id) for _ in range(2)))
        for session in sessions:
            session.assert_usable()
        assert all(found.has(draining, session.id) for session in stays)
        draining.stop()
        for session in stays:
            assert "not durable" in problem(session.get(), 410, "session-lost")["detail"]
