"""The current request: its id, and its data for the log, the metrics and the traces."""

from __future__ import annotations

import re
from contextvars import ContextVar
from random import Random
from typing import Any

HEADER = "X-Request-ID"
ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""The ids that clients may choose. Others are replaced, so that ids can be logged and sent back unchanged."""
_NAME = HEADER.lower().encode()
_ID = re.compile(ID_PATTERN[1:-1])
_RANDOM = Random()
"""Ids are no secrets, so they need no system call."""
OVER_HTTP, OVER_STREAM = "http", "stream"
"""The values of ``Session.source``."""


class RequestInfo:
    """One HTTP request or one stream."""

    __slots__ = (
        "body_size", "id", "method", "received", "route", "sent", "sequence", "slug", "span", "status", "tenant",
    )  # fmt: skip

    def __init__(self, request_id: str, method: str = "") -> None:
        self.id, self.method = request_id, method
        self.status = 500
        """The status of the response; 101 for a stream that was opened."""
        self.route: str | None = None
        """The path template of the route; None without a route."""
        self.tenant: str | None = None
        """The tenant, if the request reached a route."""
        self.slug: str | None = None
        """The slug of the answer's problem document, if any."""
        self.sequence: int | None = None
        """The sequence number of a mutation."""
        self.received = self.sent = 0
        """Bytes of bodies. The messages of a stream are counted elsewhere."""
        self.body_size = 0
        """Bytes of the decompressed body."""
        self.span: Any = None
        """The request's span, if it is traced."""


REQUEST: ContextVar[RequestInfo | None] = ContextVar("request", default=None)
"""The request that this task, or this thread, works for."""


def note_route(route: str, tenant: str) -> None:
    """Record the route's path template and the tenant of the current request."""
    request = REQUEST.get()
    if request is not None:
        request.route, request.tenant = route, tenant


def new_id() -> str:
    """A new request id."""
    return f"{_RANDOM.getrandbits(64):016x}"


def request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The id in a request's headers, if it is valid, or else a new one."""
    given = [value for name, value in headers if name == _NAME]
    if len(given) == 1:
        text = given[0].decode("latin-1")
        if _ID.fullmatch(text):
            return text
    return new_id()
