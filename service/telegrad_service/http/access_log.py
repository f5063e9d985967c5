"""An ASGI wrapper that logs a line for each request: client, method, path, status and duration.

Whoever knows a session's id may use the session, so only the beginning of the id is logged. Queries, headers and bodies
are not logged.
"""

from __future__ import annotations

import logging
import re
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("telegrad_service.access")
SESSION = re.compile(r"^(/+v1/+sessions/+[^/]{6})[^/]+")
MAX_PATH = 200
"""Characters of a path that are logged."""


def shown(scope: Scope) -> str:
    """The request's path as it is logged: in ASCII, cut, and with the session's id shortened."""
    # Decoded, as the routes see it: in raw_path, the letters before the id may be percent-encoded.
    path = SESSION.sub(r"\1...", scope["path"].encode("unicode_escape").decode("ascii"))
    return path if len(path) <= MAX_PATH else path[:MAX_PATH] + "..."


class AccessLog:
    """Logs what ``app`` answers, at level info. A stream gets a line when it begins and one when it ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log what is answered."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        client = (scope.get("client") or ("-",))[0]
        method = scope.get("method", "WEBSOCKET")
        status = 500

        def log(what: int | str) -> None:
            logger.info("%s %s %s %s %.1f ms", client, method, shown(scope), what, 1e3 * (perf_counter() - begun))

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
                log(status)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            log("closed" if status == 101 else status)
