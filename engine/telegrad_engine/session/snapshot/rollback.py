"""Undo what a program that failed has done to its session: the session continues from a fork made before it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import NotSupported, TelegradError
from ...program.instructions import Instruction
from ..session import Session
from . import fork

STATE = "environment", "functions", "procedures", "suspensions", "checkpoints", "_last_id", "profile", "ranges"
UNDONE = "The session is as it was before the program. Correct the program and send it again."


@contextmanager
def undone_on_error(session: Session, program: Sequence[Instruction]) -> Iterator[None]:
    """Undo what the block, which runs ``program`` in a session, has changed if it raises an error.

    Raises, with nothing done, NotSupported if the program changes the functions of all sessions, and the errors of
    :func:`fork`: while it runs, the session's memory counts twice.
    """
    for index, instruction in enumerate(program):
        if instruction.attrs.get("scope") == "server":
            raise NotSupported("rollback cannot undo a change of the server's functions", instruction=index)
    own, library = session.accounts, session.functions.shared
    before = fork(session, max_bytes=own.max_bytes, library=library, memory=session.memory, quota=own.quota)
    try:
        yield
    except BaseException as error:
        _continue_as(session, before)
        if isinstance(error, TelegradError) and "progress" in error.context:
            error.context["progress"] |= {"outputs": [], "rolled_back": True, "next": UNDONE}
        raise


def _continue_as(session: Session, before: Session) -> None:
    """Give a session the state of a fork of it, which is not used any more."""
    session.flush()
    session.tensors.clear()
    session.tensors.update(before.tensors)
    for name in STATE:
        setattr(session, name, getattr(before, name))
    session.checkpoints._session = weakref.ref(session)
    session.accounts.take_over(before.accounts)
    if session.accounts.shared is not None:
        session.accounts.shared._session = weakref.ref(session)
    session.note_overhead()
