"""The functions of a cluster: every worker has the functions that are registered for the server."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from threading import RLock

from sqlalchemy import String, Text, delete, insert, select
from sqlalchemy.orm import Mapped, mapped_column
from typing_extensions import override

from telegrad_engine.errors import FunctionExists, ServerBusy, TelegradError
from telegrad_engine.program.registered_functions import Applicable, Library, installed_library

from ..database import Base, Database, DatabaseUnavailable, execute_unless_taken
from .directory import RETRY_AFTER_S

logger = logging.getLogger(__name__)
MAX_LOOKS = 20
"""How many times per second a missing function is looked up: unknown names must not keep the database busy."""
WAIT_S = 0.1
"""Seconds that a refresh waits for another one, or for a change that waits for the database."""


class FunctionRow(Base):
    """A function that is registered for the server."""

    __tablename__ = "cluster_functions"
    __table_args__ = {"sqlite_autoincrement": True}

    number: Mapped[int] = mapped_column(primary_key=True)
    """Functions are numbered in the order of their registration: a function applies only earlier ones."""
    name: Mapped[str] = mapped_column(String(64), unique=True)
    definition: Mapped[str] = mapped_column(Text)


class ClusterLibrary(Library):
    """The library that the sessions of a worker share. It includes the functions that the operator has installed.

    :meth:`refresh` reads the functions that other workers have registered or removed. It runs when a function is
    missing, and before functions are listed.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._numbers: dict[str, int] = {}
        """The numbers of the functions that are not installed."""
        self._refreshing = RLock()
        self._looks: deque[float] = deque(maxlen=MAX_LOOKS)
        """When the last look-ups of missing functions began."""
        for function in installed_library().own.values():
            super().add(function)

    @override
    def add(self, function: Applicable) -> None:
        with self._refreshing:
            super().add(function)
            row = {"name": function.name, "definition": json.dumps(function.definition)}
            insertion = insert(FunctionRow).values(**row).returning(FunctionRow.number)
            try:
                with self._database.transaction(writes=True) as session:
                    added = execute_unless_taken(session, insertion)
                    number = None if added is None else added[0].number
            except DatabaseUnavailable as error:
                super().remove(function.name)
                raise _busy() from error
            if number is None:
                super().remove(function.name)
                raise FunctionExists(f"there is a function {function.name!r} already; remove it first")
            self._numbers[function.name] = number

    @override
    def remove(self, name: str) -> None:
        with self._refreshing:
            if name not in self._numbers:
                self._look()
            if (number := self._numbers.get(name)) is not None:
                try:
                    with self._database.transaction(writes=True) as session:
                        session.execute(delete(FunctionRow).where(FunctionRow.number == number))
                except DatabaseUnavailable as error:
                    raise _busy() from error
            super().remove(name)
            self._numbers.pop(name, None)

    @override
    def find(self, name: str) -> Applicable:
        if name not in self.own:
            self._look()
        return super().find(name)

    @override
    def __contains__(self, name: object) -> bool:
        if name not in self.own:
            self._look()
        return super().__contains__(name)

    @override
    def latest(self) -> dict[str, Applicable]:
        self._try_to_refresh()
        return super().latest()

    def _look(self) -> None:
        """Refresh because another worker may have just registered a missing function."""
        now = time.monotonic()
        if len(self._looks) == MAX_LOOKS and now - self._looks[0] < 1.0:
            return
        self._looks.append(now)
        self._try_to_refresh()

    def _try_to_refresh(self) -> None:
        try:
            self.refresh()
        except DatabaseUnavailable as error:
            logger.warning("the functions of other workers cannot be read: %s", error)

    def refresh(self) -> None:
        """Add and remove the functions that other workers have registered and removed. Raises DatabaseUnavailable."""
        if not self._refreshing.acquire(timeout=WAIT_S):
            return
        try:
            row = FunctionRow
            with self._database.transaction() as session:
                found = {name: number for number, name in session.execute(select(row.number, row.name))}
                if found == self._numbers:
                    return
                missing = [number for name, number in found.items() if self._numbers.get(name) != number]
                new = session.scalars(select(row).where(row.number.in_(missing)).order_by(row.number)).all()
            for name in [name for name, number in self._numbers.items() if found.get(name) != number]:
                super().remove(name)
                del self._numbers[name]
            for each in new:
                self._numbers[each.name] = each.number
                try:
                    super().add(self.read(json.loads(each.definition)))
                except TelegradError as error:
                    del self._numbers[each.name]
                    logger.warning("the function %r of another worker cannot be used here: %s", each.name, error.detail)
        finally:
            self._refreshing.release()


def _busy() -> ServerBusy:
    text = "functions of the server cannot be changed now, as the directory cannot be used"
    return ServerBusy(text, retry_after_s=RETRY_AFTER_S)
