"""The directory of a cluster: its workers, and which of them has each session.

A session belongs to one worker under an epoch. Assigning it to another worker raises the epoch, by a statement that
changes the row only if its epoch is still the one that was read: of several gateways that try, one succeeds. Times are
the database's, so that the clocks of the machines need not agree.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Executable,
    Float,
    Insert,
    String,
    Text,
    UniqueConstraint,
    Update,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from telegrad_engine.errors import IdempotencyConflict, ServerBusy, SessionExists, SessionLimit

from ..database import Base, Database, DatabaseUnavailable, execute_unless_taken

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
RETRY_AFTER_S = 1
"""``Retry-After`` while the database cannot be used."""
FORGOTTEN_S = 24 * 3600.0
"""Seconds after which a dead worker is deleted, with the sessions that were lost with it."""
RENEW_S = 1.0
"""Seconds between two renewals of a worker's lease."""
TENANTS_LOCK = 7_265_746
"""The class of advisory locks that PostgreSQL holds while it counts a tenant's sessions."""
FIRST_EPOCH = 1
"""The epoch of a session on the worker that created it."""


class WorkerState(StrEnum):
    """The state of a worker."""

    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class WorkerRow(Base):
    """A worker process. The id of a worker that was declared dead is never used again."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    url: Mapped[str] = mapped_column(String(500))
    state: Mapped[str] = mapped_column(String(10))
    version: Mapped[str] = mapped_column(String(40))
    lease_until: Mapped[float] = mapped_column(Float(53))
    started_at: Mapped[float] = mapped_column(Float(53))
    keeps_sessions: Mapped[bool] = mapped_column(Boolean)
    devices: Mapped[str] = mapped_column(Text)
    sessions: Mapped[int]
    max_sessions: Mapped[int]
    load: Mapped[float] = mapped_column(Float(53))
    free_bytes: Mapped[int] = mapped_column(BigInteger)


class SessionRow(Base):
    """A session and its worker, which is None while a session that was handed over waits in the data folder."""

    __tablename__ = "cluster_sessions"
    __table_args__ = (
        UniqueConstraint("tenant", "reserved_name", name="uq_cluster_sessions_name"),
        UniqueConstraint("tenant", "creation_key", name="uq_cluster_sessions_key"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    """Sessions are numbered in the order of their creation."""
    id: Mapped[str] = mapped_column(String(64), unique=True)
    tenant: Mapped[str] = mapped_column(String(63))
    reserved_name: Mapped[str | None] = mapped_column(String(200))
    """The name of a durable session, unique in its tenant; None for other sessions."""
    creation_key: Mapped[str | None] = mapped_column(String(64))
    """The digest of the Idempotency-Key of the request that created the session."""
    worker: Mapped[str | None] = mapped_column(String(32), index=True)
    epoch: Mapped[int]
    durable: Mapped[bool] = mapped_column(Boolean)
    device: Mapped[str] = mapped_column(String(60))
    description: Mapped[str] = mapped_column(Text)
    """The session as JSON, at the time of its creation."""


class Report(NamedTuple):
    """The load of a worker, which it reports whenever it renews its lease."""

    sessions: int
    max_sessions: int
    load: float
    """The share of the worker's threads that compute; more than 1 if work waits."""
    free_bytes: int


class Member(NamedTuple):
    """What a worker tells the directory when it joins."""

    url: str
    version: str
    devices: Sequence[str]
    keeps_sessions: bool
    """Whether the worker has the data folder of durable sessions."""


class Worker(NamedTuple):
    """A worker in the directory."""

    id: str
    url: str
    state: WorkerState
    version: str
    overdue_s: float
    """Seconds since the end of its lease; negative while the lease lasts."""
    keeps_sessions: bool
    """Whether the worker has the data folder of durable sessions."""
    devices: tuple[str, ...]
    report: Report
    started_at: float

    @property
    def alive(self) -> bool:
        """Whether the worker was not declared dead."""
        return self.state is not WorkerState.DEAD


