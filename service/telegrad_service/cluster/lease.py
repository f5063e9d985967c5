"""A worker's lease: the proof, renewed every second, that the directory still counts on this worker.

A worker that could not renew its lease in time, as when its process was stopped, answers nothing until it has. If the
directory has declared it dead by then, its sessions are others', and it joins again under a new id.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..database.database import DatabaseUnavailable
from .directory import RENEW_S, Directory, WorkerState
from .worker_host import WorkerHost

logger = logging.getLogger(__name__)


class Member(NamedTuple):
    """What a worker tells the directory once."""

    url: str
    version: str
    devices: Sequence[str]
    keeps_sessions: bool


class Lease:
    """Joins the directory for a host and renews its lease, on a thread that a busy event loop does not delay.

    A worker that drains gets ``drain_s`` seconds for programs that run.
    """

    def __init__(self, directory: Directory, host: WorkerHost, seconds: float, drain_s: float) -> None:
        self._directory, self._host, self._seconds, self._drain_s = directory, host, seconds, drain_s
        self._member: Member | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._until = 0.0
        """The monotonic time at which the lease ends."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telegrad-lease", daemon=True)

    def lasts(self, worker_id: str) -> bool:
        """Whether the lease of the worker of this id lasts: until its end nobody declares that worker dead."""
        return time.monotonic() < self._until and worker_id == self._host.worker_id

    def start(self, member: Member) -> None:
        """Join, and renew from now on. Called on the host's event loop. Raises DatabaseUnavailable."""
        self._member, self._loop = member, asyncio.get_running_loop()
        self._join(member)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more, and tell the directory that this worker has ended."""
        if self._member is None:
            return
        self._stopped.set()
        self._thread.join()
        self._until = 0.0
        try:
            self._directory.leave(self._host.worker_id)
        except DatabaseUnavailable as error:
            logger.warning("the directory was not told that this worker ends: %s", error)

    def _join(self, member: Member) -> None:
        begun = time.monotonic()
        self._host.worker_id = secrets.token_urlsafe(12)
        self._directory.join(self._host.worker_id, *member, self._seconds, self._host.report())
        self._until = begun + self._seconds

    def _run(self) -> None:
        while not self._stopped.wait(RENEW_S):
            try:
                self._renew()
            except DatabaseUnavailable as error:
                logger.warning("the worker's lease could not be renewed: %s", error)
            except Exception:
                logger.exception("the worker's lease could not be renewed")

    def _renew(self) -> None:
        assert self._loop is not None and self._member is not None
        begun = time.monotonic()  # before the database's clock is read, so that this end is the earlier one
        state = self._directory.renew(self._host.worker_id, self._seconds, self._host.report())
        if state is WorkerState.DEAD:
            self._until = 0.0
            logger.warning("this worker was declared dead; it drops its sessions and joins again")
            asyncio.run_coroutine_threadsafe(self._host.drop_all(), self._loop).result()
            self._join(self._member)
            return
        self._until = begun + self._seconds
        self._host.library.refresh()
        if state is WorkerState.DRAINING:
            self._loop.call_soon_threadsafe(self._host.begin_handover, self._drain_s)
