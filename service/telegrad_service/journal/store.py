"""Where durable sessions are kept: the interface of stores, and what all of them use."""

from __future__ import annotations

import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pydantic import BaseModel

from .frames import Data

logger = logging.getLogger(__name__)
ID = re.compile(r"[A-Za-z0-9_-]+")
"""The ids of sessions, which are names of folders."""
SYNC_S = 1.0
"""The seconds between two times that journals reach the disk or the store with the policy ``everysec``."""


class Manifest(BaseModel):
    """What is known of a durable session without its journal."""

    format: int = 1
    id: str
    tenant: str
    peer: str = ""
    name: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    seed: int
    ttl_s: float
    heartbeats: bool = False
    created_at: float
    last_used_at: float
    """When the session was last used, or a minute before, by the clock on the wall."""
    number: int = 0
    """The number of the journal, and of the snapshot on which it builds."""
    begun_by: int = 0
    """The epoch of the owner that wrote the snapshot and began the journal."""
    written_by: int = 0
    """The epoch of the owner whose journal it is: an earlier one until the present one has copied it."""
    epoch: int = 0
    """The number of the session's owner: it grows each time that a server opens the session."""
    server_version: str

    def is_expired(self, heartbeat_ttl_s: float) -> bool:
        """Whether nobody has used the session, or sent a heartbeat, in its time to live."""
        ttl_s = min(self.ttl_s, heartbeat_ttl_s) if self.heartbeats else self.ttl_s
        return self.last_used_at + ttl_s < time.time()


class SessionStore(ABC):
    """The data of one session, for the server that has taken it over.

    All methods that read or write raise OSError. One thread at a time uses them; any thread may use :attr:`owned` and
    :meth:`withdraw`.
    """

    @property
    @abstractmethod
    def owned(self) -> bool:
        """Whether no other server has taken the session over, as far as is known without waiting."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether :meth:`append` waits for the disk or the network."""

    @abstractmethod
    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one step."""

    @abstractmethod
    def read_snapshot(self, manifest: Manifest) -> bytes:
        """The snapshot with the manifest's number."""

    @abstractmethod
    def read_journal(self, manifest: Manifest) -> bytes:
        """The journal with the manifest's number, as far as it reached the store; empty if there is none."""

    @abstractmethod
    def begin(self, manifest: Manifest, content: memoryview) -> None:
        """Let :meth:`append` continue after ``content``, the beginning of what :meth:`read_journal` has returned."""

    @abstractmethod
    def append(self, pieces: Sequence[Data]) -> None:
        """Write the pieces to the journal, or nothing if that fails.

        Who takes the session over after this has them. It fails if another server has taken it over before.
        """

    @abstractmethod
    def sync(self) -> None:
        """Let all that was written to the journal reach its place. Any thread may call it."""

    @abstractmethod
    def replace(self, manifest: Manifest, snapshot: Sequence[Data], journal: Sequence[Data]) -> None:
        """Write the snapshot and the journal with the manifest's number, then the manifest; delete the old ones."""

    @abstractmethod
    def close(self) -> None:
        """Let the journal reach the store, as far as that is possible, and close it."""

    @abstractmethod
    def withdraw(self) -> None:
        """Make sure that no server finds the session again, and that nothing more can be written."""

    @abstractmethod
    def delete(self) -> None:
        """Delete what is left of a session that was withdrawn."""


class TakenSession(NamedTuple):
    """A session that was taken over."""

    store: SessionStore
    manifest: Manifest


class Store(ABC):
    """The sessions that are kept in one place. All methods raise OSError."""

    @abstractmethod
    def manifests(self) -> Iterable[Manifest]:
        """The manifests of all sessions. Those that cannot be read are left alone."""

    @abstractmethod
    def find(self, session_id: str) -> Manifest | None:
        """The manifest of a session, with the epoch of its owner; None if there is none, or it cannot be read."""

    @abstractmethod
    def create(self, manifest: Manifest) -> SessionStore:
        """Keep a new session."""

    @abstractmethod
    def take(self, session_id: str, epoch: int | None) -> TakenSession | None:
        """Take a session over under this epoch or the next one; None if it was deleted. Raises SessionMoved."""

    @abstractmethod
    def close(self) -> None:
        """Leave the place to another server."""


class Syncer:
    """A thread that syncs, once a second, the journals that were written, ``at_a_time`` of them."""

    def __init__(self, at_a_time: int = 1) -> None:
        self._written: set[SessionStore] = set()
        self._stopped = threading.Event()
        self._at_a_time = at_a_time
        self._thread = threading.Thread(target=self._run, name="telegrad-sync", daemon=True)
        self._thread.start()

    def note(self, journal: SessionStore) -> None:
        """Note that a journal was written."""
        self._written.add(journal)

    def stop(self) -> None:
        """Sync for the last time, and end the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(self._at_a_time, "telegrad-sync") as pool:
            while not self._stopped.wait(SYNC_S):
                self._sync_all(pool)
            self._sync_all(pool)

    def _sync_all(self, pool: ThreadPoolExecutor) -> None:
        journals = []
        while self._written:
            journals.append(self._written.pop())
        list(pool.map(self._sync, journals))

    def _sync(self, journal: SessionStore) -> None:
        try:
            journal.sync()
        except OSError as error:
            logger.error("a journal cannot be written: %s", error)
