"""The journals and snapshots of durable sessions, in a folder or an object store that several servers may share."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from telegrad_engine.errors import ServerBusy, SessionLost, SessionMoved, UnknownSession

from .frames import HEADER, Data, Frame, decode, encode
from .local_store import LocalStore
from .store import Manifest, SessionStore, Store, Syncer

logger = logging.getLogger(__name__)
MOVED = "another server has taken the session over"
CREDENTIALS = re.compile(r"(?<=//)[^/@]*@")
AT_A_TIME = 16
"""How many sessions of an object store are opened at the same time."""
Fsync = Literal["always", "everysec"]


class DataFolder:
    """The folder or object store in which a server keeps its durable sessions.

    ``location`` is a path or a URL that fsspec understands. A server has a folder alone, or with ``shared`` together
    with others. Raises ServerBusy if it cannot be used, and InvalidValue for a URL that is not understood.
    """

    def __init__(self, location: Path | str, fsync: Fsync, shared: bool = False) -> None:
        text = str(location)
        self._is_local = "://" not in text or text.startswith(("file://", "local://"))
        self._syncer = Syncer(1 if self._is_local else AT_A_TIME) if fsync == "everysec" else None
        """Syncs once a second; None if each write does."""
        try:
            with _explained(f"the data folder {CREDENTIALS.sub('', text)} cannot be used"):
                self._store = self._opened(text, shared)
        except BaseException:
            if self._syncer is not None:
                self._syncer.stop()
            raise

    def _opened(self, text: str, shared: bool) -> Store:
        if self._is_local:
            return LocalStore(Path(text.partition("://")[2] or text), self._syncer, shared)
        from .object_store import ObjectStore  # fsspec takes a while to import

        return ObjectStore(text, self._syncer)

    def manifests(self) -> list[Manifest]:
        """The manifests of all sessions, oldest first. Those that cannot be read are left alone. Raises ServerBusy."""
        with _explained("the sessions cannot be listed"):
            return sorted(self._store.manifests(), key=lambda found: found.created_at)

    def find(self, session_id: str) -> Manifest | None:
        """The manifest of a session; None if there is none. Raises ServerBusy."""
        with _explained("the session cannot be found"):
            return self._store.find(session_id)

    def create(self, manifest: Manifest) -> SessionFiles:
        """Make the files of a new session. Raises ServerBusy if they cannot be written."""
        manifest.begun_by = manifest.written_by = manifest.epoch
        with _explained(f"session {manifest.id[:6]}… cannot be written"):
            return SessionFiles(self._store.create(manifest), manifest)

    def open(self, manifest: Manifest, epoch: int | None = None) -> SessionFiles:
        """Take over a session that exists already, under this epoch or the next one.

        What its last owner has acknowledged is there, and it can acknowledge nothing more. Raises SessionMoved if the
        session has this epoch or a larger one, UnknownSession if it was deleted, and ServerBusy if the disk fails.
        """
        with _explained(f"session {manifest.id[:6]}… cannot be opened"):
            taken = self._store.take(manifest.id, epoch)
        if taken is None:
            raise UnknownSession(f"no session of this id has files: {manifest.id!r:.66}")
        return SessionFiles(taken.store, taken.manifest)

    def open_all(self) -> list[SessionFiles]:
        """Take over all sessions, under their next epochs, oldest first."""
        with ThreadPoolExecutor(1 if self._is_local else AT_A_TIME) as pool:
            return list(pool.map(self.open, self.manifests()))

    def close(self) -> None:
        """Write everything to the disk or the store, and leave it to another server."""
        if self._syncer is not None:
            self._syncer.stop()
        self._store.close()


class SessionFiles:
    """The journal and the snapshot of one session, which its server has opened. One thread at a time uses them.

    All methods that read or write them raise SessionMoved once another server has taken the session over. After a write
    it has no ``retry_after_s``, because the other server may have what was written.
    """

    def __init__(self, store: SessionStore, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
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
        return not self._is_open or not self._is_manifest_known or self._store.waits

    @property
    def owned(self) -> bool:
        """Whether no other server has taken the session over, as far as is known. Any thread may ask.

        In a folder, that is always known, at the price of one ``stat``; in an object store, since the last write.
        """
        return self._store.owned

    def check_owned(self) -> None:
        """Raise SessionMoved if another server has taken the session over, and nothing was done yet."""
        if not self.owned:
            raise SessionMoved(MOVED)

    def write_manifest(self) -> None:
        """Replace the manifest in one step. Raises ServerBusy."""
        with self._explained("the session's manifest cannot be written", retry_after_s=None):
            self._store.write_manifest(self.manifest)
        self._is_manifest_known = True

    # The journal ---------------------------------------------------------------------------------

    def frames(self) -> list[Frame]:
        """Open the journal, cut off its torn tail, and return its frames. Raises SessionLost if it is damaged."""
        with self._explained("the session's journal cannot be read"):
            self._is_open = False
            self._store.close()
            data = memoryview(self._store.read_journal(self.manifest))
            found = list(decode(data))
            self.size = sum(HEADER.size + len(frame.payload) for frame in found)
            self._sequence = found[-1].sequence if found else 0
            self._store.begin(self.manifest, data[: self.size])
            self._is_open = True
        return found

    def append(self, parts: Sequence[Data]) -> None:
        """Write one frame. Raises ServerBusy, with nothing written, if the disk is full or fails."""
        if not self._is_manifest_known:
            self.write_manifest()
        if not self._is_open:
            self.frames()
        pieces = encode(self._sequence + 1, self.manifest.epoch, parts)
        with self._explained("the session's journal cannot be written", retry_after_s=None):
            self._store.append(pieces)
        self._sequence += 1
        self.size += sum(map(len, pieces))

    # Snapshots -----------------------------------------------------------------------------------

    def snapshot(self) -> bytes | None:
        """The snapshot on which the journal builds; None if it starts with an empty session. Raises SessionLost."""
        if not self.manifest.number:
            return None
        with self._explained("the session's snapshot cannot be read"):
            try:
                return self._store.read_snapshot(self.manifest)
            except FileNotFoundError:
                self.check_owned()
                raise SessionLost("the session's snapshot is not there any more") from None

    def replace(self, snapshot: Sequence[Data], first: Sequence[Data]) -> None:
        """Begin a journal with one frame on a new snapshot, and delete the old ones. Raises ServerBusy."""
        if not self._is_manifest_known:
            self.write_manifest()
        old = self.manifest
        changes = {"number": old.number + 1, "begun_by": old.epoch, "written_by": old.epoch}
        pieces = encode(self._sequence + 1, old.epoch, first)
        with self._explained("the session's snapshot cannot be written", retry_after_s=None):
            self._is_manifest_known = False
            self._store.replace(old.model_copy(update=changes), snapshot, pieces)
            self._is_manifest_known = True
        for name, value in changes.items():
            setattr(old, name, value)
        self._is_open = False

    def close(self) -> None:
        """Close the journal, whose bytes reach the disk or the store."""
        self._is_open = False
        try:
            self._store.close()
        except OSError as error:
            logger.error("a session's journal cannot be written: %s", error)

    def withdraw(self) -> None:
        """Make sure that no server finds the session again. Any thread may call it. Raises ServerBusy."""
        with self._explained("the session cannot be deleted"):
            self._store.withdraw()

    def delete(self) -> None:
        """Delete the files of a session that was withdrawn."""
        try:
            self._store.delete()
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


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise ServerBusy, which says what failed, for an error of the disk or the store."""
    try:
        yield
    except OSError as error:
        raise ServerBusy(f"{what}: {error.strerror or 'not found'}") from None
