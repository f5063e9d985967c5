"""The choice of a worker for a session, from what the workers report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from telegrad_engine.errors import ServerBusy

from .directory import Worker, WorkerState

CPU, ANY_GPU = "cpu", "gpu"
NAMES = re.compile(r"cpu|gpu|cuda(:[0-9]{1,3})?")
"""The devices that some worker may have; any worker refuses another name in the words of a server."""
SHARED_WEIGHT = 0.5
"""How many of all sessions count as much as one of the same tenant: a tenant's sessions are spread first."""
LOAD_WEIGHT = 4.0
"""How many sessions count as much as a worker whose threads are all busy."""
MEMORY_WEIGHT = 4.0
"""How many sessions count as much as a worker without free memory, beside one with all of it."""
EQUAL = 1.0
"""By how many sessions a worker may cost more than the best one if the request's Idempotency-Key leads to it."""
RETRY_AFTER_S = 2
"""Seconds after which another worker may be there."""


def has_device(worker: Worker, device: str) -> bool:
    """Whether a worker has a device; "gpu" is any GPU, and "cuda" the first one."""
    if device == ANY_GPU:
        return any(name.partition(":")[0] in ("cuda", ANY_GPU) for name in worker.devices)
    return device in worker.devices


def devices_of(workers: Iterable[Worker]) -> list[str]:
    """The names of all devices that workers have, sorted."""
    return sorted({name for worker in workers for name in worker.devices})


def candidates(
    workers: Iterable[Worker], version: str, device: str | None, durable: bool, moves: bool = False
) -> list[Worker]:
    """The workers that may get a session. Raises ServerBusy, which says what is missing, if there is none.

    A session that ``moves`` must not get a worker without the data folder; for a new one, such a worker refuses it in
    better words.
    """
    ready = [each for each in workers if each.state is WorkerState.READY and each.overdue_s < 0]
    if not ready:
        raise _busy("no worker is ready; `telegrad worker` starts one")
    same = [each for each in ready if each.version == version]
    if not same:
        others = ", ".join(sorted({each.version for each in ready}))
        raise _busy(f"no worker has the gateway's version, {version}: those that are ready have {others}")
    fitting = [each for each in same if device is None or has_device(each, device)]
    if not fitting:
        # Without Retry-After: most likely nobody adds such a worker soon, and the client should know at once.
        text = f"no worker has the device {device!r:.60}; there are: {', '.join(devices_of(same))}"
        raise ServerBusy(text, retry_after_s=None)
    keeping = [each for each in fitting if each.keeps_sessions or not durable]
    if moves and not keeping:
        raise _busy("no worker has the data folder of durable sessions")
    fitting = keeping or fitting
    roomy = [each for each in fitting if each.report.sessions < each.report.max_sessions]
    # A worker that is full may find one that has expired; otherwise it says how many it may hold.
    return roomy or fitting


def choose(workers: Sequence[Worker], own: Mapping[str, int], placed: Mapping[str, int], key: str | None) -> Worker:
    """The best of several workers.

    ``own`` is how many sessions of the tenant each has, and ``placed`` how many sessions each got since its report.
    With the digest of an Idempotency-Key, gateways choose the same worker, which has the answer to the key, unless
    another one is much better.
    """
    most = max(1, *(worker.report.free_bytes for worker in workers))

    def cost(worker: Worker) -> float:
        report, new = worker.report, placed.get(worker.id, 0)
        return (
            own.get(worker.id, 0)
            + SHARED_WEIGHT * (report.sessions + 2 * new)
            + LOAD_WEIGHT * report.load
            + MEMORY_WEIGHT * (1 - report.free_bytes / most)
        )

    costs = {worker.id: cost(worker) for worker in workers}
    least = min(costs.values())
    if key is None:
        return min(workers, key=lambda worker: (costs[worker.id], worker.id))
    near = [worker for worker in workers if costs[worker.id] <= least + EQUAL]
    return max(near, key=lambda worker: sha256(f"{key} {worker.id}".encode()).digest())


def _busy(text: str) -> ServerBusy:
    return ServerBusy(text, retry_after_s=RETRY_AFTER_S)
