"""The folder or object store with the journals and snapshots of durable sessions."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from telegrad_engine.errors import UnknownSession

from .local_store import LocalStore
from .session_files import AT_A_TIME, Manifest, SessionFiles, Syncer, explained

if TYPE_CHECKING:
    from .object_store import ObjectStore

CREDENTIALS = re.compile(r"(?<=//)[^/@]*@")
Fsync = Literal["always", "everysec"]


class DataFolder:
    """The folder or object store in which a server keeps its durable sessions.

    ``location`` is a path or a URL that fsspec understands. A server has a folder alone, or with ``shared`` together
    with others. Raises ServerBusy if it cannot be used, and InvalidValue for an invalid URL.
    """

    def __init__(self, location: Path | str, fsync: Fsync, shared: bool = False) -> None:
        text = str(location)
        self._is_local = "://" not in text or text.startswith(("file://", "local://"))
        self._syncer = Syncer(1 if self._is_local else AT_A_TIME) if fsync == "everysec" else None
        """Syncs once a second; None if each write syncs."""
        try:
            with explained(f"the data folder {CREDENTIALS.sub('', text)} cannot be used"):
                self._store = self._opened(text, shared)
        except BaseException:
            if self._syncer is not None:
                self._syncer.stop()
            raise

    def _opened(self, text: str, shared: bool) -> LocalStore | ObjectStore:
        if self._is_local:
            return LocalStore(Path(text.partition("://")[2] or text), self._syncer, shared)
        from .object_store import ObjectStore  # fsspec takes a while to import

        return ObjectStore(text, self._syncer)

    def manifests(self) -> list[Manifest]:
        """The readable manifests of all sessions, oldest first. Raises ServerBusy."""
        with explained("the sessions cannot be listed"):
            return sorted(self._store.manifests(), key=lambda found: found.created_at)

    def find(self, session_id: str) -> Manifest | None:
        """The manifest of a session; None if there is none. Raises ServerBusy."""
        with explained("the session cannot be found"):
            return self._store.find(session_id)

    def create(self, manifest: Manifest) -> SessionFiles:
        """Make the files of a new session. Raises ServerBusy if they cannot be written."""
        manifest.begun_by = manifest.written_by = manifest.epoch
        with explained(f"session {manifest.id[:6]}… cannot be written"):
            return self._store.create(manifest)

    def open(self, manifest: Manifest, epoch: int | None = None) -> SessionFiles:
        """Take over an existing session, under this epoch or by default the next one.

        The files have everything that the last owner has acknowledged, and it can acknowledge nothing more. Raises
        SessionMoved if the session has this epoch or a larger one, UnknownSession if it was deleted, and ServerBusy.
        """
        with explained(f"session {manifest.id[:6]}… cannot be opened"):
            taken = self._store.take(manifest.id, epoch)
        if taken is None:
            raise UnknownSession(f"no session of this id has files: {manifest.id!r:.66}")
        return taken

    def open_all(self) -> list[SessionFiles]:
        """Take over all sessions, under their next epochs. The oldest one comes first."""
        with ThreadPoolExecutor(1 if self._is_local else AT_A_TIME) as pool:
            return list(pool.map(self.open, self.manifests()))

    def close(self) -> None:
        """Sync everything, and release the folder for another server."""
        if self._syncer is not None:
            self._syncer.stop()
        self._store.close()
