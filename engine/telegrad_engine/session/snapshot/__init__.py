"""Snapshots: the whole state of a session as one file, and sessions made of it.

A snapshot has everything on which the session's future depends: its tensors with their memory, which views share, their
gradients and graphs with what the nodes saved, versions, names, the random number generator, the default dtype,
registered functions and procedures, open checkpoints, and the numbers that it counts. A restored session continues
exactly like the original. Caches, reports of recurring programs and profiles that have ended are not part of the state.

The file is a safetensors container (:mod:`.container`) of a description in JSON (:mod:`.writer`) and the memory of the
tensors. It contains no code: ops are named, and what a client registered is read and checked again (:mod:`.reader`).

A session that waits for its client in a backward pass, or whose profile is running, has no snapshot; nor has one whose
graph has Python of the server's operator in it. :func:`refusal` tells why in advance.

:func:`undone_on_error` undoes what a program that failed has done: the session continues from a fork made before it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar, Unpack, overload

from ... import dtypes
from ...errors import MalformedRequest, NotSupported, TelegradError, TooLarge
from ...program.instructions import Instruction
from ...program.program import Programs
from ...program.registered_functions import Library
from ...program.safetensors import Container
from ..memory_accounting import Quota
from ..session import ProgramCompiler, Session
from . import container
from .reader import Reader, arrays_of
from .sharing import share
from .writer import Writer

MEDIA_TYPE = "application/vnd.safetensors"
PROFILED = "a session whose profile is running cannot be saved or forked; stop the profile first"
WAITING = (
    "a session whose backward pass waits for its client cannot be saved or forked; resume or cancel the pass first"
)
ON_A_DEVICE = "a session on a device whose arrays can be written to cannot be saved or forked"
AnySession = TypeVar("AnySession", bound=Session)


class SessionConfig(TypedDict, total=False):
    """The arguments of :class:`Session` that are not state."""

    max_bytes: int
    library: Library
    memory: Programs
    compiler: ProgramCompiler | None
    max_program_s: float
    max_program_instructions: float
    quota: Quota | None


def refusal(session: Session) -> str | None:
    """Return why a session cannot be saved or forked now, and what to do; None if it can.

    It takes as long as a fork of a session without large tensors.
    """
    session.flush()
    session.check_intact()
    try:
        _describe(session)
    except NotSupported as error:
        return error.detail
    return None


def save(session: Session) -> Container:
    """Return a session's snapshot: the content of a file.

    Equal states have equal snapshots, and a snapshot of the restored session is equal to its own. Raises NotSupported
    if :func:`refusal` returns a reason, and InternalError if the session is not intact.
    """
    writer, document = _describe(session)
    return container.encode(document, writer.arrays)


def digest(session: Session) -> str:
    """Return the SHA-256 of a session's snapshot, which is the same for equal states. Raises as :func:`save`."""
    return hashlib.sha256(save(session)).hexdigest()


@overload
def restore(snapshot: Container, **surroundings: Unpack[SessionConfig]) -> Session: ...
@overload
def restore(
    snapshot: Container, make: Callable[..., AnySession], **surroundings: Unpack[SessionConfig]
) -> AnySession: ...
def restore(snapshot: Container, make: Callable[..., Any] = Session, **surroundings: Unpack[SessionConfig]) -> Any:
    """Return a session in the state of a snapshot; the arguments are those of :class:`Session` that are not state.

    ``make`` is the class of the session.

    Raises MalformedRequest if the snapshot is damaged, NotSupported if its format is newer, TooLarge if it takes more
    than ``max_bytes`` or than the process has left, UnknownFunction if the library lacks an installed function, and the
    errors of registering its functions and procedures.
    """
    try:
        document, blocks = container.decode(snapshot)
        session = _new_session(make, document, surroundings)
        if session.environment.device is not None:
            raise MalformedRequest(f"snapshot: a session on {session.device!r} has none")
        arrays = arrays_of(document, blocks)
        session.accounts.check_room(arrays.nbytes)
        return _filled(session, document, *arrays.copied())
    except MemoryError:
        raise TooLarge("not enough memory for the snapshot") from None
    except TelegradError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise MalformedRequest(f"snapshot: it is damaged: {type(error).__name__}: {error}"[:400]) from None


@overload
def fork(session: Session, **surroundings: Unpack[SessionConfig]) -> Session: ...
@overload
def fork(session: Session, make: Callable[..., AnySession], **surroundings: Unpack[SessionConfig]) -> AnySession: ...
def fork(session: Session, make: Callable[..., Any] = Session, **surroundings: Unpack[SessionConfig]) -> Any:
    """Return another session in the same state, which draws the same random numbers from here on.

    Both share the memory of large tensors until one of them writes to it; each counts it in full, so that the copy
    at the first write never lacks room. They may run on different threads at the same time. Call it where programs of
    ``session`` run. Raises NotSupported and InternalError as :func:`save`, TooLarge if the accounts of the fork or of
    the process have no room. Tensors that only Python code refers to must not be written to in place afterwards.
    """
    writer, document = _describe(session)
    child = _new_session(make, document, surroundings)
    child.accounts.check_room(writer.arrays.nbytes)
    try:
        shared = share(session, child, writer.arrays)
    except MemoryError:
        raise TooLarge("not enough memory for the fork") from None
    return _filled(child, document, *shared)


def _describe(session: Session) -> tuple[Writer, dict[str, Any]]:
    session.flush()
    session.check_intact()
    if session.profile is not None:
        raise NotSupported(PROFILED)
    if session.suspensions.waiting:
        raise NotSupported(WAITING)
    if session.environment.device is not None:
        raise NotSupported(ON_A_DEVICE)
    writer = Writer(session)
    return writer, writer.document()


def _new_session(make: Callable[..., AnySession], document: dict[str, Any], surroundings: SessionConfig) -> AnySession:
    return make(device=document["device"], dtype=dtypes.parse(document["dtype"]), seed=0, **surroundings)


def _filled(session: AnySession, document: dict[str, Any], owners: list[Any], arrays: list[Any]) -> AnySession:
    Reader(session, document, arrays).read()
    for owner in owners:
        session.accounts.count(owner, lent=True)
    return session


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


__all__ = ["MEDIA_TYPE", "digest", "fork", "refusal", "restore", "save", "undone_on_error"]
