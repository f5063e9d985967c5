"""The choice of the worker that gets a new session.

Internals: the reports of real workers cannot be chosen.
"""

from __future__ import annotations

from typing import Any

import pytest

from telegrad_engine.errors import ServerBusy
from telegrad_service.cluster.directory import Report, Worker, WorkerState
from telegrad_service.cluster.placement import candidates, choose

GIB = 2**30


def worker(name: str, **changes: Any) -> Worker:
    report = Report(0, 256, 0.0, 8 * GIB)
    found = Worker(name, f"http://{name}", WorkerState.READY, "1", -4.0, True, ("cpu",), report, 0.0)
    reported = {key: changes.pop(key) for key in list(changes) if key in Report._fields}
    return found._replace(**changes, report=report._replace(**reported))


def chosen(*workers: Worker, device: str | None = "cpu", durable: bool = False, **options: Any) -> str:
    given = {"own": {}, "placed": {}, "key": None, **options}
    return choose(candidates(workers, "1", device, durable), **given).id


def test_a_session_goes_to_the_worker_with_fewer_sessions_less_load_and_more_memory() -> None:
    assert chosen(worker("a", sessions=3), worker("b", sessions=2)) == "b"
    assert chosen(worker("a", load=2.0), worker("b")) == "b"
    assert chosen(worker("a", free_bytes=GIB), worker("b")) == "b"
    assert chosen(worker("a"), worker("b"), placed={"a": 1}) == "b"


def test_the_sessions_of_a_tenant_are_spread() -> None:
    assert chosen(worker("a", sessions=2), worker("b", sessions=3), own={"a": 2}) == "b"


def test_an_unsuitable_worker_gets_no_session() -> None:
    busy = worker("b", sessions=200, load=3.0)
    for other in (
        worker("a", state=WorkerState.DRAINING),
        worker("a", overdue_s=0.1),
        worker("a", version="2"),
        worker("a", devices=("cuda:0",)),
        worker("a", max_sessions=0),
    ):
        assert chosen(other, busy) == "b"
    assert chosen(worker("a", keeps_sessions=False), busy, durable=True) == "b"


def test_a_session_on_any_gpu_goes_to_a_worker_with_gpus() -> None:
    workers = worker("a"), worker("b", devices=("cpu", "cuda:0", "cuda:1"), sessions=9)
    assert chosen(*workers, device="gpu") == chosen(*workers, device="cuda:1") == "b"
    with pytest.raises(ServerBusy, match=r"'cuda:2'; there are: cpu, cuda:0, cuda:1") as refused:
        chosen(*workers, device="cuda:2")
    assert refused.value.context["retry_after_s"] is None


def test_every_gateway_chooses_the_same_worker_for_an_idempotency_key() -> None:
    workers = [worker(name) for name in "abcde"]
    found = {chosen(*workers, key="key", own={name: 1}) for name in "abcde"}
    assert len(found) == 1
    assert len({chosen(*workers, key=f"key {number}") for number in range(50)}) == 5
    for other in worker("f", load=2.0), worker("f", sessions=3):
        assert "f" not in {chosen(*workers, other, key=f"key {number}") for number in range(50)}
