"""Where durable sessions are kept: the files of one session, and what all stores use."""

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
"""The ids of sessions, which are names of folders."""
AT_A_TIME = 16
"""How many requests to an object store, for different sessions, run at the same time."""
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


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise ServerBusy, which says what failed, for an error of the disk or the store."""
    try:
        yield
    except OSError as error:
        raise ServerBusy(f"{what}: {error.strerror or 'not found'}") from None


class SessionFiles(ABC):
    """The journal and the snapshot of one session, for the server that has taken it over.

    One thread at a time uses them; any thread may use :attr:`owned`, :meth:`sync` and :meth:`withdraw`. All public
    methods that read or write them raise SessionMoved once another server has taken the session over. After a write it
    has no ``retry_after_s``, because the other server may have what was written. The methods of the place where the
    session is kept, which come last, raise OSError instead.
    """

    def __init__(self, manifest: Manifest, syncer: Syncer | None) -> None:
        self.manifest, self._epoch, self._syncer = manifest, manifest.epoch, syncer
        self._is_open = False
        """Whether the journal was read, so that it can be continued."""
        self._is_manifest_known = True
        """Whether the store has this manifest, and not one whose writing failed."""
        self.size = 0
        """The bytes of the journal."""
        self._sequence = 0

    @property
    def waits(self) -> bool:
        """Whether :meth:`append` waits for the disk or the network."""
        return not self._is_open or not self._is_manifest_known or self._append_waits

    def check_owned(self) -> None:
        """Raise SessionMoved if another server has taken the session over, and nothing was done yet."""
        if not self.owned:
            raise SessionMoved(MOVED)

    def write_manifest(self) -> None:
        """Replace the manifest in one step. Raises ServerBusy."""
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
        """The snapshot on which the journal builds; None if it starts with an empty session. Raises SessionLost."""
        if not self.manifest.number:
            return None
        with self._explained("the session's snapshot cannot be read"):
            try:
                return self._read_snapshot()
            except FileNotFoundError:
                self.check_owned()
                raise SessionLost("the session's snapshot is not there any more") from None

    def replace(self, snapshot: Sequence[Data], first: Sequence[Data]) -> None:
        """Begin a journal with one frame on a new snapshot, and delete the old ones. Raises ServerBusy."""
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
        """Close the journal, whose bytes reach the disk or the store."""
        self._is_open = False
        try:
            self._close()
        except OSError as error:
            logger.error("a session's journal cannot be written: %s", error)

    def withdraw(self) -> None:
        """Make sure that no server finds the session again. Any thread may call it. Raises ServerBusy."""
        with self._explained("the session cannot be deleted"):
            self._withdraw()

    def delete(self) -> None:
        """Delete the files of a session that was withdrawn."""
        try:
            self._delete()
        except OSError as error:
            logger.warning("the files of a deleted session cannot be deleted: %s", error)

    def remove(self) -> None:
        """Close, withdraw and delete the files of a session that nothing uses. Raises ServerBusy."""
        self.close()
        self.withdraw()
        self.delete()

    @contextmanager
    def _explained(self, what: str, **if_moved: None) -> Iterator[None]:
        """Raise SessionMoved for an error of the disk or the store if that is the reason, else ServerBusy."""
        try:
            yield
        except OSError as error:
            if not self.owned:
                raise SessionMoved(MOVED, **if_moved) from None
            raise ServerBusy(f"{what}: {error.strerror or 'not found'}") from None

    # The place where they are kept -----------------------------------------------------------------

    @property
    @abstractmethod
    def owned(self) -> bool:
        """Whether no other server has taken the session over, as far as is known without waiting.

        In a folder, that is always known, at the price of one ``stat``; in an object store, since the last write.
        """

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
        """The journal with the manifest's number, as far as it reached the store; empty if there is none."""

    @abstractmethod
    def _begin(self, content: memoryview) -> None:
        """Let :meth:`_append` continue after ``content``, the beginning of what :meth:`_read_journal` has returned."""

    @abstractmethod
    def _append(self, pieces: Sequence[Data]) -> None:
        """Write the pieces to the journal, or nothing if that fails.

        Who takes the session over after this has them. It fails if another server has taken it over before.
        """

    @abstractmethod
    def sync(self) -> None:
        """Let all that was written to the journal reach its place. Raises OSError."""

    @abstractmethod
    def _replace(self, manifest: Manifest, snapshot: Sequence[Data], journal: Sequence[Data]) -> None:
        """Write the snapshot and the journal with the manifest's number, then the manifest; delete the old ones."""

    @abstractmethod
    def _close(self) -> None:
        """Let the journal reach the store, as far as that is possible, and close it."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Make sure that no server finds the session again, and that nothing more can be written."""

    @abstractmethod
    def _delete(self) -> None:
        """Delete what is left of a session that was withdrawn."""


class Syncer:
    """A thread that syncs, once a second, the journals that were written, ``at_a_time`` of them."""

    def __init__(self, at_a_time: int = 1) -> None:
        self._written: set[SessionFiles] = set()
        self._stopped = threading.Event()
        self._at_a_time = at_a_time
        self._thread = threading.Thread(target=self._run, name="telegrad-sync", daemon=True)
        self._thread.start()

    def note(self, journal: SessionFiles) -> None:
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

    def _sync(self, journal: SessionFiles) -> None:
        try:
            journal.sync()
        except OSError as error:
            logger.error("a journal cannot be written: %s", error)
