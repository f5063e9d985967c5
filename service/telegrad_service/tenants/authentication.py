"""ASGI middleware that decides who makes a request, over HTTP and WebSocket, before a byte of its body is read.

It sets the principal of the request. Whether the principal's scopes suffice is for each route to say
(``routing/route.py``), before it reads the body.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from telegrad_engine.errors import MalformedRequest, TelegradError, Unauthenticated

from ..http.origins import refuse
from .authenticator import Authenticator
from .principal import NOBODY, PRINCIPAL, SCOPE_KEY, Principal

PUBLIC = frozenset({"/healthz", "/readyz", "/docs", "/redoc", "/openapi.json", "/asyncapi.json"})
"""Paths that need no key."""
ASSETS = ("/docs/", "/redoc/")
"""Below these paths are the files of the documentation's pages."""
CHALLENGE = {"www-authenticate": 'Bearer realm="telegrad"'}
ORIGIN_OF_KEYS = (
    "The server's operator makes keys with `telegrad keys create --tenant NAME`; the SDK takes one as api_key=…, or as "
    "TELEGRAD_API_KEY"
)


def authorization_of(scope: Scope) -> bytes | None:
    """The Authorization header of a request. Raises MalformedRequest if it has several."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise MalformedRequest("a request has one Authorization header")
    return found[0] if found else None


def is_public(path: str) -> bool:
    """Whether requests for a path need no key."""
    return path in PUBLIC or path.startswith(ASSETS)


class Authentication:
    """Passes requests with a valid API key to ``app``, and those that need none."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._principal(scope)
        except Unauthenticated as error:
            await refuse(Unauthenticated(f"{error}. {ORIGIN_OF_KEYS}"), CHALLENGE)(scope, receive, send)
            return
        except TelegradError as error:
            await refuse(error)(scope, receive, send)
            return
        scope[SCOPE_KEY] = principal
        PRINCIPAL.set(principal)  # each request has a task, and so a context, of its own
        await self._app(scope, receive, send)

    async def _principal(self, scope: Scope) -> Principal:
        header = authorization_of(scope)
        known = self._authenticator.remembered(header)
        if known is not None:
            return known
        if scope["type"] == "http" and is_public(scope["path"]):
            return NOBODY
        return await self._authenticator.principal(header)
