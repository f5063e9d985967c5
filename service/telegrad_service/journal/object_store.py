"""A prefix of an object store as a store of sessions, through fsspec. Objects are written and replaced as a whole.

The objects of a session are, below ``sessions/ID/``:

- ``owners/EPOCH``, with which a server takes the session over, and ``owners/EPOCH.json``, its manifest;
- ``snapshot-N-EPOCH.safetensors``, written by the owner that began journal N;
- ``journal-N/EPOCH-PART``, the journal in parts. A sync writes the last part, and replaces it while it is short.

After each write, an owner looks for a later owner before it acknowledges anything. A new owner creates its object
before it reads. So either the new owner finds what was written, or the old owner finds the new one. The new owner
copies the journal before it continues it, because the old owner may still replace its last part. The store must list an
object as soon as it is written.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import fsspec
from fsspec.core import split_protocol
from typing_extensions import override

from telegrad_engine.errors import InvalidValue, SessionLost, SessionMoved

from .format import Data
from .session_files import AT_A_TIME, ID, Manifest, SessionFiles, Syncer

logger = logging.getLogger(__name__)
T = TypeVar("T")
PART_BYTES = 2**16
"""The size in bytes up to which a part is replaced, so that a session with few commands has few objects."""
EXTRAS = {"s3": "s3", "s3a": "s3"}
"""The extras of telegrad-service with the implementations of these schemes."""
OBJECT = re.compile(r"/(journal|snapshot)-(\d+)[-/](\d+)")
"""The kind of an object, the number of its journal, and the epoch of the owner that wrote it."""


class ObjectStore:
    """The objects below a URL that fsspec understands. Raises InvalidValue for a URL that cannot be used."""

    def __init__(self, url: str, syncer: Syncer | None) -> None:
        scheme, _ = split_protocol(url)
        try:
            # Listings must not be cached, here or by another part of the process.
            files, path = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            extra = EXTRAS.get(scheme or "")
            hint = f"install telegrad-service[{extra}]" if extra else str(error)
            raise InvalidValue(f"--data-dir {scheme}://… needs a package that is not installed: {hint}") from None
        except ValueError as error:
            raise InvalidValue(f"--data-dir {scheme}://…: {error}") from None
        self._objects = Objects(files)
        prefix = str(path).rstrip("/")
        self._root = f"{prefix}/sessions"
        self._syncer = syncer
        self._objects.write(f"{prefix}/telegrad", [b"durable sessions"])  # fails now if the store cannot be used

    def manifests(self) -> Iterable[Manifest]:
        """The manifests of all sessions. Those that cannot be read are left alone."""
        ids = self._objects.names(self._root)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return [found for found in pool.map(self.find, ids) if found is not None]

    def find(self, session_id: str) -> Manifest | None:
        """The manifest of a session, with its owner's epoch; None if there is none, or it cannot be read."""
        if not ID.fullmatch(session_id):
            return None
        owners = Owners(self._objects, self._path(session_id))
        if not owners.epochs:
            return None
        found = owners.read_manifest()
        if found is not None:
            found.epoch = max(owners.epochs)
        return found

    def create(self, manifest: Manifest) -> SessionFiles:
        """Add a new session."""
        path = self._path(manifest.id)
        self._objects.write(_owner(path, manifest.epoch), [secrets.token_bytes(16)])
        made = ObjectSession(self._objects, path, manifest, self._syncer)
        made._write_manifest(manifest)
        return made

    def take(self, session_id: str, epoch: int | None) -> SessionFiles | None:
        """Take a session over under this epoch or the next; None if it was deleted. Raises SessionMoved."""
        path = self._path(session_id)
        while (found := self.find(session_id)) is not None:
            next_epoch = found.epoch + 1 if epoch is None else epoch
            if next_epoch <= found.epoch:
                raise SessionMoved(f"the session has epoch {found.epoch}, which is not below {next_epoch}")
            if not self._objects.create(_owner(path, next_epoch)):
                continue  # another server was faster
            # From now on the last owner acknowledges nothing, so that its files do not change any more.
            owners = Owners(self._objects, path)
            if max(owners.epochs, default=0) != next_epoch:
                continue
            manifest = owners.read_manifest()
            if manifest is None:
                self._objects.delete([_owner(path, next_epoch)])
                return None
            manifest.epoch = next_epoch
            taken = ObjectSession(self._objects, path, manifest, self._syncer)
            taken._write_manifest(manifest)
            with _tolerated():
                owners.delete(below=next_epoch)
            return taken
        return None

    def close(self) -> None:
        """Do nothing: another server can take the sessions over at any time."""

    def _path(self, session_id: str) -> str:
        return f"{self._root}/{session_id}"


