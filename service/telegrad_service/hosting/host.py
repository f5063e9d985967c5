"""The host of the sessions in this process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine import dtypes
from telegrad_engine.devices import device
from telegrad_engine.errors import (
    InvalidValue,
    ServerBusy,
    SessionExists,
    SessionLimit,
    SessionMoved,
    TelegradError,
    UnknownSession,
)
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.program.registered_functions import installed_library
from telegrad_engine.program.registered_functions.limits import WEIGHT_BYTES
from telegrad_engine.program.safetensors import Container
from telegrad_engine.session import snapshot
from telegrad_engine.session.memory_accounting import Accounts

from .. import __version__
from ..journal.data_folder import DataFolder
from ..journal.session_files import MOVED, Manifest, SessionFiles
from ..observability.metrics import Ledger
from ..process import return_freed_memory
from ..settings import Settings
from ..tenants.principal import ANYONE, Principal
from ..tenants.quotas import Quotas
from .actor import Activity, Workers
from .commands import query
from .durable import Durable
from .sequence import HostedSession
from .session_handle import ENDED, GOING_AWAY, SESSION_ENDED, SessionHandle, SessionOptions

CANCEL_S = 2.0
"""Seconds that cancelled programs get to end when the server stops. A call into BLAS may take longer."""


class Endpoint(NamedTuple):
    """The address at which clients reach the process of a session without the gateway."""

    url: str
    token: str
    """The token for ``Authorization: Bearer``, which is valid for this session only."""
    expires_at: float
    """When the token expires."""


@query
def _describe(session: HostedSession, handle: SessionHandle, manifest: Manifest) -> None:
    """Set the device and the dtype of a session that a snapshot determines."""
    handle.device, handle.dtype = session.device, session.environment.dtype
    manifest.device, manifest.dtype = handle.device, handle.dtype.name


@query
def _save(session: HostedSession) -> Container:
    return snapshot.save(session)


@query
def _fork(session: HostedSession, surroundings: snapshot.SessionConfig) -> HostedSession:
    return snapshot.fork(session, HostedSession, **surroundings)


class SessionHost:
    """Creates, finds and ends sessions, which live in this process and compute on its worker threads."""

    draining = False
    """Whether the host refuses work because the server is about to stop."""
    url: str | None = None
    """The address of this worker for gateways and clients; None on a server without a cluster."""
    worker_id = ""
    """The id of this worker in the directory of its cluster; empty on a server without a cluster."""

    def __init__(self, settings: Settings, shared: bool = False) -> None:
        """With ``shared``, other servers also use the data folder, and :meth:`open` takes sessions over."""
        self._settings = settings
        self.workers = Workers(settings.threads)
        """The threads that compute."""
        self._activity = Activity()
        self._sessions: dict[str, SessionHandle] = {}
        self._moved: deque[str] = deque(maxlen=1024)
        """The ids of the latest sessions that other servers have taken over."""
        self._drained: asyncio.Task[bool] | None = None
        """The task that drains; None before :meth:`drain`."""
        self._has_freed = False
        """Whether sessions have ended since freed memory was returned to the operating system."""
        self._numbers = count(1)
        self._naming = asyncio.Lock()
        """Held while a durable session is created, so that no other one gets its name."""
        self.library = installed_library()
        self.quotas = Quotas(settings)
        self._caches = Accounts(settings.max_process_bytes, quota=self.quotas.memory)
        """The memory account of programs, plans and functions, which sessions share."""
        self.ledger = Ledger()
        self.programs = ProgramCache(settings.remembered_programs, settings.remembered_bytes)
        # A gateway imports this module for its routes, but computes nothing.
        from telegrad_engine.compile import Compiler

        most = settings.remembered_programs
        self._compiler = Compiler(settings.plan_after, most) if settings.plan_after and most else None
        self._data = None if settings.data_dir is None else DataFolder(settings.data_dir, settings.fsync, shared)
        for files in self._data.open_all() if self._data and not shared else ():
            self._restore(files)

    async def create(self, options: SessionOptions, origin: SessionHandle | Container | None = None) -> SessionHandle:
        """Create a session: an empty one, a fork of another one, or one in the state of a snapshot.

        Raises ServerBusy or SessionLimit if there is no room for it, and the errors of a fork or a restoration.
        """
        if origin is None:
            there = await asyncio.to_thread(device, options.device)  # the first use of a device imports a large library
            options = options._replace(device="cpu" if there is None else there.name)  # "gpu" is chosen once
        await self._make_room(options)
        if options.durable:
            saved = await origin.call(_save) if isinstance(origin, SessionHandle) else origin
            return await self._create_durable(options, saved)
        around = self._surroundings(options)
        if origin is None:
            session = HostedSession(**_state_options(options), **around)
        elif isinstance(origin, SessionHandle):
            session = await origin.call(_fork, around)
        else:
            session = await asyncio.to_thread(lambda: snapshot.restore(origin, HostedSession, **around))
        self._check_room(options)
        return self._add(options._replace(device=session.device, dtype=session.environment.dtype), session)

    def _surroundings(self, options: SessionOptions) -> snapshot.SessionConfig:
        """The arguments of a session that this host determines, and that are not its state."""
        settings = self._settings
        return {
            "max_bytes": settings.max_session_bytes,
            "library": self.library,
            "memory": self.programs.of(options.tenant),
            "compiler": self._compiler,
            "max_program_s": settings.max_program_s,
            "max_program_instructions": settings.max_program_instructions,
            "quota": self.quotas.of(options.tenant).memory,
        }

    def _add(self, options: SessionOptions, state: HostedSession | Durable) -> SessionHandle:
        ttl_s = options.ttl_s or self._settings.session_ttl_s
        heartbeat_ttl_s = self._settings.heartbeat_ttl_s if options.heartbeats else None
        number = next(self._numbers)
        queue = self.quotas.session_queue(options.tenant)
        handle = SessionHandle(number, options, ttl_s, heartbeat_ttl_s, state, self.workers, self._activity, queue)
        handle.account, handle.worker = self.ledger.opened(options.tenant, state), self.worker_id or None
        self._sessions[handle.id] = handle
        return handle

    async def _create_durable(self, options: SessionOptions, saved: Container | None = None) -> SessionHandle:
        """Create a durable session, in the state of a snapshot if there is one."""
        if self._data is None:
            raise InvalidValue(
                "this server keeps no sessions on a disk: its operator starts it with --data-dir for durable ones"
            )
        now = time.time()
        options = options._replace(
            id=secrets.token_urlsafe(16),
            seed=secrets.randbits(64) if options.seed is None else options.seed,
            ttl_s=options.ttl_s or self._settings.session_ttl_s,
        )
        manifest = Manifest(
            **{name: value for name, value in options._asdict().items() if name in Manifest.model_fields}
            | {"dtype": options.dtype.name, "created_at": now, "last_used_at": now, "server_version": __version__}
        )
        async with self._naming:
            self.check_name(options.tenant, options.name)
            files = await asyncio.to_thread(self._data.create, manifest)
            if saved is not None:
                await asyncio.to_thread(files.replace, [saved], ())
            handle = self._add(options, self._durable(files, options))
            handle.created_at = now
        if saved is None:
            return handle
        try:
            await handle.ready()
        except TelegradError:
            await self._remove(handle, "deleted", SESSION_ENDED)
            raise
        await handle.call(_describe, handle, manifest)
        handle.changed()
        return handle

    def _durable(self, files: SessionFiles, options: SessionOptions) -> Durable:
        return Durable(files, _state_options(options), self._surroundings(options), self._settings.snapshot_after_s)

    async def open(self, session_id: str, epoch: int) -> SessionHandle:
        """Take over a durable session from the server that has it. It is loaded on its first use.

        Raises UnknownSession, SessionMoved if its epoch is not below ``epoch``, and ServerBusy.
        """
        data = self._data
        manifest = None if data is None else await asyncio.to_thread(data.find, session_id)
        if data is None or manifest is None:
            raise UnknownSession(f"no session of this id is on the disk: {session_id!r:.66}")
        files = await asyncio.to_thread(data.open, manifest, epoch)
        self._forget(session_id)
        return self._restore(files)

    def _restore(self, files: SessionFiles) -> SessionHandle:
        """Add a session that is on the disk. It is loaded on its first use."""
        options = self.options_of(files.manifest)._replace(durable=True)
        return self.resume(options, self._durable(files, options), files.manifest)

    @staticmethod
    def options_of(manifest: Manifest) -> SessionOptions:
        """The options of a session that is on the disk."""
        data = {name: getattr(manifest, name) for name in Manifest.model_fields if name in SessionOptions._fields}
        return SessionOptions(**{**data, "dtype": dtypes.parse(manifest.dtype)})

    def resume(self, options: SessionOptions, state: HostedSession | Durable, manifest: Manifest) -> SessionHandle:
        """Host a session that existed before, with its age."""
        handle = self._add(options, state)
        handle.created_at = manifest.created_at
        handle.continue_from(manifest.last_used_at)
        return handle

    def _forget(self, session_id: str) -> None:
        """Forget a session that another server has taken over."""
        if (handle := self._sessions.pop(session_id, None)) is None:
            return
        self._moved.append(session_id)
        self.ledger.ended["moved"] += 1
        handle.stop_streams(GOING_AWAY, MOVED)
        handle.forget(MOVED)
        self._has_freed = True

    async def _make_room(self, options: SessionOptions) -> None:
        """End expired sessions if there is no room for another. Raises ServerBusy or SessionLimit if there is none."""
        self._refuse_while_draining()
        try:
            self._check_room(options)
        except (ServerBusy, SessionLimit):
            await self.expire()
            self._check_room(options)

    def _check_room(self, options: SessionOptions) -> None:
        """Raise ServerBusy or SessionLimit if there is no room for another session of this tenant and peer."""
        self._refuse_while_draining()
        settings, peer = self._settings, options.peer
        most = settings.max_sessions_per_tenant
        if most and options.tenant != ANYONE.tenant and len(self.sessions(options.tenant)) >= most:
            raise SessionLimit(f"this tenant has {most} sessions, as many as it may", quota="sessions")
        if len(self._sessions) >= settings.max_sessions:
            raise ServerBusy(f"the server holds {settings.max_sessions} sessions, as many as it may")
        most = settings.max_sessions_per_peer
        if most and sum(handle.peer == peer for handle in self._sessions.values()) >= most:
            raise SessionLimit(
                f"{peer or 'this client'} has {most} sessions, as many as one address may", quota="sessions"
            )

    def find(self, principal: Principal, session_id: str) -> SessionHandle:
        """Find a session of the principal's tenant. Raises UnknownSession, SessionMoved, and ServerBusy if draining."""
        self._refuse_while_draining()
        handle = self._sessions.get(session_id)
        if handle is None and session_id in self._moved:
            raise SessionMoved(MOVED)
        if handle is None or handle.tenant != principal.tenant:
            raise UnknownSession(f"no session of this id: {session_id!r:.66}; it never was, it ended or it expired")
        return handle

    def bodies(self, tenant: str) -> Accounts:
        """The memory account of a tenant's request bodies."""
        return self.quotas.of(tenant).bodies

    def sessions(self, tenant: str | None = None) -> Sequence[SessionHandle]:
        """The sessions of a tenant, by default all, oldest first."""
        return [handle for handle in self._sessions.values() if tenant is None or handle.tenant == tenant]

    def check_name(self, tenant: str, name: str | None) -> None:
        """Raise SessionExists if the tenant has a durable session of this name."""
        for handle in self.sessions(tenant):
            if handle.durable and handle.name == name is not None:
                raise SessionExists(f"there is a durable session {name!r} already", session=handle.id)

    async def endpoint(self, handle: SessionHandle, principal: Principal) -> Endpoint | None:
        """The address at which the principal reaches the session without a gateway; None if there is no gateway."""
        return None

    async def rename(self, handle: SessionHandle, name: str | None) -> None:
        """Set a session's name. Raises SessionExists as :meth:`check_name`."""
        if handle.durable and name != handle.name:
            self.check_name(handle.tenant, name)
        handle.name = name

    async def end(self, principal: Principal, session_id: str) -> None:
        """End a session: cancel its running and waiting calls, and free its tensors. Raises UnknownSession."""
        await self._remove(self.find(principal, session_id), "deleted", SESSION_ENDED)

    async def _remove(self, handle: SessionHandle, how: str, reason: str) -> None:
        """End a session: its streams, its calls and its files."""
        if self._sessions.pop(handle.id, None) is None:
            return  # it has ended meanwhile
        self.ledger.ended[how] += 1
        handle.stop_streams(ENDED, reason)
        handle.actor.cancel(reason)
        self._has_freed = True
        await handle.delete()

    async def expire(self) -> None:
        """End expired sessions and waiting backward passes, except in sessions that are computing."""
        plans = 0 if self._compiler is None else self._compiler.nbytes
        self._caches.overhead_bytes = self.programs.nbytes + plans + WEIGHT_BYTES * self.library.weight
        self._caches.report()
        now = time.monotonic()
        for handle in list(self._sessions.values()):
            if not handle.owned:
                self._forget(handle.id)
                continue
            if handle.actor.busy:
                continue
            if handle.expires < now:
                await self._remove(handle, "expired", "the session has expired")
                continue
            handle.note_use()
            idle_s = now - handle.last_used
            if idle_s > self._settings.pending_timeout_s:
                await handle.give_up_waiting()
            if idle_s > self._settings.unload_s:
                await handle.put_away()
            if handle.feed.listeners:
                handle.feed.warn_before(handle.expires_at, time.time())
        # While programs run, they would be slower without the memory that is kept.
        if self._has_freed and not self.workers.busy_count:
            self._has_freed = False
            await asyncio.to_thread(return_freed_memory)

    async def drain(self, seconds: float) -> bool:
        """Refuse new work, and wait until threads have finished their work and streams have sent their answers.

        Unfinished work is cancelled after ``seconds`` seconds. A second call waits for the first one.
        """
        if self._drained is None:
            self.draining = True
            for handle in self._sessions.values():
                handle.stop_streams(GOING_AWAY, "the server is about to stop")
            self._drained = asyncio.create_task(self._drain(seconds))
        return await asyncio.shield(self._drained)

    def ended(self, seconds: float) -> bool:
        """Whether all threads have ended. Waits at most ``seconds`` seconds for each."""
        return self.workers.ended(seconds)

    async def _drain(self, seconds: float) -> bool:
        if await self._idle(seconds):
            return True
        # abandon() answers with 503 before the cancellation takes effect.
        for handle in self._sessions.values():
            handle.actor.cancel("the server is about to stop")
            handle.abandon()
        await self._idle(CANCEL_S)
        return False

    async def _idle(self, seconds: float) -> bool:
        """Wait at most ``seconds`` seconds until nothing runs. Return whether nothing runs."""
        deadline = time.monotonic() + seconds
        # Work of sessions that have ended counts too, since the process must not end during it.
        while busy := bool(self.workers.busy_count) or any(h.actor.busy or h.streams for h in self._sessions.values()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return not busy

    async def close(self) -> None:
        """End the threads and forget all sessions."""
        saving = [
            asyncio.ensure_future(handle.put_away()) for handle in self._sessions.values() if not handle.actor.busy
        ]
        if saving:
            await asyncio.wait(saving, timeout=CANCEL_S)
        self.workers.stop()
        self._sessions.clear()
        if self._data is not None:
            await asyncio.to_thread(self._data.close)

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise ServerBusy("the server is about to stop and takes no more work")


def _state_options(options: SessionOptions) -> dict[str, Any]:
    """The arguments of a new session that are its state."""
    return {"device": options.device, "dtype": options.dtype, "seed": options.seed}
