"""The workers that a gateway knows, and the choice of one for a session."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256

from telegrad_engine.errors import ServerBusy

from .directory import RENEW_S, Directory, Worker, WorkerState, guarded

logger = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds between two reads of the directory."""
SKEW_S = 0.5
"""Seconds after the end of its lease at which a worker is declared dead: a renewal may be on its way."""
UNREACHABLE_S = 2 * RENEW_S
"""Seconds without a renewal after which a worker that refuses connections is declared dead."""
HOUSEKEEPING_S = 600.0
MAX_PAUSE_S = 2.0
"""After a longer pause between two reads, workers may have been unable to reach the directory, too."""
STALE_S = 10.0
"""Seconds without a read of the directory after which the gateway is not ready."""
CPU, ANY_GPU = "cpu", "gpu"
NAMES = re.compile(r"cpu|gpu|cuda(:[0-9]{1,3})?")
"""The devices that some worker may have. Any worker refuses other names, with the error of a server."""
SHARED_WEIGHT = 0.5
"""The cost of a session of any tenant. A session of the same tenant costs 1 more, to spread a tenant's sessions."""
LOAD_WEIGHT = 4.0
"""The cost of a worker whose threads are all busy, in sessions of the same tenant."""
MEMORY_WEIGHT = 4.0
"""The cost of a worker without free memory, in sessions of the same tenant."""
EQUAL = 1.0
"""How much more than the best worker the one that an Idempotency-Key selects may cost."""
RETRY_AFTER_S = 2
"""``Retry-After`` while no worker can take a session."""


class Members:
    """The workers of a cluster, as last read from the directory."""

    def __init__(self, directory: Directory, lease_s: float, died: Callable[[str], None]) -> None:
        """``died`` is called with the id of each worker that has died."""
        self._directory, self._lease_s, self._died = directory, lease_s, died
        self._workers: Mapping[str, Worker] = {}
        self._looked_at = self._asked_at = -STALE_S
        """When the last read of the directory ended, and when it began."""
        self._patient_until = 0.0
        """Until then, expired leases are ignored, because the database itself may have been unavailable."""
        self._refusing: set[str] = set()
        """The workers that have refused a connection since their last renewal."""
        self._looking = asyncio.Lock()
        self.placed: Counter[str] = Counter()
        """How many sessions this gateway has assigned to each worker since the worker's last report."""
        self.deaths = 0
        """How many workers this gateway has declared dead."""

    @property
    def all(self) -> list[Worker]:
        """The workers that are not dead."""
        return [worker for worker in self._workers.values() if worker.alive]

    @property
    def current(self) -> bool:
        """Whether the directory was read recently."""
        return time.monotonic() - self._looked_at < STALE_S

    def alive(self, worker_id: str | None) -> Worker | None:
        """The worker with this id, unless it is dead or unknown."""
        worker = self._workers.get(worker_id or "")
        return worker if worker is not None and worker.alive else None

    def knows(self, worker_id: str) -> bool:
        """Whether the directory had this worker, dead or alive, when it was last read."""
        return worker_id in self._workers

    async def look(self) -> None:
        """Read the directory, and declare workers with expired leases dead. Raises ServerBusy."""
        asked = time.monotonic()
        async with self._looking:
            if self._asked_at > asked:
                return  # one read serves all requests that wait for it
            begun = time.monotonic()
            found = {worker.id: worker for worker in await guarded(self._directory.workers)}
            now = time.monotonic()
            if now - self._looked_at > MAX_PAUSE_S:
                self._patient_until = now + self._lease_s
            for worker in found.values():
                if not worker.alive:
                    continue
                unrenewed = worker.overdue_s + self._lease_s
                if worker.id in self._refusing and unrenewed > UNREACHABLE_S:
                    allowed = UNREACHABLE_S
                elif worker.overdue_s > SKEW_S and now > self._patient_until:
                    allowed = self._lease_s + SKEW_S
                else:
                    continue
                if await guarded(self._directory.declare_dead, worker.id, allowed, self._lease_s):
                    self.deaths += 1
                    logger.warning("worker %s at %s is dead: it has not renewed its lease", worker.id, worker.url)
                    found[worker.id] = worker._replace(state=WorkerState.DEAD)
            for worker_id, worker in found.items():
                before = self._workers.get(worker_id)
                if before is None or worker.overdue_s < before.overdue_s:  # it has reported since
                    self.placed.pop(worker_id, None)
                    self._refusing.discard(worker_id)
            earlier, self._workers, self._looked_at = self._workers, found, time.monotonic()
            for worker_id, worker in earlier.items():
                if worker.alive and self.alive(worker_id) is None:
                    self._died(worker_id)
            self._asked_at = begun

    def refuses(self, worker: Worker) -> None:
        """Record that a worker refused a connection."""
        self._refusing.add(worker.id)

    async def look_forever(self) -> None:
        """Read the directory every ``LOOK_S`` seconds."""
        tidied = time.monotonic()
        while True:
            try:
                await self.look()
                if time.monotonic() - tidied > HOUSEKEEPING_S:
                    tidied = time.monotonic()
                    await guarded(self._directory.forget_dead)
            except ServerBusy:
                pass  # it is in the log
            except Exception:
                logger.exception("looking at the directory failed")
            await asyncio.sleep(LOOK_S)


def has_device(worker: Worker, device: str) -> bool:
    """Whether a worker has a device; "gpu" is any GPU, and "cuda" the first one."""
    if device == ANY_GPU:
        return any(name.partition(":")[0] in ("cuda", ANY_GPU) for name in worker.devices)
    return device in worker.devices


def candidates(
    workers: Iterable[Worker], version: str, device: str | None, durable: bool, moves: bool = False
) -> list[Worker]:
    """The workers that may get a session. If there is none, raises ServerBusy, which says what is missing.

    A durable session that ``moves`` needs a worker with the data folder. A new one may go to a worker without it, which
    refuses it with a better error.
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
        # Without Retry-After, because such a worker is unlikely to join soon.
        there = ", ".join(sorted({name for worker in same for name in worker.devices}))
        raise ServerBusy(f"no worker has the device {device!r:.60}; there are: {there}", retry_after_s=None)
    keeping = [each for each in fitting if each.keeps_sessions or not durable]
    if moves and not keeping:
        raise _busy("no worker has the data folder of durable sessions")
    fitting = keeping or fitting
    roomy = [each for each in fitting if each.report.sessions < each.report.max_sessions]
    # A full worker may be able to end expired sessions; otherwise its error has its limit.
    return roomy or fitting


def choose(workers: Sequence[Worker], own: Mapping[str, int], placed: Mapping[str, int], key: str | None) -> Worker:
    """The best of several workers.

    ``own`` has the number of the tenant's sessions on each worker, ``placed`` the number of sessions that each worker
    got since its report. With ``key``, the digest of an Idempotency-Key, all gateways choose the same worker, which may
    have recorded the answer, unless another worker is much better.
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
