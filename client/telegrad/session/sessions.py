"""Sessions: ``connect`` opens one on a server; without it, a session in this process is used.

Also the default dtype of a session, and debugging of all sessions.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument, InvalidValue
from telegrad_engine.program.compression import ENCODING
from telegrad_engine.tensor.attributes import dtype_of_type

from ..tape.recorder import Recorder
from ..transport.base import Transport, Verify

LOCKED_S = 1.0
"""How many seconds the exit of the process waits for a thread that uses a session."""
_here: ContextVar[Session | None] = ContextVar("session", default=None)
"""The session of this thread or task, if it has connected or is tracing."""
_shared: Session | None = None
"""The session of all other threads and tasks: the main thread's, or the first."""


class Session:
    """A connection to one session. Use it in a ``with`` block; otherwise it ends with its last tensor or the process.

    A session that was attached to by its id stays on its server when this connection ends.
    """

    _previous: weakref.ref[Session] | None = None
    """The session that was current before this one."""

    def __init__(self, transport: Transport) -> None:
        self.recorder = Recorder(transport)
        _open.add(self.recorder)
        _end_with_the_worker()

    @property
    def url(self) -> str:
        """The server's address, or ``local://``."""
        return self.recorder.transport.url

    @property
    def id(self) -> str:
        """The session's id on its server; with it, any client can use the session: ``tg.connect(url, session=id)``."""
        return self.recorder.transport.session_id

    @property
    def requests(self) -> int:
        """The number of programs sent."""
        return self.recorder.requests

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self.recorder.closed

    def compiled(self) -> list[dict[str, Any]]:
        """Reports on the programs that recur in the session: how often each ran, how many of these runs were planned
        or, in a session opened with ``compile``, compiled, and why the last one was not (docs/compiled.md).

        The last report, whose ``digest`` is None, is on the newest program: one that was sent for the first time. Its
        reason says how it differs from the most similar one, since a loop of new programs is never planned.
        """
        return [*self.recorder.transport.compiled(), *self.recorder.tree.misses()]

    def another(self) -> Session:
        """Open a new session with the same options on the same server."""
        return Session(self.recorder.transport.another())

    def flush(self) -> None:
        """Send what is recorded without asking for a value."""
        self.recorder.flush()

    def close(self) -> None:
        """End the session and free everything in it. The session that was current before it becomes current again."""
        global _shared
        self.recorder.close()
        _here.set(_open_one(_here.get()))
        _shared = _open_one(_shared)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        waiting = self.recorder.waiting
        status = "closed" if self.closed else f"{self.requests} programs sent, {waiting} instructions waiting"
        return f"<telegrad session {self.id} at {self.url}: {status}>"


def _open_one(session: Session | None) -> Session | None:
    """The session, or the last one before it that is open."""
    while session is not None and session.closed:
        session = None if session._previous is None else session._previous()
    return session


_open: weakref.WeakSet[Recorder] = weakref.WeakSet()


def open_recorders() -> list[Recorder]:
    """The recorders of all sessions that still exist."""
    return list(_open)


@atexit.register
def _close_all() -> None:
    """End all sessions with the process, even if one of them fails or a thread still holds its lock."""
    with ExitStack() as all_of_them:
        for recorder in open_recorders():
            all_of_them.callback(_close_at_exit, recorder)


