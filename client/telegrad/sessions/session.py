"""Sessions: ``connect`` opens one on a server; without it, a session in this process is used.

Also debugging of all sessions.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import signal
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue, SessionExists, TelegradError
from telegrad_engine.program.compression import ENCODING
from telegrad_engine.program.instructions import check_id

from .. import html_output
from ..late_bindings import bindings
from ..tape.recorder import Recorder
from ..transport.base import ID_PREFIX, Transport, Verify

if TYPE_CHECKING:
    from ..transport.http import HTTPTransport

LOCKED_S = 1.0
"""How many seconds the exit of the process waits for a thread that uses a session."""
SIGTERM_S = 3.0
"""How many seconds SIGTERM waits for the sessions to end."""
_here: ContextVar[Session | None] = ContextVar("session", default=None)
"""The session of this thread or task, if it has connected or is tracing."""
_shared: Session | None = None
"""The session of all other threads and tasks: the main thread's, or the first."""

CONNECTION_OPTIONS = ("stream", "compress", "verify", "api_key", "direct")
"""The options of :func:`connect` that say how a server is reached."""
SESSION_OPTIONS = ("session", "device", "dtype")
"""The options of :func:`connect` that mean the default if they are None."""
COPIES = "telegrad.copies"
"""The key of :class:`Copies` in the memo of a deep copy."""
OWN_IDS = re.compile(rf"{ID_PREFIX}([0-9a-f]{{8}}_)?[0-9]+")
"""The ids that the SDK gives to tensors."""
_T = TypeVar("_T")


class Origin(NamedTuple):
    """The session that was forked, and the number of messages that it had sent by then."""

    recorder: weakref.ref[Recorder]
    """Not kept alive: a session ends with its last tensor."""
    requests: int


class Copies(NamedTuple):
    """The copying of tensors from one session to a fork of it."""

    source: Recorder
    target: Recorder
    counters: dict[int, list[int]]
    """The version counters of the copies, by the identities of the originals'."""