class Placement(NamedTuple):
    """A session and its worker."""

    id: str
    tenant: str
    worker: str | None
    epoch: int
    durable: bool
    device: str
    description: Mapping[str, Any]
    number: int = 0
    """The directory numbers sessions in the order of their creation."""


class Directory:
    """The tables of a cluster in a database. Methods block and raise DatabaseUnavailable: use :func:`guarded`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        clock = "(julianday('now') - 2440587.5) * 86400.0" if database.file else "extract(epoch from clock_timestamp())"
        self._now: ColumnElement[float] = literal_column(clock, Float(53))

    def _write(self, statement: Executable) -> Any:
        """Execute a statement that writes, and return its value; None if it changed no row."""
        with self.database.transaction(writes=True) as session:
            return session.execute(statement).scalar()

    def _read(self, query: Executable) -> Sequence[Any]:
        """The rows that a query finds."""
        with self.database.transaction() as session:
            return session.execute(query).all()

    # Workers -------------------------------------------------------------------------------------

    def join(self, worker_id: str, member: Member, lease_s: float, report: Report) -> None:
        """Add a worker."""
        values = {**member._asdict(), "devices": json.dumps(member.devices), **report._asdict()}
        times = {"lease_until": self._now + lease_s, "started_at": self._now}
        row = insert(WorkerRow).values(id=worker_id, state=WorkerState.READY, **values, **times)
        self._write(row.returning(WorkerRow.id))

    def renew(self, worker_id: str, lease_s: float, report: Report) -> WorkerState:
        """Renew a worker's lease, unless it was declared dead. Return its state."""
        renewed = {"lease_until": self._now + lease_s, **report._asdict()}
        state = self._write(_living(worker_id).values(**renewed).returning(WorkerRow.state))
        return WorkerState.DEAD if state is None else WorkerState(state)

    def drain(self, worker_id: str) -> bool:
        """Make a worker refuse new sessions and hand over its own. Return whether there is such a worker."""
        return self._write(_living(worker_id).values(state=WorkerState.DRAINING).returning(WorkerRow.id)) is not None

    def leave(self, worker_id: str) -> bool:
        """Declare a worker dead because its process ends. Return whether this call did."""
        return self._write(_living(worker_id).values(state=WorkerState.DEAD).returning(WorkerRow.id)) is not None

    def declare_dead(self, worker_id: str, unrenewed_s: float, lease_s: float) -> bool:
        """Declare a worker dead that has not renewed its lease of ``lease_s`` seconds for ``unrenewed_s`` seconds.

        Return whether this call did.
        """
        overdue = _living(worker_id).where(WorkerRow.lease_until - lease_s + unrenewed_s < self._now)
        return self._write(overdue.values(state=WorkerState.DEAD).returning(WorkerRow.id)) is not None

    def workers(self) -> list[Worker]:
        """All workers, dead ones included, in the order in which they joined."""
        row = WorkerRow
        # Columns, not rows: gateways read this list twice a second, and the rows' objects would take most of the time.
        columns = (
            row.id,
            row.url,
            row.state,
            row.version,
            self._now - row.lease_until,
            row.keeps_sessions,
            row.devices,
            row.started_at,
            *(getattr(row, name) for name in Report._fields),
        )
        return [
            Worker(id, url, WorkerState(state), version, overdue, keeps, _devices(devices), Report(*report), started)
            for id, url, state, version, overdue, keeps, devices, started, *report in self._read(
                select(*columns).order_by(row.started_at, row.id)
            )
        ]

    def forget_dead(self) -> None:
        """Delete workers that died ``FORGOTTEN_S`` seconds ago, with the sessions that were lost with them."""
        row = WorkerRow
        with self.database.transaction(writes=True) as session:
            old = session.scalars(
                select(row.id).where(row.state == WorkerState.DEAD, row.lease_until + FORGOTTEN_S < self._now)
            ).all()
            if old:
                lost = SessionRow.worker.in_(old), SessionRow.durable.is_(False)
                session.execute(delete(SessionRow).where(*lost))
                used = select(SessionRow.id).where(SessionRow.worker == row.id)
                session.execute(delete(row).where(row.id.in_(old), ~exists(used)))

    # Sessions ------------------------------------------------------------------------------------

    def add(self, placed: Placement, name: str | None, creation_key: str | None = None, most: int = 0) -> None:
        """Add a session that a worker has created.

        Raises SessionLimit if the tenant has ``most`` sessions (0 is no limit), SessionExists if the tenant has a
        durable session of this name, and IdempotencyConflict if another session was created with the same key.
        """
        tenant, values = placed.tenant, _values(placed, name if placed.durable else None)
        with self.database.transaction(writes=True) as session:
            if most:  # no other process may add a session of the tenant meanwhile
                if self.database.file is None:  # SQLite has one writer at a time
                    session.execute(select(func.pg_advisory_xact_lock(TENANTS_LOCK, func.hashtext(tenant))))
                count = session.scalar(select(func.count()).where(SessionRow.tenant == tenant, _there())) or 0
                if count >= most:
                    raise SessionLimit(f"this tenant has {most} sessions, as many as it may", quota="sessions")
            self._write_named(session, insert(SessionRow), values | {"creation_key": creation_key})

    def add_found(self, placed: Placement, name: str | None) -> None:
        """Add a durable session that was found in the data folder, or raise its epoch.

        Raises SessionExists if the tenant has another durable session of this name.
        """
        row = SessionRow
        with self.database.transaction(writes=True) as session:
            is_there = session.scalar(select(row.number).where(row.id == placed.id)) is not None
            older = update(row).where(row.id == placed.id, row.epoch < placed.epoch)
            with suppress(IdempotencyConflict):  # another worker has added it at the same time
                self._write_named(session, older if is_there else insert(row), _values(placed, name))

    def epochs(self) -> Mapping[str, int]:
        """The epochs of all sessions, by id."""
        return dict(self._read(select(SessionRow.id, SessionRow.epoch)))

    def rename(self, session_id: str, tenant: str, worker_id: str, name: str | None) -> None:
        """Rename a durable session. Raises SessionExists if the tenant has another one of this name."""
        owned = update(SessionRow).where(SessionRow.id == session_id, SessionRow.worker == worker_id)
        with self.database.transaction(writes=True) as session:
            self._write_named(session, owned, {"id": session_id, "tenant": tenant, "reserved_name": name})

    def _write_named(self, session: Session, statement: Insert | Update, values: Mapping[str, Any]) -> None:
        """Write a session's row, with its name. Raises SessionExists or IdempotencyConflict."""
        row, tenant, name = SessionRow, values["tenant"], values["reserved_name"]

        def taken() -> str | None:
            """The id of the tenant's other durable session of the same name, if there is one."""
            same = row.tenant == tenant, row.reserved_name == name, row.id != values["id"]
            return None if name is None else session.scalar(select(row.id).where(*same))

        other = taken()
        if other is None:
            if execute_unless_taken(session, statement.values(**values)) is not None:
                return
            other = taken()  # another process was faster
        if other is None:
            raise IdempotencyConflict("another session was created with this Idempotency-Key")
        raise SessionExists(f"there is a durable session {name!r} already", session=other)

    def find(self, session_id: str) -> Placement | None:
        """The session with this id, if there is one."""
        if "\x00" in session_id or len(session_id) > 64:  # PostgreSQL does not accept every text
            return None
        return next(self._placed(SessionRow.id == session_id), None)

    def created_with(self, tenant: str, creation_key: str) -> Placement | None:
        """The tenant's session that was created with an Idempotency-Key of this digest, if there is one."""
        return next(self._placed(SessionRow.tenant == tenant, SessionRow.creation_key == creation_key), None)

    def _placed(self, *conditions: ColumnElement[bool]) -> Iterator[Placement]:
        """The sessions that match all conditions, in the order of their creation."""
        for (row,) in self._read(select(SessionRow).where(*conditions).order_by(SessionRow.number)):
            values = {name: getattr(row, name) for name in Placement._fields}
            yield Placement(**values | {"description": json.loads(row.description)})

    def assign(self, placed: Placement, worker_id: str) -> Placement | None:
        """Assign a session to another worker, under the next epoch. None if it was moved or ended meanwhile."""
        alive = select(WorkerRow.id).where(WorkerRow.id == worker_id, WorkerRow.state == WorkerState.READY)
        moved = update(SessionRow).where(*_unmoved(placed), alive.exists())
        epoch = self._write(moved.values(worker=worker_id, epoch=placed.epoch + 1).returning(SessionRow.epoch))
        return None if epoch is None else placed._replace(worker=worker_id, epoch=epoch)

    def release(self, session_id: str, worker_id: str, epoch: int) -> bool:
        """Take a session from a worker that has handed it over, so that another worker can get it."""
        row = SessionRow
        owned = update(row).where(row.id == session_id, row.worker == worker_id, row.epoch == epoch)
        return self._write(owned.values(worker=None).returning(row.id)) is not None

    def remove(self, session_id: str, worker_id: str) -> None:
        """Remove a session that ended, if the worker still has it."""
        owned = SessionRow.id == session_id, SessionRow.worker == worker_id
        self._write(delete(SessionRow).where(*owned).returning(SessionRow.id))

    def remove_unmoved(self, placed: Placement) -> bool:
        """Remove a session without a worker, unless a worker got it meanwhile. Return whether it was removed."""
        return self._write(delete(SessionRow).where(*_unmoved(placed)).returning(SessionRow.id)) is not None

    def handed_over(self) -> Sequence[Placement]:
        """The sessions that are not durable and wait for another worker in the data folder."""
        return [*self._placed(SessionRow.worker.is_(None), SessionRow.durable.is_(False))]

    def sessions(self, tenant: str) -> Sequence[Placement]:
        """The sessions of a tenant in the order of their creation, without those that were lost with their worker."""
        return [*self._placed(SessionRow.tenant == tenant, _there())]

    def session_count(self, worker_id: str) -> int:
        """The number of a worker's sessions."""
        [[count]] = self._read(select(func.count()).where(SessionRow.worker == worker_id))
        return int(count)

    def counts(self, tenant: str) -> Mapping[str, int]:
        """The number of a tenant's sessions on each worker."""
        row = SessionRow
        query = select(row.worker, func.count()).where(row.tenant == tenant, row.worker.is_not(None))
        return dict(self._read(query.group_by(row.worker)))


