"""The files of a durable session in any store, and what all stores share."""

from __future__ import annotations

import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pydantic import BaseModel

from telegrad_engine.errors import ServerBusy, SessionLost, SessionMoved

from .format import HEADER, Data, Frame, decode_frames, encode_frame

logger = logging.getLogger(__name__)
MOVED = "another server has taken the session over"
ID = re.compile(r"[A-Za-z0-9_-]+")
"""The pattern of session ids, which are names of folders."""
AT_A_TIME = 16
"""The number of requests to an object store, for different sessions, that run at the same time."""
SYNC_S = 1.0
"""Seconds between two syncs of journals to the disk or the store with the policy ``everysec``."""


class Manifest(BaseModel):
    """The description of a durable session outside of its journal."""

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
    """When the session was last used, or up to a minute before, by the system clock."""
    number: int = 0
    """The number of the journal, and of the snapshot that it continues."""
    begun_by: int = 0
    """The epoch of the owner that wrote the snapshot and began the journal."""
    written_by: int = 0
    """The epoch of the owner that wrote the journal, which changes when a new owner has copied it."""
    epoch: int = 0
    """The number of the session's owner, which grows whenever a server takes the session over."""
    server_version: str

    def is_expired(self, heartbeat_ttl_s: float) -> bool:
        """Whether the session was not used, and got no heartbeat, within its time to live."""
        ttl_s = min(self.ttl_s, heartbeat_ttl_s) if self.heartbeats else self.ttl_s
        return self.last_used_at + ttl_s < time.time()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of the disk or the store into ServerBusy with the text ``what``."""
    try:
        yield
    except OSError as error:
        raise ServerBusy(f"{what}: {error.strerror or 'not found'}") from None


class SessionFiles(ABC):
    """The journal and the snapshot of one session, for the server that owns it.

    One thread at a time uses them; any thread may use :attr:`owned`, :meth:`give_up`, :meth:`sync` and
    :meth:`withdraw`. The public methods raise SessionMoved once another server has taken the session over, and those
    that write after :meth:`give_up` too. After a write, that error has no
    ``retry_after_s``, because the other server may have what was written. The abstract methods, which a store
    implements, raise OSError instead.
    """

    def __init__(self, manifest: Manifest, syncer: Syncer | None) -> None:
        self.manifest, self._epoch, self._syncer = manifest, manifest.epoch, syncer
        self._is_given_up = False
        self._is_open = False
        """Whether the journal was read, so that it can be continued."""
        self._is_manifest_known = True
        """Whether the store has this manifest: the last write has not failed."""
        self.size = 0
        """The bytes of the journal."""
        self._sequence = 0

    @property
    def waits(self) -> bool:
        """Whether :meth:`append` waits for the disk or the network."""
        return not self._is_open or not self._is_manifest_known or self._append_waits

    @property
    def owned(self) -> bool:
        """Whether this server has the session: no other one has taken it over, as far as this is known without waiting.

        A folder is checked by one ``stat``; an object store was checked at the last write.
        """
        return not self._is_given_up and self._is_owner

    def check_owned(self) -> None:
        """Raise SessionMoved if this server does not have the session any more. Nothing was written."""
        if not self.owned:
            raise SessionMoved(MOVED)

    def give_up(self) -> None:
        """Write nothing more, because another server may take the session over at any time."""
        self._is_given_up = True

    def _check_not_given_up(self) -> None:
        if self._is_given_up:
            raise SessionMoved(MOVED)

    def write_manifest(self) -> None:
        """Replace the manifest in one step. Raises ServerBusy."""
        self._check_not_given_up()
        with self._explained("the session's manifest cannot be written", retry_after_s=None):
            self._write_manifest(self.manifest)
        self._is_manifest_known = True

    # The journal ---------------------------------------------------------------------------------

    def frames(self) -> list[Frame]:
        """Open the journal, cut off its torn tail, and return its frames. Raises SessionLost if it is damaged."""
        with self._explained("the session's journal cannot be read"):
            self._is_open = False
            self._close()
            data = memoryview(self._read_journal())
            found = list(decode_frames(data))
            self.size = sum(HEADER.size + len(frame.payload) for frame in found)
            self._sequence = found[-1].sequence if found else 0
            self._begin(data[: self.size])
            self._is_open = True
        return found

    def append(self, parts: Sequence[Data]) -> None:
        """Write one frame. Raises ServerBusy, with nothing written, if the disk is full or fails."""
        self._check_not_given_up()
        if not self._is_manifest_known:
            self.write_manifest()
        if not self._is_open:
            self.frames()
        pieces = encode_frame(self._sequence + 1, self.manifest.epoch, parts)
        with self._explained("the session's journal cannot be written", retry_after_s=None):
            self._append(pieces)
        self._sequence += 1
        self.size += sum(map(len, pieces))

    # Snapshots -----------------------------------------------------------------------------------

    def snapshot(self) -> bytes | None:
        """The snapshot that the journal continues; None if it starts with an empty session. Raises SessionLost."""
        if not self.manifest.number:
            return None
        with self._explained("the session's snapshot cannot be read"):
            try:
                return self._read_snapshot()
            except FileNotFoundError:
                self.check_owned()
                raise SessionLost("the session's snapshot is not there any more") from None

    def replace(self, snapshot: Sequence[Data], first: Sequence[Data]) -> None:
        """Write a snapshot and a new journal with one frame, and delete the old ones. Raises ServerBusy."""
        self._check_not_given_up()
        if not self._is_manifest_known:
            self.write_manifest()
        old = self.manifest
        changes = {"number": old.number + 1, "begun_by": old.epoch, "written_by": old.epoch}
        pieces = encode_frame(self._sequence + 1, old.epoch, first)
        with self._explained("the session's snapshot cannot be written", retry_after_s=None):
            self._is_manifest_known = False
            self._replace(old.model_copy(update=changes), snapshot, pieces)
            self._is_manifest_known = True
        for name, value in changes.items():
            setattr(old, name, value)
        self._is_open = False

    def close(self) -> None:
        """Sync and close the journal."""
        self._is_open = False
        try:
            self._close()
        except OSError as error:
            logger.error("a session's journal cannot be written: %s", error)

    def withdraw(self) -> None:
        """Make sure that no server finds the session again. Any thread may call this. Raises ServerBusy."""
        with self._explained("the session cannot be deleted"):
            self._withdraw()

    def delete(self) -> None:
        """Delete the files of a session that was withdrawn."""
        try:
            self._delete()
        except OSError as error:
            logger.warning("the files of a deleted session cannot be deleted: %s", error)

    def remove(self) -> None:
        """Close, withdraw and delete the files of an unused session. Raises ServerBusy."""
        self.close()
        self.withdraw()
        self.delete()

    @contextmanager
    def _explained(self, what: str, **if_moved: None) -> Iterator[None]:
        """Turn an error of the disk or the store into SessionMoved if that is the reason, else into ServerBusy."""
        try:
            yield
        except OSError as error:
            if not self.owned:
                raise SessionMoved(MOVED, **if_moved) from None
            raise ServerBusy(f"{what}: {error.strerror or 'not found'}") from None

    # The interface of a store ----------------------------------------------------------------------

    @property
    @abstractmethod
    def _is_owner(self) -> bool:
        """Whether no other server has taken the session over, as far as this is known without waiting."""

    @property
    @abstractmethod
    def _append_waits(self) -> bool:
        """Whether :meth:`_append` waits for the disk or the network."""

    @abstractmethod
    def _write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one step."""

    @abstractmethod
    def _read_snapshot(self) -> bytes:
        """The snapshot with the manifest's number."""

    @abstractmethod
    def _read_journal(self) -> bytes:
        """The part of the journal with the manifest's number that has reached the store; empty without a journal."""

    @abstractmethod
    def _begin(self, content: memoryview) -> None:
        """Let :meth:`_append` continue after ``content``, the valid part of the result of :meth:`_read_journal`."""

    @abstractmethod
    def _append(self, pieces: Sequence[Data]) -> None:
        """Write the pieces to the journal, or nothing if that fails.

        A server that takes the session over afterwards has them. Fails if another server has taken it over before.
        """

    @abstractmethod
    def sync(self) -> None:
        """Sync the journal to the disk or the store. Raises OSError."""

    @abstractmethod
    def _replace(self, manifest: Manifest, snapshot: Sequence[Data], journal: Sequence[Data]) -> None:
        """Write the snapshot and the journal with the manifest's number, then the manifest; delete the old ones."""

    @abstractmethod
    def _close(self) -> None:
        """Sync the journal, if possible, and close it."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Make sure that no server finds the session again, and that nothing more can be written."""

    @abstractmethod
    def _delete(self) -> None:
        """Delete the remaining files of a session that was withdrawn."""


class Syncer:
    """A thread that syncs the written journals once a second, ``at_a_time`` of them at the same time."""

    def __init__(self, at_a_time: int = 1) -> None:
        self._written: set[SessionFiles] = set()
        self._stopped = threading.Event()
        self._at_a_time = at_a_time
        self._thread = threading.Thread(target=self._run, name="telegrad-sync", daemon=True)
        self._thread.start()

    def note(self, journal: SessionFiles) -> None:
        """Record that a journal was written."""
        self._written.add(journal)

    def stop(self) -> None:
        """Sync once more, and end the thread."""
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

    def _sync(self, journal: SessionFiles) -> None:
        try:
            journal.sync()
        except OSError as error:
            logger.error("a journal cannot be written: %s", error)
