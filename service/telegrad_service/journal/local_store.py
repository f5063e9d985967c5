"""A folder as a store, with a folder for each session.

A session's folder has ``manifest.json``, the journal ``journal-N.log`` and, for N > 0, ``snapshot-N.safetensors``, the
snapshot that the journal continues. The manifest has N, and is replaced atomically. Other files are left over from a
crash.

Several servers may share the folder. Each session then belongs to the server that took it over last. The session's
folder is called ``ID.EPOCH`` (``ID`` if one server has the folder alone), and a server takes the session over by
renaming it. From then on, all paths of the earlier owner fail, which it notices before it acknowledges anything. The
journal that it may have open is copied, so that later writes to it have no effect.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import filelock
from typing_extensions import override

from telegrad_engine.errors import ServerBusy, SessionMoved

from .format import Data
from .session_files import ID, Manifest, SessionFiles, Syncer

MANIFEST = "manifest.json"
RESERVED_FROM, MAX_RESERVED = 2**20, 2**24
"""The size of a journal, in bytes, from which space is reserved in advance, and the most that is reserved."""
MAX_PIECES = 512
"""The most pieces for one call of writev; Linux allows 1,024."""
DELETED, TEMPORARY = ".deleted", ".new"
"""The suffixes of a folder that is being deleted, and of a file that is being written."""


class LocalStore:
    """A folder that one server has alone, or with ``shared`` together with others."""

    def __init__(self, path: Path, syncer: Syncer | None, shared: bool) -> None:
        self._shared, self._syncer = shared, syncer
        self._sessions = path / "sessions"
        self._lock = None if shared else filelock.FileLock(path / "lock", timeout=0)
        self._sessions.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._lock is None:
            return
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise ServerBusy(f"another server uses the data folder {path}; give this one another --data-dir") from None
        for folder in self._sessions.glob(f"*{DELETED}"):
            shutil.rmtree(folder, ignore_errors=True)

    def manifests(self) -> Iterable[Manifest]:
        """The manifests of all sessions. Those that cannot be read are left alone."""
        folders = [path for path in self._sessions.iterdir() if not path.name.endswith(DELETED)]
        return [found for folder in folders if (found := _read_manifest(folder)) is not None]

    def find(self, session_id: str) -> Manifest | None:
        """The manifest of a session, with its owner's epoch; None if there is none, or it cannot be read."""
        folder = self._folder(session_id)
        return None if folder is None else _read_manifest(folder)

    def create(self, manifest: Manifest) -> SessionFiles:
        """Add a new session."""
        made = LocalSession(self._path(manifest.id, manifest.epoch), manifest, self._syncer)
        made.folder.mkdir(mode=0o700)
        made._write_manifest(manifest)
        _sync_folder(self._sessions)
        return made

    def take(self, session_id: str, epoch: int | None) -> SessionFiles | None:
        """Take a session over under this epoch or the next; None if it was deleted. Raises SessionMoved."""
        while (folder := self._folder(session_id)) is not None:
            found = _read_manifest(folder)
            if found is None:
                if folder.exists():
                    return None
                continue  # another server has renamed it
            next_epoch = found.epoch + 1 if epoch is None else epoch
            if next_epoch <= found.epoch:
                raise SessionMoved(f"the session has epoch {found.epoch}, which is not below {next_epoch}")
            path = self._path(session_id, next_epoch)
            try:
                folder.rename(path)
            except FileNotFoundError:
                continue
            # Its last owner may have replaced the manifest until now.
            manifest = _read_manifest(path) or found
            manifest.epoch = next_epoch
            taken = LocalSession(path, manifest, self._syncer, is_inherited=path != folder)
            taken._write_manifest(manifest)
            taken.tidy()
            _sync_folder(self._sessions)
            return taken
        return None

    def _path(self, session_id: str, epoch: int) -> Path:
        """The folder of a session under an epoch of this server."""
        return self._sessions / (f"{session_id}.{epoch}" if self._shared else session_id)

    def _folder(self, session_id: str) -> Path | None:
        """The folder of a session of any owner; None if there is none."""
        if not ID.fullmatch(session_id):
            return None
        alone = self._sessions / session_id
        if not self._shared and alone.exists():
            return alone
        names = [name for name in os.listdir(self._sessions) if name.partition(".")[0] == session_id]
        return next((self._sessions / name for name in names if not name.endswith(DELETED)), None)

    def close(self) -> None:
        """Release the folder for another server."""
        if self._lock is not None:
            self._lock.release()


