"""uvicorn with an announcement of its address, a graceful stop of running programs, and an access log."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import sys
from collections.abc import Callable
from time import perf_counter
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .http.connections import ConnectionLimits, LimitedServerState
from .http.http_protocol import HttpProtocol
from .process import tune
from .settings import Settings
from .streaming.websocket import StreamProtocol

CLOSE_S = 5
"""Seconds that connections get to end after the last program has ended."""
ENDING_S = 1.0
"""Seconds that a computing thread gets to end after the server has closed."""
TICKS = 5
"""The number of uvicorn's ticks, ten per second, between two checks for slow clients."""
QUIET = {"info": "warning", "debug": "warning"}
"""uvicorn's log level where it differs from ours, because uvicorn would log session ids and the contents of frames."""
access_logger = logging.getLogger("telegrad_service.access")
SESSION = re.compile(r"^(/+v1/+sessions/+[^/]{6})[^/]+")
MAX_PATH = 200
"""The most characters of a path that are logged."""


class Server(uvicorn.Server):
    """A server that drains and then closes on the first signal, and closes at once on the second."""

    def __init__(self, app: FastAPI, settings: Settings, announce: Callable[[str], None]) -> None:
        limits = ConnectionLimits(settings)
        super().__init__(
            uvicorn.Config(
                AccessLog(app) if settings.log_level in QUIET else app,
                host=settings.host,
                port=settings.port,
                http=HttpProtocol,
                loop="uvloop" if sys.platform != "win32" else "auto",
                log_level=QUIET.get(settings.log_level, settings.log_level),
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_S + 1,
                timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # uvicorn only adds it to a time
                backlog=limits.backlog,
                proxy_headers=bool(settings.trusted_proxy),
                forwarded_allow_ips=settings.trusted_proxy,
                ws=StreamProtocol,
                ws_max_size=settings.max_body_bytes,
                ws_per_message_deflate=False,
                ws_ping_interval=settings.stream_ping_s,
                # A client that waits for nothing need not read, so it may not answer pings. They still let TCP detect
                # a lost connection, since TCP needs data to be acknowledged.
                ws_ping_timeout=None,
            )
        )
        self.server_state = LimitedServerState(limits, app.state.host.bodies)
        self._limits = limits
        self._host = app.state.host
        self._drain_s = settings.drain_s
        self._announce = announce
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen, then announce the address."""
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        if self.started and not self.should_exit:
            self._announce(self.url)

    async def on_tick(self, counter: int) -> bool:
        """End overdue connections every ``TICKS`` ticks."""
        if counter % TICKS == 0:
            self._limits.end_overdue(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @property
    def url(self) -> str:
        """The address that the server listens on, with the actual port."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; exit on the second one, or if the server has not started yet."""
        if self._draining is not None or not self.started:
            self.should_exit = True
            self.force_exit = self._draining is not None
            return
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._start_draining)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close; abort connections that are still open after ``CLOSE_S`` seconds, so that the event loop can end."""
        asyncio.get_running_loop().call_later(CLOSE_S, self._cut_off)
        await super().shutdown(sockets)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _start_draining(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._host.drain(self._drain_s)
        finally:
            self.should_exit = True


def logged_path(scope: Scope) -> str:
    """The request's path for the log: in ASCII, truncated, and with a shortened session id."""
    # Use the decoded path, as the routes do: in raw_path, the characters before the id may be percent-encoded.
    path = SESSION.sub(r"\1...", scope["path"].encode("unicode_escape").decode("ascii"))
    return path if len(path) <= MAX_PATH else path[:MAX_PATH] + "..."


class AccessLog:
    """Logs each response of ``app`` at level info: client, method, path, status and duration.

    A stream gets one line when it begins and one when it ends. Queries, headers and bodies are not logged. Session ids
    are shortened, because knowing the id grants access to the session.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log the response."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        client = (scope.get("client") or ("-",))[0]
        method = scope.get("method", "WEBSOCKET")
        status = 500

        def log(what: int | str) -> None:
            access_logger.info(
                "%s %s %s %s %.1f ms", client, method, logged_path(scope), what, 1e3 * (perf_counter() - begun)
            )

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


def serve(app: FastAPI, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    tune(settings.blas_threads)
    Server(app, settings, announce).run()
    if not app.state.host.ended(ENDING_S):
        # A kernel that cannot be interrupted would still run while the interpreter exits, and crash it.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