class ObjectSession(SessionFiles):
    """The objects of one session, for the owner with the manifest's epoch."""

    def __init__(self, objects: Objects, path: str, manifest: Manifest, syncer: Syncer | None) -> None:
        super().__init__(manifest, syncer)
        self._objects, self._path = objects, path
        self._is_lost = False
        """Whether a later owner was found, or the session was deleted."""
        self._is_withdrawn = False
        self._writing = threading.Lock()
        """Held while a part is written, which the syncer's threads do, too."""
        self._lock = threading.Lock()
        """Held only while the fields below change, so that appending does not wait for the network."""
        self._folder = ""
        """The path of the journal's parts; empty before it is open."""
        self._part = 1
        """The number of the part that is being written."""
        self._tail = bytearray()
        """The content of that part."""
        self._is_stored = True
        """Whether the store has exactly this content."""
        self._failed = False
        """Whether the last attempt to write it failed."""

    @property
    @override
    def _is_owner(self) -> bool:
        return not self._is_lost

    @property
    @override
    def _append_waits(self) -> bool:
        return self._syncer is None or self._failed

    @override
    def _write_manifest(self, manifest: Manifest) -> None:
        self._refuse_if_lost()
        path = _owner(self._path, self._epoch) + ".json"
        self._objects.write(path, [manifest.model_dump_json(indent=1).encode()])
        try:
            self._check()
        except OSError:
            if self._is_lost:
                self._objects.delete([path])
            raise

    @override
    def _read_snapshot(self) -> bytes:
        try:
            [content] = self._objects.read([self._snapshot_path(self.manifest)])
        except FileNotFoundError:
            self._check()
            raise
        return content

    @override
    def _read_journal(self) -> bytes:
        self._refuse_if_lost()
        try:
            return self._read_parts()
        finally:  # a later owner may have deleted some
            self._check()

    def _read_parts(self) -> bytes:
        manifest = self.manifest
        folder = f"{self._path}/journal-{manifest.number}"
        parts = sorted(f"{folder}/{name}" for name in self._objects.names(folder))
        parts = [path for path in parts if path < _part(folder, manifest.written_by + 1, 0)]
        parts = [path for path in parts if path > _part(folder, manifest.written_by, 0)]
        expected = [_part(folder, manifest.written_by, number + 1) for number in range(len(parts))]
        if parts != expected:
            missing = min(set(expected) - set(parts)).rpartition("-")[2]
            raise SessionLost(f"the journal lacks part {int(missing)}")
        self._open(folder, len(parts) + 1)
        return b"".join(self._objects.read(parts))

    def _open(self, folder: str, part: int) -> None:
        """Continue the journal with an empty part."""
        with self._writing, self._lock:
            self._folder, self._part, self._is_stored, self._failed = folder, part, True, False
            self._tail.clear()

    @override
    def _begin(self, content: memoryview) -> None:
        manifest = self.manifest
        if manifest.written_by == self._epoch:
            return
        self._objects.write(_part(self._folder, self._epoch, 1), [content])
        self._write_manifest(manifest.model_copy(update={"written_by": self._epoch}))
        manifest.written_by = self._epoch
        self._open(self._folder, 2)
        self._tidy(manifest)

    @override
    def _append(self, pieces: Sequence[Data]) -> None:
        self._refuse_if_lost()
        with self._lock:
            for piece in pieces:
                self._tail += piece
            self._is_stored = False
        if self._syncer is not None:
            self._syncer.note(self)
        if self._append_waits:
            self._store(undo=sum(map(len, pieces)))

    @override
    def sync(self) -> None:
        if self._is_lost:
            return
        try:
            self._store()
        except OSError:
            if self._syncer is not None and not self._is_lost:
                self._syncer.note(self)
            raise

    def _store(self, undo: int = 0) -> None:
        """Write the part, unless the store has it. If that fails, remove its last ``undo`` bytes."""
        with self._writing:
            with self._lock:
                if self._is_stored:
                    return
                content = bytes(self._tail)
            try:
                self._objects.write(_part(self._folder, self._epoch, self._part), [content])
                self._check()
            except OSError:
                with self._lock:  # the next write replaces what the store may have
                    self._failed = True
                    del self._tail[len(self._tail) - undo :]
                raise
            with self._lock:
                self._is_stored, self._failed = len(self._tail) == len(content), False
                if len(content) > PART_BYTES:
                    self._part += 1
                    del self._tail[: len(content)]

    @override
    def _replace(self, manifest: Manifest, snapshot: Sequence[Data], journal: Sequence[Data]) -> None:
        self._refuse_if_lost()
        folder = f"{self._path}/journal-{manifest.number}"
        self._objects.write(self._snapshot_path(manifest), snapshot)
        self._objects.write(_part(folder, self._epoch, 1), journal)
        self._write_manifest(manifest)
        self._open(folder, 2)  # the snapshot has what was not yet written to the old journal
        self._tidy(manifest)

    def _tidy(self, manifest: Manifest) -> None:
        """Delete the objects that the manifest no longer needs, if possible."""
        first = {"snapshot": (manifest.number, manifest.begun_by), "journal": (manifest.number, manifest.written_by)}
        with _tolerated():
            found = [(path, OBJECT.search(path)) for path in self._objects.paths(self._path)]
            self._objects.delete([path for path, it in found if it and (int(it[2]), int(it[3])) < first[it[1]]])

    @override
    def _close(self) -> None:
        self.sync()

    @override
    def _withdraw(self) -> None:
        self._check()
        Owners(self._objects, self._path).delete(below=self._epoch)
        self._is_lost = True
        self._objects.delete([_owner(self._path, self._epoch)])
        self._is_withdrawn = True

    @override
    def _delete(self) -> None:
        if self._is_withdrawn:  # by this owner
            self._objects.delete(self._objects.paths(self._path))

    def _refuse_if_lost(self) -> None:
        if self._is_lost:
            raise FileNotFoundError(errno.ENOENT, "the session has another owner")

    def _check(self) -> None:
        """Look for a later owner. Raises OSError if there is one, or if the session was deleted."""
        epochs = Owners(self._objects, self._path).epochs
        self._is_lost = self._is_lost or max(epochs, default=None) != self._epoch
        self._refuse_if_lost()

    def _snapshot_path(self, manifest: Manifest) -> str:
        return f"{self._path}/snapshot-{manifest.number}-{manifest.begun_by:010d}.safetensors"


