"""What a gateway knows of the workers, and how it notices that one is dead."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from telegrad_engine.errors import ServerBusy

from .directory import RENEW_S, Directory, Worker, WorkerState, guarded

logger = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds between two looks at the directory."""
SKEW_S = 0.5
"""Seconds that a lease must be over before its worker is declared dead: a renewal may be on its way."""
UNREACHABLE_S = 2 * RENEW_S
"""Seconds without a renewal after which a worker that refuses connections counts as dead."""
HOUSEKEEPING_S = 600.0
MAX_PAUSE_S = 2.0
"""Seconds between two looks after which workers, too, may not have reached the directory meanwhile."""
STALE_S = 10.0
"""Seconds without a look at the directory after which the gateway is not ready."""


class Members:
    """The workers of a cluster, as of the last look at the directory."""

    def __init__(self, directory: Directory, lease_s: float, died: Callable[[str], None]) -> None:
        """``died`` is called with the id of each worker that is found to be dead."""
        self._directory, self._lease_s, self._died = directory, lease_s, died
        self._workers: Mapping[str, Worker] = {}
        self._looked_at = self._asked_at = -STALE_S
        """When the last look ended, and when it began to read."""
        self._patient_until = 0.0
        """When workers that do not renew their leases count as dead again. After a pause, which may have been one of
        the database, they get time to do so."""
        self._refusing: set[str] = set()
        """The workers that refused a connection since they were last seen to live."""
        self._looking = asyncio.Lock()
        self.placed: Counter[str] = Counter()
        """How many sessions this gateway has placed on each worker since its last report."""
        self.deaths = 0
        """How many workers this gateway has declared dead."""

    @property
    def all(self) -> list[Worker]:
        """All workers that are not dead."""
        return [worker for worker in self._workers.values() if worker.alive]

    @property
    def current(self) -> bool:
        """Whether the directory has been read lately."""
        return time.monotonic() - self._looked_at < STALE_S

    def alive(self, worker_id: str | None) -> Worker | None:
        """A worker that is not dead; None if it is, or is not known."""
        worker = self._workers.get(worker_id or "")
        return worker if worker is not None and worker.alive else None

    def knows(self, worker_id: str) -> bool:
        """Whether a worker was there at the last look, dead or alive."""
        return worker_id in self._workers

    async def look(self) -> None:
        """Read the directory, and declare dead whose lease is over. Raises ServerBusy."""
        asked = time.monotonic()
        async with self._looking:
            if self._asked_at > asked:
                return  # many requests wait for the same worker, and one look serves all of them
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
            self._note(found)
            self._asked_at = begun

    def _note(self, found: Mapping[str, Worker]) -> None:
        for worker_id, worker in found.items():
            before = self._workers.get(worker_id)
            if before is None or worker.overdue_s < before.overdue_s:  # it has reported since
                self.placed.pop(worker_id, None)
                self._refusing.discard(worker_id)
        earlier, self._workers, self._looked_at = self._workers, found, time.monotonic()
        for worker_id, worker in earlier.items():
            if worker.alive and self.alive(worker_id) is None:
                self._died(worker_id)

    def refuses(self, worker: Worker) -> None:
        """Note that a worker refused a connection."""
        self._refusing.add(worker.id)

    async def look_forever(self) -> None:
        """Look again and again."""
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