class LocalSession(SessionFiles):
    """A session's folder. With ``is_inherited`` an earlier owner may still write to the journal in it."""

    def __init__(self, folder: Path, manifest: Manifest, syncer: Syncer | None, is_inherited: bool = False) -> None:
        super().__init__(manifest, syncer)
        self.folder, self._is_inherited = folder, is_inherited
        self._lock = threading.Lock()
        """Held while the journal is synced or closed."""
        self._descriptor = -1
        """The descriptor of the journal; -1 while it is not open."""
        self._path, self._inode = "", 0
        """The path and the inode of the open journal."""
        self._size = self._reserved = 0
        """The bytes of the open journal, and those of its file, which ends with zeros until it is closed."""
        self._is_written = False
        """Whether the journal was written since the last sync."""

    @property
    @override
    def _is_owner(self) -> bool:
        return os.path.exists(self.folder)

    @property
    @override
    def _append_waits(self) -> bool:
        return self._syncer is None

    @override
    def _write_manifest(self, manifest: Manifest) -> None:
        self._replace_file(self.folder / MANIFEST, [manifest.model_dump_json(indent=1).encode()])

    @override
    def _read_snapshot(self) -> bytes:
        return self._snapshot_path(self.manifest.number).read_bytes()

    @override
    def _read_journal(self) -> bytes:
        path = self._journal_path(self.manifest.number)
        return path.read_bytes() if path.exists() else b""

    @override
    def _begin(self, content: memoryview) -> None:
        path, size = self._journal_path(self.manifest.number), len(content)
        if self._is_inherited:
            self._replace_file(path, [content])
            self._is_inherited = False
        self._close()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._path, self._inode, self._size, self._reserved = str(path), os.fstat(self._descriptor).st_ino, size, size
        if os.fstat(self._descriptor).st_size > size:
            os.ftruncate(self._descriptor, size)

    @override
    def _append(self, pieces: Sequence[Data]) -> None:
        length = sum(map(len, pieces))
        self._reserve(self._size + length)
        try:
            _write(self._descriptor, pieces, self._size)
            if self._syncer is None:
                os.fdatasync(self._descriptor)
        except OSError:
            self._trim()
            raise
        if os.stat(self._path).st_ino != self._inode:
            raise FileNotFoundError
        self._size += length
        if self._syncer is not None:
            self._is_written = True
            self._syncer.note(self)

    def _reserve(self, size: int) -> None:
        """Reserve space for at least ``size`` bytes, because writes to reserved space are faster."""
        if RESERVED_FROM < size > self._reserved and hasattr(os, "posix_fallocate"):
            wanted = size + min(size, MAX_RESERVED)
            try:
                os.posix_fallocate(self._descriptor, self._size, wanted - self._size)
            except OSError:  # the file system cannot, or the disk is nearly full; there may be space for this frame
                self._trim()
            self._reserved = wanted

    def _trim(self) -> None:
        """Truncate the file after the last frame."""
        os.ftruncate(self._descriptor, self._size)
        self._reserved = self._size

    @override
    def sync(self) -> None:
        with self._lock:
            if self._is_written:
                self._is_written = False
                os.fdatasync(self._descriptor)

    @override
    def _replace(self, manifest: Manifest, snapshot: Sequence[Data], journal: Sequence[Data]) -> None:
        number = manifest.number
        self._replace_file(self._snapshot_path(number), snapshot)
        self._replace_file(self._journal_path(number), journal)
        self._write_manifest(manifest)
        self._is_inherited = False
        self._abandon()
        for path in (self._journal_path(number - 1), self._snapshot_path(number - 1)):
            path.unlink(missing_ok=True)

    @override
    def _close(self) -> None:
        self.sync()
        self._abandon()

    def tidy(self) -> None:
        """Delete the files that an earlier owner has left over."""
        wanted = {self._journal_path(self.manifest.number), self._snapshot_path(self.manifest.number)}
        for pattern in ("journal-*", "snapshot-*", f"*{TEMPORARY}"):
            for path in self.folder.glob(pattern):
                if path not in wanted:
                    path.unlink(missing_ok=True)

    @override
    def _withdraw(self) -> None:
        self.folder.rename(self._deleted)
        _sync_folder(self.folder.parent)

    @override
    def _delete(self) -> None:
        self._abandon()
        shutil.rmtree(self._deleted, ignore_errors=True)

    def _abandon(self) -> None:
        """Close the journal without a sync."""
        with self._lock:
            self._is_written = False
            if self._descriptor >= 0:
                if self._reserved > self._size:
                    self._trim()
                os.close(self._descriptor)
                self._descriptor = -1

    def _replace_file(self, path: Path, pieces: Sequence[Data]) -> None:
        """Replace a file atomically: after a crash it is the old or the new one."""
        # The epoch is in the name because an earlier owner may still write to a file that it has opened.
        temporary = path.with_name(f"{path.name}.{self._epoch}{TEMPORARY}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, pieces, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        _sync_folder(path.parent)

    def _journal_path(self, number: int) -> Path:
        return self.folder / f"journal-{number}.log"

    def _snapshot_path(self, number: int) -> Path:
        return self.folder / f"snapshot-{number}.safetensors"

    @property
    def _deleted(self) -> Path:
        return self.folder.with_name(self.folder.name + DELETED)


def _read_manifest(folder: Path) -> Manifest | None:
    """The manifest in a session's folder; None if there is none or it cannot be read."""
    try:
        found = Manifest(**json.loads((folder / MANIFEST).read_bytes()))
        # The folder may have the epoch of an owner that has not written the manifest yet.
        found.epoch = max(found.epoch, int(folder.name.partition(".")[2] or 0))
    except (OSError, ValueError):
        return None
    return found


def _write(descriptor: int, pieces: Sequence[Data], offset: int) -> None:
    """Write all pieces to a file, from an offset on."""
    for first in range(0, len(pieces), MAX_PIECES):
        rest = [memoryview(piece).cast("B") for piece in pieces[first : first + MAX_PIECES] if len(piece)]
        while rest:
            written = os.pwritev(descriptor, rest, offset)
            offset += written
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if written:
                rest[0] = rest[0][written:]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