class Owners:
    """The owners of a session, as the store lists them now."""

    def __init__(self, objects: Objects, path: str) -> None:
        self._objects, self._path = objects, path
        names = objects.names(f"{path}/owners")
        self.epochs = sorted(int(name) for name in names if name.isdecimal())
        """The epochs of all owners, including the present one."""
        self._manifests = {int(name.removesuffix(".json")) for name in names if name.endswith(".json")}

    def read_manifest(self) -> Manifest | None:
        """The manifest of the last owner that has written one; None if there is none, or it cannot be read."""
        for epoch in reversed(self.epochs):
            if epoch in self._manifests:
                try:
                    [content] = self._objects.read([_owner(self._path, epoch) + ".json"])
                    return Manifest(**json.loads(content))
                except (FileNotFoundError, ValueError):
                    return None
        return None

    def delete(self, below: int) -> None:
        """Delete earlier owners, and then their manifests, which are ignored without the owners."""
        old = [_owner(self._path, epoch) for epoch in self.epochs if epoch < below]
        self._objects.delete(old)
        self._objects.delete([_owner(self._path, epoch) + ".json" for epoch in self._manifests if epoch < below])


class Objects:
    """The operations on objects. They raise OSError."""

    def __init__(self, files: fsspec.AbstractFileSystem) -> None:
        self._files = files

    def names(self, path: str) -> list[str]:
        """The names directly below a path."""
        return [found.rstrip("/").rpartition("/")[2] for found in self._listed(self._files.ls, path, detail=False)]

    def paths(self, path: str) -> list[str]:
        """The paths of all objects below a path."""
        return self._listed(self._files.find, path)

    def read(self, paths: Sequence[str]) -> list[bytes]:
        """The contents of objects. Raises FileNotFoundError, too."""
        if not paths:
            return []
        found = self._call(self._files.cat, list(paths))
        return [found[path] for path in paths]

    def write(self, path: str, pieces: Sequence[Data]) -> None:
        """Write or replace an object."""
        self._call(self._files.pipe_file, path, b"".join(pieces))

    def create(self, path: str) -> bool:
        """Create an object with random content. Return whether it did not exist."""
        token = secrets.token_bytes(16)
        try:
            self._call(self._files.pipe_file, path, token, mode="create")
        except OSError:
            # It exists. It is ours if a first attempt succeeded and only its answer was lost.
            [found] = self.read([path])
            return found == token
        return True

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, which need not exist."""
        if paths:
            try:
                self._call(self._files.rm, list(paths))
            except FileNotFoundError:
                for path in paths:
                    if self._call(self._files.exists, path):
                        self._call(self._files.rm_file, path)

    def _listed(self, function: Callable[..., Any], path: str, **options: Any) -> list[str]:
        try:
            found: list[str] = self._call(function, path, **options)
        except FileNotFoundError:
            return []
        return [each for each in found if each.strip("/") != path.strip("/")]

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return function(*arguments, **options)
        except FileNotFoundError:
            raise
        except Exception as error:
            # A store's own exceptions may have addresses in their texts, which only the log gets.
            logger.warning("the store of sessions failed: %s: %s", type(error).__name__, error)
            raise OSError(errno.EIO, "the object store cannot be used") from None


@contextmanager
def _tolerated() -> Iterator[None]:
    """Log an error of deleting objects, and continue."""
    try:
        yield
    except OSError as error:
        logger.warning("old objects of a session cannot be deleted now: %s", error)


def _owner(path: str, epoch: int) -> str:
    return f"{path}/owners/{epoch:010d}"


def _part(folder: str, epoch: int, number: int) -> str:
    return f"{folder}/{epoch:010d}-{number:08d}"
