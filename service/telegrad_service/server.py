"""Assembles the application of a server, a worker or a gateway, and serves it with uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from prometheus_client.core import Metric

from telegrad_engine.program.frames import is_loopback

from . import __version__, problems
from .http.http_protocol import HttpProtocol
from .http.limits import ConnectionLimits, LimitedServerState
from .http.origins import check_origins
from .observability import logs, tracing
from .observability.metrics import RequestCounts, registry_of
from .observability.watch import RequestWatch
from .process import shorten_pauses, tune
from .routing.idempotency import IdempotencyKeys
from .routing.route import Route, RouteTable
from .settings import NetworkSettings, Settings
from .streaming.websocket import StreamProtocol
from .tenants.authentication import Authentication, Authenticator

logger = logging.getLogger(__name__)
CLOSE_S = 5
"""Seconds that connections get to close after the last program has ended."""
ENDING_S = 1.0
"""Seconds that a computing thread gets to end after the server has closed."""
TICKS = 5
"""The number of uvicorn's ticks, ten per second, between two checks for slow clients."""
QUIET = {"info": "warning", "debug": "warning"}
"""uvicorn's log level where it differs from ours: uvicorn would log session ids and the contents of frames."""


class Server(uvicorn.Server):
    """A server that drains and then closes on the first signal, and closes at once on a second one by Ctrl-C.

    A second SIGTERM changes nothing: a supervisor may send several, and so may the end of standard input
    (``process.stop_after``).
    """

    def __init__(
        self,
        app: FastAPI,
        settings: NetworkSettings,
        announce: Callable[[str], None],
        streams: type[StreamProtocol] = StreamProtocol,
    ) -> None:
        limits, state = ConnectionLimits(settings), app.state
        super().__init__(
            uvicorn.Config(
                RequestWatch(app, state.requests, state.host.ledger, settings.log_level in QUIET),
                host=settings.host,
                port=settings.port,
                http=HttpProtocol,
                loop="uvloop" if sys.platform != "win32" else "auto",
                log_config=None,  # its records are logged as ours are
                log_level=QUIET.get(settings.log_level, settings.log_level),
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_S + 1,
                timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # uvicorn only adds it to a time
                backlog=limits.backlog,
                proxy_headers=bool(settings.trusted_proxy),
                forwarded_allow_ips=settings.trusted_proxy,
                ws=streams,
                ws_max_size=settings.max_body_bytes,
                ws_per_message_deflate=False,
                ws_ping_interval=settings.stream_ping_s,
                # A client that waits for nothing need not read, so it may not answer pings. They still let TCP detect
                # a lost connection, since TCP needs data to be acknowledged.
                ws_ping_timeout=None,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )
        self.server_state = LimitedServerState(limits, state.host.bodies, state.requests)
        self._limits = limits
        self._host = app.state.host
        self._drain_s = settings.drain_s
        self._announce = announce
        self._stopping = False
        """Whether a signal has asked the server to stop."""
        self._draining: Future[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen, then announce the address."""
        try:
            await super().startup(sockets=sockets)  # type: ignore[arg-type]
        except SystemExit:  # after uvicorn has logged why it cannot listen
            logger.error("choose another address with --port, where 0 is any free port, or with --host")
            raise
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
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; exit on a second SIGINT, or if the server has not started yet."""
        if not self.started:
            self.should_exit = True
            return
        if self._stopping:
            if sig == signal.SIGINT:
                self.should_exit = self.force_exit = True
            return
        self._stopping = True
        logs.announce(f"{signal.Signals(sig).name}: stopping; running programs get {self._drain_s:g} s to finish")
        self._draining = asyncio.run_coroutine_threadsafe(self._drain(), asyncio.get_running_loop())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close; abort connections that are still open after ``CLOSE_S`` seconds, so that the event loop can end."""
        asyncio.get_running_loop().call_later(CLOSE_S, self._cut_off)
        await super().shutdown(sockets)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _drain(self) -> None:
        try:
            await self._host.drain(self._drain_s)
        finally:
            self.should_exit = True


def assemble(
    app: FastAPI,
    settings: NetworkSettings,
    host: Any,
    routers: Sequence[APIRouter],
    metrics: Callable[[Any, RequestCounts], Iterator[Metric]],
) -> None:
    """Set the state, the routes and the middleware of an application, for a server or a gateway.

    ``host`` has the sessions, or forwards requests. ``metrics`` collects its metrics.
    """
    state = app.state
    state.settings, state.host = settings, host
    state.requests = RequestCounts()
    state.metrics = registry_of(partial(metrics, host, state.requests))
    state.idempotency_keys = IdempotencyKeys()
    state.authenticator = Authenticator(settings)
    state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    problems.install(app)
    for router in routers:
        app.include_router(router)
    app.add_middleware(RouteTable, routes=state.routes)
    app.add_middleware(Authentication, authenticator=state.authenticator)
    check_origins(app, settings)


class NotServed(logs.CommandFailed):
    """The settings do not allow the server to start; the text says what to change."""


def check_exposure(app: FastAPI) -> None:
    """Raise NotServed if anyone on the network could use the server, or if keys or certificate cannot be read."""
    settings: NetworkSettings = app.state.settings
    try:
        has_keys = app.state.authenticator.look_for_keys()
    except Exception as error:
        raise NotServed(f"API keys cannot be read: {error}") from error
    if settings.tls_cert is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as error:
            files = " and ".join(str(path) for path in (settings.tls_cert, settings.tls_key) if path is not None)
            raise NotServed(f"the certificate cannot be read from {files}: {error}") from error
    if not (has_keys or settings.insecure or is_loopback(settings.reached_at)):
        without = "has no API keys" if settings.require_keys is None else "requires no API keys (--no-require-keys)"
        raise NotServed(
            f"other machines can reach a server on {settings.reached_at}, and this one {without}, so it does not "
            "start. Create one with `telegrad keys create --tenant NAME`. Or pass --insecure to serve anyone who "
            "reaches the server, or --require-keys to refuse everyone until there is a key"
        )


def announce(app: FastAPI, what: str, url: str) -> None:
    """Tell the operator the address of a server or a gateway, and who may use it."""
    for line in (
        f"Telegrad {__version__} {what} {url}",
        f"Console at {url}/",
        f"Docs at {url}/docs",
        app.state.authenticator.policy,
    ):
        logs.announce(line)


def serve(
    app: FastAPI,
    settings: NetworkSettings,
    announce: Callable[[str], None],
    streams: type[StreamProtocol] = StreamProtocol,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    shorten_pauses()
    if isinstance(settings, Settings):  # a gateway computes nothing
        tune(settings.blas_threads)
    tracing.enable()
    try:
        Server(app, settings, announce, streams).run()
    finally:
        tracing.shut_down()
    if not app.state.host.ended(ENDING_S):
        # A kernel that cannot be interrupted, and runs while the interpreter exits, would crash it.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
