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
    """A connection to one session. Use it with ``with``, or let it end with the process."""

    def __init__(self, transport: Transport) -> None:
        self.recorder = Recorder(transport)
        self.closed = False
        # A finalizer, not __del__: at exit the session must end before httpx is torn down.
        self._finalizer = weakref.finalize(self, self.recorder.close)
        self._finalizer.atexit = False
        _open.add(self)

    @property
    def url(self) -> str:
        """The server's address, or ``local://``."""
        return self.recorder.transport.url

    @property
    def requests(self) -> int:
        """How many programs were sent."""
        return self.recorder.requests

    def flush(self) -> None:
        """Send what is recorded without asking for a value."""
        self.recorder.flush()

    def close(self) -> None:
        """End the session and free everything in it."""
        global _current
        if not self.closed:
            self.closed = True
            self._finalizer()
            if _current is self:
                _current = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        waiting = len(self.recorder.pending)
        status = "closed" if self.closed else f"{self.requests} programs sent, {waiting} instructions waiting"
        return f"<telegrad session at {self.url}: {status}>"


_open: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for session in list(_open):
        session.close()


def connect(url: str | None = None, *, seed: int | None = None, dtype: Any = None, **options: Any) -> Session:
    """Open a session and make it the one that new tensors live in.

    ``url`` is a server's address (``http://127.0.0.1:8000``) or ``local://`` for this process; without
    it ``TELEGRAD_URL`` is used, else ``local://``. ``seed`` starts the session's random numbers;
    ``dtype`` is its default floating dtype. Raises ConnectionFailed if no server answers.
    """
    global _current
    address = url or os.environ.get("TELEGRAD_URL") or "local://"
    settings: dict[str, Any] = {"seed": seed, **options}
    if dtype is not None:
        settings["dtype"] = dtypes.parse(dtype)
    if address.startswith("local:"):
        transport: Transport = LocalTransport(**settings)
    elif address.startswith(("http://", "https://")):
        transport = HTTPTransport(address, **settings)
    else:
        raise InvalidValue(f"cannot connect to {address!r}: an address starts with http://, https:// or local://")
    _current = Session(transport)
    return _current


def current() -> Session:
    """The session that new tensors live in; opened on first use."""
    return _current if _current is not None else connect()
