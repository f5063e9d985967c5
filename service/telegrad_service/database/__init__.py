"""The server's database: SQLite by default, PostgreSQL by URL. It holds no tensors.

This module opens it, brings its tables up to date, and runs transactions. It blocks; not for the event loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self

from sqlalchemy import (
    URL,
    Connection,
    DateTime,
    Dialect,
    Engine,
    MetaData,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.sql import Executable
from sqlalchemy.types import TypeDecorator

from ..observability.logs import CommandFailed
from ..settings import default_database_path

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = max(file.name for file in (MIGRATIONS / "versions").glob("v*_*.py")).partition("_")[0].removeprefix("v")
"""The revision that the tables of this version have."""
LOCK_ID = 7_265_746_732
"""The advisory lock that a process holds on PostgreSQL while it migrates the database."""
LOCK_TIMEOUT_S = 30
"""Seconds that a transaction waits for another process."""
IDLE_TIMEOUT_S = 3
"""Seconds after which PostgreSQL ends a transaction whose process does nothing, so that one that stands still, as a
paused virtual machine does, keeps no locks."""
WRITES = "telegrad_writes"
"""The execution option of a SQLite transaction that excludes other writers from its start."""
DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class DatabaseUnavailable(CommandFailed):
    """The database cannot be opened; the text says why, without the URL's password."""


class Moment(TypeDecorator[datetime]):
    """A time in UTC; SQLite itself keeps no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone where the database has dropped it."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """The base of all tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Moment}


class Database:
    """A database by its URL; an empty URL is a SQLite file in the user's data directory.

    Nothing is created or opened before :meth:`open`. Raises DatabaseUnavailable for an invalid URL.
    """

    def __init__(self, url: str = "") -> None:
        self.url = _parse(url) if url else URL.create("sqlite", database=str(default_database_path()))
        self._engine: Engine | None = None
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<database {self}>"

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def __enter__(self) -> Self:
        """Open the database for a block. Raises DatabaseUnavailable."""
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database server."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    def exists(self) -> bool:
        """Whether there is a database to open: a SQLite file may not exist yet."""
        return self.file is None or self.file.exists()

    def open(self) -> Engine:
        """Open the database once, create it if it does not exist, and bring its tables up to date.

        Raises DatabaseUnavailable.
        """
        with self._lock:
            if self._engine is None:
                try:
                    engine = self._connect()
                    try:
                        self._migrate(engine)
                    except BaseException:
                        engine.dispose()
                        raise
                except ImportError as missing:
                    raise DatabaseUnavailable(
                        f"{self} needs a driver: install telegrad-service[postgres] ({missing})"
                    ) from None
                except (SQLAlchemyError, OSError) as error:
                    raise DatabaseUnavailable(f"cannot open {self}: {_reason(error)}") from error
                self._engine = engine
            return self._engine

    @contextmanager
    def transaction(self, writes: bool = False) -> Iterator[Session]:
        """A session in one transaction, which is committed at the end of the block. Raises DatabaseUnavailable."""
        engine = self.open()
        try:
            engine = engine.execution_options(**{WRITES: writes})
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield session
        except SQLAlchemyError as error:
            raise DatabaseUnavailable(f"{self} failed: {_reason(error)}") from error

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None

    def _connect(self) -> Engine:
        if self.file is None:
            # A database that has no encoding (SQL_ASCII), as initdb makes without a locale, would give bytes for text.
            arguments = {"connect_timeout": LOCK_TIMEOUT_S, "client_encoding": "utf8"}
            engine = create_engine(self.url, pool_pre_ping=True, pool_size=4, connect_args=arguments)
            event.listen(engine, "connect", _set_up_postgresql)
            return engine
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # Only its owner may read it. One that exists is not opened here: when a process closes a file, POSIX drops all
        # its locks on it, those of other connections too (https://www.sqlite.org/howtocorrupt.html, 2.2).
        with suppress(FileExistsError):
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        engine = create_engine(self.url, connect_args={"timeout": LOCK_TIMEOUT_S})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _migrate(self, engine: Engine) -> None:
        """Bring the tables up to date. Other processes that do the same wait."""
        with engine.connect() as connection:
            if _revision(connection) == NEWEST:
                return
        # Not for every server that starts: Alembic takes as long to import as SQLAlchemy.
        from alembic import command
        from alembic.config import Config
        from alembic.util.exc import CommandError

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        with engine.execution_options(**{WRITES: True}).begin() as connection:
            if self.file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": LOCK_ID})
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise DatabaseUnavailable(
                    f"{self} was made by a newer version of telegrad-service: its revision is "
                    f"{_revision(connection)!r}. Use that version, or another database"
                ) from error


def execute_unless_taken(session: Session, statement: Executable) -> Sequence[Any] | None:
    """Execute a statement that writes a row, and return the rows that it returns; None if a unique value is taken.

    The transaction goes on in both cases.
    """
    try:
        with session.begin_nested():
            result = session.execute(statement)
            if isinstance(result, CursorResult) and not result.returns_rows:
                return []
            return result.all()  # in the savepoint, which SQLite does not end while there are rows to read
    except IntegrityError:
        return None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        known = parsed.get_backend_name() in ("sqlite", "postgresql")
    except (ArgumentError, ValueError):  # their texts have the whole URL
        raise DatabaseUnavailable("the database URL is not one, such as postgresql://name@host/telegrad") from None
    if not known:
        raise DatabaseUnavailable(f"the database is SQLite or PostgreSQL, not {parsed.get_backend_name():.40}")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise DatabaseUnavailable("a SQLite database needs a file: sqlite:////var/lib/telegrad.db")
    return parsed


def _reason(error: Exception) -> str:
    """What the driver says, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error).strip()


def _revision(connection: Connection) -> str | None:
    """The revision of the database; None if it has no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _set_up_sqlite(connection: Any, record: Any) -> None:
    """Check references, and keep the sqlite3 module from beginning transactions itself."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")


def _set_up_postgresql(connection: Any, record: Any) -> None:
    """Limit how long a transaction waits for others, and how long it makes others wait."""
    # By statements: a pooler such as PgBouncer refuses settings in the connection's parameters.
    connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