class Session:
    """A connection to one session. Use it in a ``with`` block; otherwise it ends with its last tensor or the process.

    A session that was attached to by its id stays on its server when this connection ends.

    ``keep()`` names tensors, ``named()`` finds them, and ``flush()``, ``fork()``, ``export()`` and ``close()`` act on
    the whole session. ``transport`` is what ``connect`` makes.

    Examples:
        >>> with tg.connect("local://") as session:
        ...     session.keep({"w": tg.ones(2)})
        ...     print(session.named())
        {'w': tensor([1., 1.])}
    """

    _previous: weakref.ref[Session] | None = None
    """The session that was current before this one."""

    _origin: Origin | None = None
    """For a fork: what it was forked from."""

    def __init__(self, transport: Transport) -> None:
        self.recorder = Recorder(transport)
        _open.add(self.recorder)
        _end_with_the_worker()
        if transport.remote:
            _end_with_sigterm()

    @property
    def url(self) -> str:
        """The server's address, or ``local://``.

        Examples:
            >>> tg.current().url
            'local://'
        """
        return self.recorder.transport.url

    @property
    def id(self) -> str:
        """The session's id on its server; with it, any client can use the session: ``tg.connect(url, session=id)``."""
        return self.recorder.transport.session_id

    @property
    def requests(self) -> int:
        """The number of programs sent.

        Examples:
            >>> tg.current().requests >= 0
            True
        """
        return self.recorder.requests

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self.recorder.closed

    def compiled(self) -> list[dict[str, Any]]:
        """Reports on the programs that recur in the session: how often each ran, how many of these runs were planned,
        and why the last one was not (docs/explanation/compiled.md).

        The last report, whose ``digest`` is None, is on the newest program: one that was sent for the first time. Its
        reason says how it differs from the most similar one, since a loop of new programs is never planned.
        """
        return [*self.recorder.transport.compiled(), *self.recorder.templates.misses()]

    def devices(self) -> list[dict[str, Any]]:
        """The devices that sessions can be opened on in this session's process or server, as ``GET /v1/devices``."""
        return self.recorder.transport.devices()

    def another(self) -> Session:
        """Open a new session with the same options on the same server."""
        return Session(self.recorder.transport.another())

    def fork(self) -> Session:
        """Open a second session in the same state, in the same place: all tensors, gradients, graphs and functions.

        Both continue independently, and draw the same random numbers from here on. They share the memory of large
        tensors until one of them writes to it. :meth:`copy_of` gives the fork's own tensors, modules and optimizers
        for those of this session. ``with session.fork() as other:`` makes it the current session in the block and ends
        it afterwards. Raises NotSupported while the session's profile runs, or if it is on a GPU.

        Examples:
            >>> with tg.connect("local://") as session:
            ...     x = tg.ones(2)
            ...     with session.fork() as fork:
            ...         y = fork.copy_of(x)
            ...         print(y.add_(1), x)
            tensor([2., 2.]) tensor([1., 1.])
        """
        with self.recorder.lock:
            if self.recorder.open_checkpoints:
                raise InvalidOperation("a session cannot be forked inside a checkpoint")
            self.recorder.flush()
            forked = Session(self.recorder.transport.fork())
            forked._origin = Origin(weakref.ref(self.recorder), self.recorder.requests)
        return forked

    def copy_of(self, value: _T) -> _T:
        """Return a copy of ``value``, such as a tensor, a module, an optimizer, or a tuple of them, in this fork.

        It has the fork's tensors in place of the tensors of the forked session. Take everything that belongs together
        in one call: ``model, optimizer = fork.copy_of((model, optimizer))``. Tensors with a history cannot be taken:
        fork between training steps. Raises InvalidOperation for those, for tensors with hooks, if this session is not a
        fork, and if the forked session has gone on since the fork.

        Examples:
            >>> with tg.connect("local://") as session:
            ...     x = tg.ones(2)
            ...     fork = session.fork()
            ...     print(fork.copy_of(x).sum().item())
            2.0
        """
        origin = self._origin
        if origin is None:
            raise InvalidOperation("this session is not a fork: session.fork() returns one")
        source = origin.recorder()
        if source is None or source.requests != origin.requests or source.waiting:
            raise InvalidOperation("the session went on after the fork: take the copies right after it")
        memo: dict[Any, Any] = {COPIES: Copies(source, self.recorder, {})}
        with standing_in(self):
            return deepcopy(value, memo)

    def export(self, path: str | os.PathLike[str], tensors: Mapping[str, Any] | None = None) -> None:
        """Write the state of the session to a file, which :func:`import_session` opens again.

        ``tensors`` are names for tensors that the importing process needs (:meth:`named`), such as
        ``model.state_dict()`` or ``{"loss": loss}``. Raises NotSupported as :meth:`fork`, and OSError.
        """
        recorder = self.recorder
        names = tuple(tensors or ())
        with recorder.lock:
            for name in names:
                recorder.emit("alias", [(tensors or {})[name]._id], [check_id(name)])
            recorder.flush()
            try:
                content = recorder.transport.snapshot()
            finally:
                if names:
                    recorder.emit("free", [names])
                    recorder.flush()
        with open(path, "wb") as file:
            file.write(content)

    def keep(self, tensors: Mapping[str, Any]) -> None:
        """Give tensors names in the session, under which :meth:`named` finds them after this client has left it.

        ``tensors`` is such as ``model.state_dict()``. A name that is taken then names the new tensor. Raises
        MalformedRequest for what cannot be a tensor's id.

        Examples:
            >>> with tg.connect("local://") as session:
            ...     session.keep({"w": tg.ones(2)})
            ...     print(session.named())
            {'w': tensor([1., 1.])}
        """
        recorder = self.recorder
        with recorder.lock:
            recorder.flush()
            taken = {tensor.description["id"] for tensor in recorder.transport.described()}.intersection(tensors)
            if taken:
                recorder.emit("free", [tuple(sorted(taken))])
            for name, tensor in tensors.items():
                recorder.emit("alias", [tensor._id], [check_id(name)])
            recorder.flush()

    def named(self) -> dict[str, Any]:
        """The tensors of the session that have a name, from :meth:`keep`, :meth:`export` or a REST client.

        Tensors with a history, and those that this or another client of the SDK made, are left out.
        """
        found = {}
        for tensor in self.recorder.transport.described():
            name = tensor.description["id"]
            if tensor.description["is_leaf"] and not OWN_IDS.fullmatch(name):
                found[name] = bindings.take(self.recorder, tensor)
        return found

    def flush(self) -> None:
        """Send what is recorded without asking for a value.

        Examples:
            >>> tg.current().flush()
        """
        self.recorder.flush()

    def close(self) -> None:
        """End the session and free everything in it. The session that was current before it becomes current again."""
        global _shared
        self.recorder.close()
        _here.set(_open_one(_here.get()))
        _shared = _open_one(_shared)

    def __enter__(self) -> Session:
        if _here.get() is not self and self._origin is not None:
            enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        waiting = self.recorder.waiting
        status = "closed" if self.closed else f"{self.requests} programs sent, {waiting} instructions waiting"
        return f"<telegrad session {self.id} at {self.url}: {status}>"

    def _repr_html_(self) -> str:
        """Ask the session what it holds, unless it has ended or cannot be reached."""
        return html_output.block("session", html_output.properties("Session", self._facts()))

    def _facts(self) -> Iterator[tuple[str, str]]:
        transport = self.recorder.transport
        yield "id", self.id
        yield "at", self.url
        if self.closed:
            yield "state", "closed"
            return
        yield "device", transport.device
        yield "dtype", dtypes.from_numpy(self.recorder.default_dtype).name
        yield "programs sent", str(self.requests)
        yield "instructions waiting", str(self.recorder.waiting)
        try:
            held = transport.status()
        except TelegradError as error:
            yield "state", str(error)
            return
        if held["name"] is not None:
            yield "name", held["name"]
        yield "tensors", str(held["tensors"])
        yield "memory", f"{html_output.amount(held['used_bytes'])} of {html_output.amount(held['max_bytes'])}"