def _end_with_the_worker() -> None:
    """Have the sessions end with a multiprocessing worker, which does not run ``atexit`` functions."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=0)


def _close_at_exit(recorder: Recorder) -> None:
    free = recorder.lock.acquire(timeout=LOCKED_S)
    try:
        recorder.close() if free else recorder.end()
    finally:
        if free:
            recorder.lock.release()


def connect(
    url: str | None = None,
    *,
    session: str | None = None,
    device: str | None = None,
    seed: int | None = None,
    dtype: Any = None,
    stream: bool | None = None,
    compile: bool = False,
    compress: str | None = None,
    verify: Verify = True,
    **options: Any,
) -> Session:
    """Open a session and make it the one that new tensors live in.

    ``url`` is a server's address (``http://127.0.0.1:8000``) or ``local://`` for this process; without it
    ``TELEGRAD_URL`` is used, else ``local://``. ``seed`` seeds the session's random numbers; ``dtype`` is its default
    floating dtype. ``device`` is where its tensors live, one of the devices that the server lists: "cpu" (the default),
    "jax" or "cuda". Programs are sent to a server over a WebSocket, or as requests if something on the way does not
    allow it; ``stream=True`` requires the WebSocket, ``stream=False`` does without. With ``compile`` the server
    compiles programs that recur (docs/compiled.md); a session in this process ignores it. With ``compress="zstd"``, for
    slow networks, long messages in both directions are compressed if that makes them shorter by a tenth; it needs
    ``pip install 'telegrad[zstd]'``. ``verify`` is how a server's certificate is verified (``https://``): by the
    system's certificates (True), by those in a PEM file (its path), by an ``ssl.SSLContext``, or not at all (False). A
    proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``) is used except for this machine; programs are sent
    through it as requests.

    In a thread other than the main one, the session is that thread's; threads that have not connected share the main
    thread's. Likewise, an asyncio task has its own; there, :func:`telegrad.aconnect` does not block the event loop.

    ``session`` attaches to a live session of the server, by its id; its seed, dtype, device and compile stay as they
    are and cannot be given. Several clients may use a session, each with its own tensors; it stays when a client that
    has attached to it closes it or ends.
    Raises ConnectionFailed if no server answers; UnknownSession if a session to attach to has ended; InvalidOperation
    if it belongs to a server of another version.
    """
    ways: dict[str, Any] = {"session": session, "stream": stream, "compile": compile, "compress": compress}
    return enter(Session(transport_to(url, device=device, seed=seed, dtype=dtype, verify=verify, **ways, **options)))


def transport_to(
    url: str | None,
    *,
    device: str | None,
    seed: int | None,
    dtype: Any,
    stream: bool | None,
    session: str | None = None,
    compile: bool = False,
    compress: str | None = None,
    verify: Verify = True,
    **options: Any,
) -> Transport:
    """Open or attach to a session with the options of ``connect``, and return its transport."""
    address = url or os.environ.get("TELEGRAD_URL") or "local://"
    settings: dict[str, Any] = {"seed": seed, **options}
    if device is not None:
        settings["device"] = device
    if dtype is not None:
        settings["dtype"] = dtypes.parse(dtype)
    if compress not in (None, ENCODING):
        raise InvalidValue(f"cannot compress by {compress!r:.60}: it is {ENCODING!r}, or None for not at all")
    if session is not None:
        settings["session"] = session
        _check_attaching(address, session, {**settings, "compile": compile or None})
    if address.startswith("local:"):
        from ..transport.local import LocalTransport  # a client of a server does not need the engine's sessions

        return LocalTransport(**settings)
    if address.startswith(("http://", "https://")):
        from ..transport.http import HTTPTransport  # httpx takes a fifth of the time to import Telegrad

        ways: dict[str, Any] = {"stream": stream, "compress": compress, "verify": verify}
        return HTTPTransport(address, compile=compile or None, **ways, **settings)
    raise InvalidValue(f"cannot connect to {address!r}: an address starts with http://, https:// or local://")


def _check_attaching(address: str, session: Any, settings: dict[str, Any]) -> None:
    if not isinstance(session, str):
        raise InvalidArgument(f"session is the id of a session, a string, not {type(session).__name__}")
    if address.startswith("local:"):
        raise InvalidValue("a session of this process cannot be attached to: use its Session, or tensors, directly")
    given = [name for name in ("device", "seed", "dtype", "compile") if settings.get(name) is not None]
    if given:
        raise InvalidValue(f"{given[0]} is a matter of new sessions: leave it out to attach to session {session}")


def enter(session: Session) -> Session:
    """Make this the session that new tensors live in, until it is closed."""
    global _shared
    before = _here.get()
    session._previous = None if before is None else weakref.ref(before)
    _here.set(session)
    if _shared is None or threading.current_thread() is threading.main_thread():
        _shared = session
    return session


def current() -> Session:
    """The session that new tensors live in; opened on first use."""
    session = known()
    return session if session is not None else connect()


def known() -> Session | None:
    """The session that new tensors would live in, or None if there is none yet.

    A forked child opens a new session like its parent's.
    """
    session = _here.get() or _shared
    if session is not None and session.recorder.parent is not None:
        return enter(session.another())
    return session


def _after_fork() -> None:
    """Leave the sessions that this process inherited by a fork to its parent."""
    for recorder in open_recorders():
        recorder.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def standing_in(session: Any) -> Iterator[None]:
    """Within the block, make new tensors of this thread in ``session``, which only has to be like a session."""
    token = _here.set(session)
    try:
        yield
    finally:
        _here.reset(token)


# Default dtype -----------------------------------------------------------------------------


def get_default_dtype() -> dtypes.DType:
    """The current session's default floating dtype."""
    return dtypes.from_numpy(current().recorder.default_dtype)


def set_default_dtype(d: Any) -> None:
    """Set the current session's default floating dtype. Raises TypeError for one that is not floating."""
    dtype = dtypes.parse(d)
    if not dtype.is_floating_point:
        raise InvalidArgument("only floating-point types are supported as the default type")
    recorder = current().recorder
    recorder.emit("set_default_dtype", (), (), {"dtype": dtype})
    recorder.default_dtype = dtype.numpy


def set_default_tensor_type(t: Any) -> None:
    """Set the current session's default dtype to that of a typed constructor, like ``FloatTensor``, or of its name."""
    set_default_dtype(dtype_of_type(t))


# Debugging ---------------------------------------------------------------------------------

_record = Recorder.emit
STOPPING = frozenset({"backward", "grad", "resume"})
"""The verbs in which a pass may stop for the user's Python; the code that records them then waits for the answer."""


def debug(enabled: bool = True) -> None:
    """Send every instruction as soon as it is recorded and wait for it, in all sessions; with False, stop doing so.

    Errors that only a session can detect are then raised on the line that caused them, at one message per instruction.
    """
    Recorder.emit = _emit_at_once if enabled else _record  # type: ignore[method-assign]
    for recorder in open_recorders():
        recorder.watch()


def is_debugging() -> bool:
    """Whether :func:`debug` is on."""
    return Recorder.emit is not _record


def _emit_at_once(self: Recorder, op: str, *rest: Any, **named: Any) -> None:
    with self.lock:
        _record(self, op, *rest, **named)
        if not (self.stops and op in STOPPING):
            self.flush()
