"""The session host of a worker in a cluster. The directory decides which sessions it has."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from typing_extensions import override

from telegrad_engine.errors import (
    ServerBusy,
    SessionExists,
    SessionLimit,
    SessionLost,
    SessionMoved,
    TelegradError,
    TooLarge,
    UnknownSession,
)
from telegrad_engine.lru import LRU
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot

from .. import __version__
from ..hosting.host import Endpoint, SessionHost
from ..hosting.sequence import HostedSession
from ..hosting.session_handle import GOING_AWAY, SessionHandle, SessionOptions
from ..journal.data_folder import DataFolder
from ..journal.format import pack, unpack
from ..journal.session_files import Manifest, SessionFiles
from ..resources.sessions import UNLOADED, Session, members
from ..settings import WorkerSettings
from ..tenants.principal import ANYONE, Principal
from .directory import FIRST_EPOCH, Directory, Placement, Report, guarded
from .functions import ClusterLibrary
from .tokens import TOKEN_S, Claims, Secrets, sign

logger = logging.getLogger(__name__)
CREATION_KEY: ContextVar[str | None] = ContextVar("creation_key", default=None)
"""The digest of the Idempotency-Key of the current request."""
MOVING = "the session moves to another worker"
LOST = "this worker was taken for dead, and its sessions for lost"
ELSEWHERE = (
    "the session has moved to a worker that does not find its files; all workers of a cluster need the same --data-dir"
)
POLL_S = 0.02
MAX_HANDED_OVER = 4096
HANDOVERS = 4
"""The number of sessions that are handed over at the same time."""
TIDY_S = 10.0
"""Seconds between two checks for expired sessions that no worker has taken over."""
RETRY_AFTER_S = 1
NO_ROOM = ServerBusy, SessionLimit, TooLarge
"""The errors for lack of room, which another worker may have, or this one later."""


class WorkerHost(SessionHost):
    """Hosts the sessions of one worker. ``worker_id`` is empty before it joins, and changes if it joins again."""

    def __init__(self, settings: WorkerSettings, directory: Directory, secrets: Secrets) -> None:
        super().__init__(settings, shared=True)
        self._directory, self._secrets = directory, secrets
        self.library: ClusterLibrary = ClusterLibrary(directory.database)
        self.url: str = ""
        self.epochs: dict[str, int] = {}
        """The epochs of the sessions of this worker."""
        self.leaving = False
        """Whether the worker refuses new sessions and hands over those that it has."""
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._active: Counter[str] = Counter()
        """The number of active requests and streams of each session."""
        self._moving: set[str] = set()
        """The sessions that are being handed over."""
        self._handed_over: LRU[str, int] = LRU(MAX_HANDED_OVER)
        """The epochs of the sessions that were handed over recently."""
        self._handover: asyncio.Task[None] | None = None
        self._tidied = -math.inf
        """The time of the last check for expired sessions that no worker has taken over."""

    def discover(self) -> None:
        """Add to the directory the durable sessions in the data folder that are missing there or have an older epoch.

        There are some if a server without a cluster used the folder, or if the directory's database was lost. Only the
        first worker of a cluster looks for them, before it joins, because from then on only workers write to the
        folder. Raises DatabaseUnavailable, and ServerBusy if the folder cannot be read.
        """
        if self._data is None or any(each.alive and each.overdue_s < 0 for each in self._directory.workers()):
            return
        begun, known, count = time.time(), self._directory.epochs(), 0
        same = ("id", "tenant", "name", "device", "dtype", "created_at", "last_used_at", "ttl_s")
        for manifest in self._data.manifests():
            # The directory is right about a known epoch. A newer session is about to be added by its worker.
            if manifest.epoch <= known.get(manifest.id, -1) or manifest.created_at >= begun:
                continue
            facts = {name: getattr(manifest, name) for name in same}
            facts["expires_at"] = manifest.last_used_at + manifest.ttl_s
            description = Session(
                **facts,
                heartbeat_ttl_s=self._settings.heartbeat_ttl_s if manifest.heartbeats else None,
                durable=True,
                sequence=0,  # it is in the journal, which is read when the session is used
                **UNLOADED,
            ).model_dump(mode="json")
            found = Placement(manifest.id, manifest.tenant, None, manifest.epoch, True, manifest.device, description)
            try:
                self._directory.add_found(found, manifest.name)
                count += 1
            except SessionExists:
                logger.error(
                    "session %.6s… in the data folder is not in the directory, which has another one of its tenant "
                    "that is called %r; `telegrad serve` on this folder can rename it",
                    manifest.id,
                    manifest.name,
                )
        if count:
            logger.info("%s durable sessions in the data folder are now in the directory", count)

    def report(self) -> Report:
        """The worker's load, for the directory. Any thread may call this."""
        load = (self.workers.busy_count + self.workers.backlog) / self.workers.count
        free = max(0, self._settings.max_process_bytes - self.quotas.memory.used)
        return Report(len(self._sessions), self._settings.max_sessions, load, int(free))

    # Sessions that begin and end -----------------------------------------------------------------

    @override
    async def create(self, options: SessionOptions, origin: SessionHandle | Container | None = None) -> SessionHandle:
        return await self._registered(await super().create(options, origin))

    @override
    async def _make_room(self, options: SessionOptions) -> None:
        if self.leaving:
            raise SessionMoved("this worker takes no new sessions")  # the gateway then asks another worker
        await super()._make_room(options)

    async def _registered(self, handle: SessionHandle) -> SessionHandle:
        """Add a new session to the directory before its creator gets the id; end the session if that fails."""
        description = Session(**members(handle)).model_dump(mode="json")
        where = self.worker_id, FIRST_EPOCH, handle.durable, handle.device
        placed = Placement(handle.id, handle.tenant, *where, description)
        most = 0 if handle.tenant == ANYONE.tenant else self._settings.max_sessions_per_tenant
        try:
            await guarded(self._directory.add, placed, handle.name, CREATION_KEY.get(), most)
        except BaseException:
            await super()._remove(handle, "deleted", "the session could not be registered")
            raise
        self.epochs[handle.id] = FIRST_EPOCH
        return handle

    @override
    async def _remove(self, handle: SessionHandle, how: str, reason: str) -> None:
        worker = self.worker_id
        await super()._remove(handle, how, reason)
        if self.epochs.pop(handle.id, None) is not None:
            await guarded(self._directory.remove, handle.id, worker)

    @override
    def check_name(self, tenant: str, name: str | None) -> None:
        """Do nothing: the directory checks the name when it adds the session."""

    @override
    async def rename(self, handle: SessionHandle, name: str | None) -> None:
        if handle.durable:
            await guarded(self._directory.rename, handle.id, handle.tenant, self.worker_id, name)
        handle.name = name

    @override
    async def endpoint(self, handle: SessionHandle, principal: Principal) -> Endpoint:
        epoch = self.epochs.get(handle.id, 0)
        claims = Claims(principal, self.worker_id, __version__, handle.id, epoch, handle.durable, direct=True)
        expires_at = time.time() + TOKEN_S
        return Endpoint(self.url, sign(claims, *await guarded(self._secrets.newest)), expires_at)

    # Sessions that move --------------------------------------------------------------------------

    async def take(self, session_id: str, epoch: int, durable: bool) -> None:
        """Open a session that the directory has assigned to this worker under an epoch, unless it is open.

        Raises SessionMoved if the session was assigned to another worker since.
        """
        if self._has(session_id, epoch):
            return
        async with self._opening[session_id]:
            if not self._has(session_id, epoch):
                await self._open(session_id, epoch, durable)
        self._opening.pop(session_id, None)

    async def _open(self, session_id: str, epoch: int, durable: bool) -> None:
        try:
            if durable:
                await self.open(session_id, epoch)
            else:
                await self._receive(session_id, epoch)
        except UnknownSession:
            if durable and epoch > FIRST_EPOCH:
                raise SessionLost(ELSEWHERE) from None
            # It was a session of this worker, and has ended.
            await guarded(self._directory.remove, session_id, self.worker_id)
            raise
        self.epochs[session_id] = epoch

    async def _receive(self, session_id: str, epoch: int) -> None:
        """Load a session that is not durable from the files that its last worker has written.

        Raises UnknownSession if there are none, ServerBusy if there is no room for the session now, in which case any
        worker may get it later, and SessionLost if the files cannot be used.
        """
        data = self._data
        manifest = None if data is None or epoch == FIRST_EPOCH else await asyncio.to_thread(data.find, session_id)
        if data is None or manifest is None:
            raise UnknownSession(f"no session of this id: {session_id!r:.66}; it never was, it ended or it expired")
        files = await asyncio.to_thread(data.open, manifest, epoch)
        options = self.options_of(manifest)
        try:
            session = await asyncio.to_thread(_read_session, files, self._surroundings(options))
        except NO_ROOM as error:
            files.close()
            await guarded(self._directory.release, session_id, self.worker_id, epoch)
            self._handed_over[session_id] = epoch
            text = f"no worker has room for the session now: {error.detail}"
            raise ServerBusy(text, retry_after_s=RETRY_AFTER_S) from error
        except TelegradError as error:
            await asyncio.to_thread(files.remove)
            raise SessionLost(f"the session has not survived its move to another worker: {error.detail}") from error
        await asyncio.to_thread(files.remove)
        self.resume(options, session, manifest)

    def _has(self, session_id: str, epoch: int) -> bool:
        """Whether this worker has a session under an epoch. Raises SessionMoved if the epoch is out of date."""
        latest = self.epochs.get(session_id) or self._handed_over.get(session_id) or 0
        if latest > epoch or session_id in self._moving or (latest == epoch and session_id not in self.epochs):
            raise SessionMoved(MOVING)
        return latest == epoch and session_id in self._sessions

    @contextmanager
    def serving(self, session_id: str) -> Iterator[None]:
        """Mark a session as active within the block, so that it is not handed over."""
        self._active[session_id] += 1
        try:
            yield
        finally:
            self._active[session_id] -= 1
            if not self._active[session_id]:
                del self._active[session_id]

    @override
    def _forget(self, session_id: str) -> None:
        self.epochs.pop(session_id, None)
        super()._forget(session_id)

    async def drop_all(self) -> None:
        """Forget all sessions, because the directory has assigned them to other workers, or they are lost."""
        for session_id in list(self._sessions):
            self._forget(session_id)

    def begin_handover(self, seconds: float) -> asyncio.Task[None]:
        """Refuse new sessions, and hand over those of this worker. A second call retries those that could not move."""
        self.leaving = True
        if self._handover is None or self._handover.done():
            self._handover = asyncio.create_task(self._hand_over_all(seconds))
        return self._handover

    async def _hand_over_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        room = asyncio.Semaphore(HANDOVERS)

        async def hand_over(handle: SessionHandle) -> None:
            async with room:
                if not handle.durable:  # it moves as files, unless it has no snapshot now
                    if self._data is None or time.monotonic() >= deadline:
                        return
                    if await handle.inspect(snapshot.refusal) is not None:
                        return
                await self._hand_over(handle, deadline)

        for done in await asyncio.gather(*map(hand_over, [*self._sessions.values()]), return_exceptions=True):
            if isinstance(done, TelegradError):
                logger.info("a session does not move now: %s", done.detail)
            elif isinstance(done, BaseException):
                raise done

    async def _hand_over(self, handle: SessionHandle, deadline: float) -> None:
        """Wait until a session's programs have finished, save the session, and release it for other workers."""
        self._moving.add(handle.id)
        try:
            handle.stop_streams(GOING_AWAY, MOVING)
            while handle.actor.busy or self._active[handle.id]:
                if time.monotonic() > deadline:
                    handle.actor.cancel(MOVING)
                    break
                await asyncio.sleep(POLL_S)
            epoch = self.epochs.get(handle.id, 0)
            if handle.durable:
                await handle.put_away()
                await guarded(self._directory.release, handle.id, self.worker_id, epoch)
            else:
                await self._release_written(handle, epoch)
            self._handed_over[handle.id] = epoch
            self._forget(handle.id)
        finally:
            self._moving.discard(handle.id)

    async def _release_written(self, handle: SessionHandle, epoch: int) -> None:
        """Write the files of a session that is not durable, and release it for other workers."""
        assert self._data is not None
        saved = await handle.inspect(_saved)
        files = await asyncio.to_thread(_write_files, self._data, handle, saved, epoch)
        try:
            await guarded(self._directory.release, handle.id, self.worker_id, epoch)
        except BaseException:
            await asyncio.to_thread(files.remove)
            raise

    @override
    async def expire(self) -> None:
        await super().expire()
        if self._data is not None and time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            with suppress(ServerBusy):  # it is in the log
                await self._end_unmoved(self._data)

    async def _end_unmoved(self, data: DataFolder) -> None:
        """End the expired sessions among those that were handed over and that no worker has taken."""
        for placed in await guarded(self._directory.handed_over):
            manifest = await asyncio.to_thread(data.find, placed.id)
            if manifest is not None and not manifest.is_expired(self._settings.heartbeat_ttl_s):
                continue
            # Once it is not in the directory, no worker has it or can get it.
            if await guarded(self._directory.remove_unmoved, placed) and manifest is not None:
                files = await asyncio.to_thread(data.open, manifest)
                await asyncio.to_thread(files.remove)

    @override
    async def drain(self, seconds: float) -> bool:
        if self._drained is None:
            begun = time.monotonic()
            await asyncio.shield(self.begin_handover(seconds))
            seconds = max(0.0, seconds - (time.monotonic() - begun))
        return await super().drain(seconds)