def _open_one(session: Session | None) -> Session | None:
    """The session, or the last one before it that is open."""
    while session is not None and session.closed:
        session = None if session._previous is None else session._previous()
    return session


_open: weakref.WeakSet[Recorder] = weakref.WeakSet()
"""The recorders of all sessions that still exist."""


@atexit.register
def _close_all() -> None:
    """End all sessions with the process, even if one of them fails or a thread still holds its lock."""
    with ExitStack() as all_of_them:
        for recorder in [*_open]:
            all_of_them.callback(_close_at_exit, recorder)


def _end_with_the_worker() -> None:
    """Have the sessions end with a multiprocessing worker, which does not run ``atexit`` functions."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=0)


def _end_with_sigterm() -> None:
    """Have the sessions end when SIGTERM ends the process, unless the program handles that signal itself."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: object) -> None:
    """End all sessions, then the process, as the signal does without a handler."""
    ending = threading.Thread(target=_close_all, daemon=True)  # this thread may hold a lock
    try:
        ending.start()
        ending.join(SIGTERM_S)
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(128 + number)  # process 1 of a container ignores the signal


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
    compress: str | None = None,
    verify: Verify = True,
    api_key: str | None = None,
    direct: bool = False,
    **options: Any,
) -> Session:
    """Open a session and make it the one that new tensors live in.

    ``url`` is a server's address (``http://127.0.0.1:8000``) or ``local://`` for this process; without it
    ``TELEGRAD_URL`` is used, else ``local://``. ``seed`` seeds the session's random numbers; ``dtype`` is its default
    floating dtype; ``name`` is what the console calls it. ``device`` is where its tensors live, one of the devices that
    the server lists: "cpu" (the default), "cuda" or "cuda:1" (a GPU), or "gpu" (any GPU). Programs are sent to a server
    over a WebSocket, or as requests if something on the way does not allow it; ``stream=True`` requires the WebSocket,
    ``stream=False`` does without. With ``compress="zstd"``, for slow networks, long messages in both directions are
    compressed if that makes them shorter by a tenth; it needs the extra ``zstd``. ``verify`` is how a server's
    certificate is verified (``https://``): by the system's certificates (True), by those in a PEM file (its path), by
    an ``ssl.SSLContext``, or not at all (False). ``api_key`` is the key of a server that requires one
    (docs/how-to/authentication.md); without it ``TELEGRAD_API_KEY`` is used. It is sent to this server only. With
    ``direct``, programs go past a gateway to the worker that has the session, if that can be reached from here
    (docs/explanation/cluster.md). A proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``) is used except for
    this machine; programs are sent through it as requests. A request that the server refuses because it is busy, or
    because a quota is used up for now, is repeated for a minute, with growing pauses; ``retry_s`` is another number of
    seconds, and 0 never repeats.

    In a thread other than the main one, the session is that thread's; threads that have not connected share the main
    thread's. Likewise, an asyncio task has its own; there, :func:`telegrad.aconnect` does not block the event loop.

    ``session`` attaches to a live session of the server, by its id; its seed, dtype and device stay as they are and
    cannot be given. Several clients may use a session, each with its own tensors; it stays when a client that
    has attached to it closes it or ends.
    Raises ConnectionFailed if no server answers; UnknownSession if a session to attach to has ended; InvalidOperation
    if it belongs to a server of another version; Unauthenticated if the server requires a key and this is none of its.

    Examples:
        >>> session = tg.connect("local://")
        >>> tg.ones(2).sum().item()
        2.0
        >>> session.close()
    """
    ways: dict[str, Any] = {"session": session, "stream": stream, "compress": compress}
    ways |= {"verify": verify, "api_key": api_key, "direct": direct}
    return enter(Session(transport_to(url, device=device, seed=seed, dtype=dtype, **ways, **options)))