def _values(placed: Placement, name: str | None) -> dict[str, Any]:
    """The columns of a session's row except its number."""
    values = placed._asdict() | {"description": json.dumps(placed.description), "reserved_name": name}
    del values["number"]
    return values


def _there() -> ColumnElement[bool]:
    """The condition that a session was not lost with its worker."""
    dead = select(WorkerRow.id).where(WorkerRow.state == WorkerState.DEAD)
    return or_(SessionRow.durable, SessionRow.worker.is_(None), SessionRow.worker.not_in(dead))


@lru_cache
def _devices(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _living(worker_id: str) -> Update:
    """An update of a worker that was not declared dead."""
    return update(WorkerRow).where(WorkerRow.id == worker_id, WorkerRow.state != WorkerState.DEAD)


def _unmoved(placed: Placement) -> Sequence[ColumnElement[bool]]:
    """The conditions that a session was not moved or ended since it was read."""
    # SQLAlchemy writes `IS NULL` for None.
    return SessionRow.id == placed.id, SessionRow.epoch == placed.epoch, SessionRow.worker == placed.worker


async def guarded(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a function of the directory on a thread. Raises ServerBusy if the database cannot be used."""
    try:
        return await asyncio.to_thread(function, *arguments, **options)
    except DatabaseUnavailable as error:
        logger.error("the directory cannot be used: %s", error)
        text = "the directory of sessions cannot be used now; the log says why"
        raise ServerBusy(text, retry_after_s=RETRY_AFTER_S) from error