# A session that is not durable, as files: one worker writes them to hand it over, and the next one reads them once.


def _saved(session: HostedSession) -> tuple[Container, bytes]:
    """The state of a session whose commands have ended, and the recorded answers of its senders.

    Raises NotSupported if it has no snapshot now.
    """
    return snapshot.save(session), pack(["senders", session.senders.dump()])


def _write_files(data: DataFolder, handle: SessionHandle, saved: tuple[Container, bytes], epoch: int) -> SessionFiles:
    """Write the files of a session. Raises ServerBusy, and leaves none, if that fails."""
    same = ("id", "tenant", "peer", "name", "device", "ttl_s", "created_at")
    manifest = Manifest(
        **{name: getattr(handle, name) for name in same},
        dtype=handle.dtype.name,
        seed=0,  # the state has the generator
        heartbeats=handle.heartbeat_ttl_s is not None,
        last_used_at=time.time(),  # its heartbeats do not arrive until another worker has it
        epoch=epoch,
        server_version=__version__,
    )
    files = data.create(manifest)
    try:
        files.replace(saved[:1], saved[1:])
    except BaseException:
        files.remove()
        raise
    files.close()
    return files


def _read_session(files: SessionFiles, surroundings: snapshot.SessionConfig) -> HostedSession:
    """The session in files. Raises SessionLost for a damaged one, ServerBusy, and the errors of a restoration."""
    state = files.snapshot()
    if state is None:
        raise SessionLost("the session's state is not in its files")
    session = snapshot.restore(state, HostedSession, **surroundings)
    for frame in files.frames():
        for _, senders in unpack(frame.payload):
            session.senders.load(senders)
    return session
