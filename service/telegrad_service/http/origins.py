"""An ASGI wrapper that checks the Host and Origin headers of HTTP and WebSocket requests, also on loopback.

A web page can send requests to any address that its reader's browser can reach. Two checks prevent attacks:

* Host. With DNS rebinding, a page makes its own name resolve to this server, and the browser treats the server's
  answers as the page's own. So a request must address the server by an allowed name, or by an IP address, which needs
  no resolution.
* Origin. A page of another origin can send simple requests and open WebSockets without a preflight. So a request with
  an Origin must come from the server's own pages, or from an origin in ``--cors-origin``. Without an Origin,
  Sec-Fetch-Site tells whether another site made the request, which is then refused unless it only reads.

Clients other than browsers need not send Origin or Sec-Fetch-Site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from telegrad_engine.errors import ForbiddenOrigin, MalformedRequest, TelegradError, UnknownHost

from .. import problems
from ..settings import NetworkSettings

EXPOSED = ("Location", "Retry-After", "Content-Encoding", "ETag", "X-Request-ID")
"""Response headers that pages of other origins may read, in addition to the CORS-safelisted ones."""
LOOPBACK = ("localhost", "*.localhost")
ANY = "*"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITE = frozenset({b"same-origin", b"none"})
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(:(?P<port>\d{1,5}))?", re.ASCII)


class OriginCheck:
    """Passes requests to ``app`` if they address one of ``hosts`` and come from an allowed origin."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*LOOPBACK, *hosts))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._check_host = lru_cache(maxsize=1024)(self._host_error)
        self._check_origin = lru_cache(maxsize=1024)(self._origin_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        error = self._error(scope)
        if error is None:
            await self._app(scope, receive, send)
        else:
            await refuse(error)(scope, receive, send)

    def _error(self, scope: Scope) -> TelegradError | None:
        host = origin = site = None
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        # HTTP/1.0 has no Host; browsers always send one.
        if hosts != 1 and (hosts or scope["http_version"] != "1.0"):
            return MalformedRequest("a request has one Host header")
        if host is not None and (error := self._check_host(host)) is not None:
            return error
        if origin is not None:
            return self._check_origin(origin, host)
        if site is None or site in OWN_SITE or scope.get("method") in READING:
            return None
        return ForbiddenOrigin(f"a page of another site may not make this request (Sec-Fetch-Site: {_text(site)})")

    def _host_error(self, header: bytes) -> TelegradError | None:
        if ANY in self._hosts:
            return None
        found = AUTHORITY.fullmatch(_text(header))
        if found is None:
            return MalformedRequest(f"not a Host header: {_text(header)!r:.80}")
        host = found["host"].lower().rstrip(".")
        if _is_address(host.strip("[]")) or host in self._hosts:
            return None
        labels = host.split(".")
        if any(".".join(["*", *labels[i:]]) in self._hosts for i in range(1, len(labels))):
            return None
        return UnknownHost(
            f"this server is not addressed as {host!r:.80}; its operator can allow that with --allowed-host"
        )

    def _origin_error(self, header: bytes, host: bytes | None) -> TelegradError | None:
        origin = _text(header).lower()
        if ANY in self._origins or origin in self._origins:
            return None
        if host is not None and _same_authority(origin, _text(host).lower()):
            return None
        return ForbiddenOrigin(
            f"pages of {origin!r:.80} may not use this server; its operator can allow that with --cors-origin"
        )


def check_origins(app: Starlette, settings: NetworkSettings) -> None:
    """Add the middleware that refuses unknown hosts and origins, and that answers CORS requests."""
    if settings.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    app.add_middleware(OriginCheck, hosts=[*settings.allowed_host, settings.host], origins=settings.cors_origin)


def refuse(error: TelegradError, headers: Mapping[str, str] | None = None) -> Response:
    """The response to a request that is refused before its body is read."""
    return problems.problem(error, {"connection": "close", **(headers or {})})


def _text(header: bytes) -> str:
    return header.decode("latin-1")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _same_authority(origin: str, host: str) -> bool:
    """Whether an origin matches the Host header. Schemes are not compared, as a proxy may change them."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    default = DEFAULT_PORTS.get(parts.scheme)
    found = AUTHORITY.fullmatch(host)
    if found is None or default is None or parts.hostname is None:
        return False
    return (parts.hostname, port or default) == (found["host"].strip("[]"), int(found["port"] or default))