def session(name: str, url: str | None = None, **options: Any) -> Session:
    """Open the durable session of this name on a server, or create it, and make it the current one.

    It stays when this client leaves it, and survives restarts of the server. Its tensors with names
    (:meth:`Session.named`) are what a new process finds again. ``options`` are those of :func:`connect`; ``seed``,
    ``dtype``, ``device`` and ``ttl_s`` matter only if it is created.
    Raises InvalidValue for ``local://``, or if the server keeps no durable sessions, and as :func:`connect`.

    Examples:
        >>> with tg.session("digits", "http://127.0.0.1:8000") as session:  # doctest: +SKIP
        ...     session.keep({"w": tg.ones(2)})
    """
    try:
        return connect(url, name=name, durable=True, **options)
    except SessionExists as found:
        ways = {name: options[name] for name in CONNECTION_OPTIONS if name in options}
        return connect(url, session=found.context["session"], **ways)


def transport_to(url: str | None, **options: Any) -> Transport:
    """Open or attach to a session with the options of ``connect``, and return its transport."""
    address = url or os.environ.get("TELEGRAD_URL") or "local://"
    ways = {name: options.pop(name) for name in CONNECTION_OPTIONS if name in options}
    settings = {name: value for name, value in options.items() if value is not None or name not in SESSION_OPTIONS}
    if "dtype" in settings:
        settings["dtype"] = dtypes.parse(settings["dtype"])
    if (compress := ways.get("compress")) not in (None, ENCODING):
        raise InvalidValue(f"cannot compress by {compress!r:.60}: it is {ENCODING!r}, or None for not at all")
    if "session" in settings:
        _check_attaching(address, settings["session"], settings)
    if address.startswith("local:"):
        from ..transport.local import LocalTransport  # a client of a server does not need the engine's sessions

        if settings.get("durable"):
            raise InvalidValue("this process keeps no durable sessions; give the address of a server that does")
        return LocalTransport(**settings)
    if address.startswith(("http://", "https://")):
        key = ways.pop("api_key", None)
        key = os.environ.get("TELEGRAD_API_KEY") if key is None else key
        return _http_transport()(address, api_key=key or None, **ways, **settings)
    raise InvalidValue(f"cannot connect to {address!r}: an address starts with http://, https:// or local://")


@cache
def _http_transport() -> type[HTTPTransport]:
    """Import the transport when it is needed: httpx takes a fifth of the time to import Telegrad.

    ``rich``, which httpx imports where it is installed, draws from the user's ``random`` at its import.
    """
    drawn = random.getstate()
    try:
        from ..transport.http import HTTPTransport
    finally:
        random.setstate(drawn)
    return HTTPTransport


def import_session(path: str | os.PathLike[str], url: str | None = None, **options: Any) -> Session:
    """Open a session in the state of a file from ``Session.export`` or ``GET …/snapshot``, and make it the current one.

    ``url`` is as in :func:`connect`; ``options`` are ``stream``, ``compress``, ``verify`` and ``timeout`` of a server.
    ``named()`` of the session gives its tensors. Raises MalformedRequest if the file is damaged, TooLarge if the
    session would take too much memory, OSError if the file cannot be read.

    ``path`` is that of the file.

    Examples:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "session.snapshot")
        >>> with tg.connect("local://") as session:
        ...     session.export(path, {"w": tg.tensor([1.0, 2.0])})
        >>> with tg.import_session(path, "local://") as copy:
        ...     print(copy.named()["w"])
        tensor([1., 2.])
    """
    with open(path, "rb") as file:
        content = file.read()
    address = url or os.environ.get("TELEGRAD_URL") or "local://"
    if address.startswith("local:"):
        from ..transport.local import LocalTransport

        return enter(Session(LocalTransport.restored(content)))
    return enter(Session(_http_transport()(address, snapshot=content, **options)))


def _check_attaching(address: str, session: Any, settings: dict[str, Any]) -> None:
    if not isinstance(session, str):
        raise InvalidArgument(f"session is the id of a session, a string, not {type(session).__name__}")
    if address.startswith("local:"):
        raise InvalidValue("a session of this process cannot be attached to: use its Session, or tensors, directly")
    given = [name for name in ("device", "seed", "dtype") if settings.get(name) is not None]
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
    """The session that new tensors live in; opened on first use.

    Examples:
        >>> tg.current().url
        'local://'
    """
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
    for recorder in [*_open]:
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


# Debugging ---------------------------------------------------------------------------------


def debug(enabled: bool = True) -> None:
    """Send every instruction as soon as it is recorded and wait for it, in all sessions; with False, stop doing so.

    Errors that only a session can detect are then raised on the line that caused them, at one message per instruction.

    ``enabled`` says which.

    Examples:
        >>> tg.debug()
        >>> tg.ones(2).sum()
        tensor(2.)
        >>> tg.debug(False)
    """
    Recorder.debug(enabled)
    for recorder in [*_open]:
        recorder.watch()
