"""Which session the SDK works in: ``connect`` names a server, otherwise one in this process."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidValue

from .recorder import Recorder
from .transports import HTTPTransport, LocalTransport, Transport

_current: Session | None = None


class Session:
    """A connection to one session. Use it with ``with``, or it ends with its last tensor or the process."""

    def __init__(self, transport: Transport, previous: Session | None = None) -> None:
        self.recorder = Recorder(transport)
        self._previous = None if previous is None else weakref.ref(previous)
        _open.add(self.recorder)

    @property
    def url(self) -> str:
        """The server's address, or ``local://``."""
        return self.recorder.transport.url

    @property
    def requests(self) -> int:
        """How many programs were sent."""
        return self.recorder.requests

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self.recorder.closed

    def flush(self) -> None:
        """Send what is recorded without asking for a value."""
        self.recorder.flush()

    def close(self) -> None:
        """End the session and free everything in it; the one that was current before it is so again."""
        global _current
        self.recorder.close()
        while _current is not None and _current.closed:
            _current = None if _current._previous is None else _current._previous()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        waiting = len(self.recorder.pending)
        status = "closed" if self.closed else f"{self.requests} programs sent, {waiting} instructions waiting"
        return f"<telegrad session at {self.url}: {status}>"


_open: weakref.WeakSet[Recorder] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for recorder in list(_open):
        recorder.close()


def connect(
    url: str | None = None, *, device: str | None = None, seed: int | None = None, dtype: Any = None, **options: Any
) -> Session:
    """Open a session and make it the one that new tensors live in.

    ``url`` is a server's address (``http://127.0.0.1:8000``) or ``local://`` for this process; without
    it ``TELEGRAD_URL`` is used, else ``local://``. ``seed`` starts the session's random numbers;
    ``dtype`` is its default floating dtype. ``device`` is where its tensors live, one of those the server lists:
    "cpu" (the default), "jax" or "cuda". Raises ConnectionFailed if no server answers.
    """
    global _current
    address = url or os.environ.get("TELEGRAD_URL") or "local://"
    settings: dict[str, Any] = {"seed": seed, **options}
    if device is not None:
        settings["device"] = device
    if dtype is not None:
        settings["dtype"] = dtypes.parse(dtype)
    if address.startswith("local:"):
        transport: Transport = LocalTransport(**settings)
    elif address.startswith(("http://", "https://")):
        transport = HTTPTransport(address, **settings)
    else:
        raise InvalidValue(f"cannot connect to {address!r}: an address starts with http://, https:// or local://")
    _current = Session(transport, _current)
    return _current


def current() -> Session:
    """The session that new tensors live in; opened on first use."""
    return _current if _current is not None else connect()
