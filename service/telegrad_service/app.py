"""The FastAPI application: routes, error handlers and the session host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi_standalone_docs import StandaloneDocs
from starlette.routing import WebSocketRoute

from . import __version__, asyncapi, console, problems
from .hosting.host import SessionHost
from .openapi import LICENSE, SERVERS, TAGS, TEXTS, install
from .resources import autograd, catalogue, functions, graph, inspection, keys, programs, sessions, status, tensors
from .server import assemble
from .settings import Settings

logger = logging.getLogger(__name__)
EXPIRY_PERIOD_S = 5.0
# Routes are tried in this order; programs come first, since a training loop requests only them.
ROUTERS = (
    programs.router,
    sessions.snapshots_router,
    sessions.router,
    tensors.router,
    tensors.ops_router,
    functions.router,
    functions.procedures_router,
    autograd.router,
    graph.router,
    inspection.router,
    catalogue.router,
    keys.router,
    status.router,
    console.router,
)


def create_app(settings: Settings | None = None, host: SessionHost | None = None) -> FastAPI:
    """Create an app with its own session host, by default one that keeps sessions in this process."""
    settings = settings or Settings()
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        summary="Gradients over the wire",
        description=TEXTS["description"],
        openapi_tags=TAGS,
        license_info=LICENSE,
        servers=SERVERS,
        redirect_slashes=False,
        lifespan=_lifespan,
        # FastAPI's own spans have the whole path, and so the ids of sessions; observability/tracing.py makes ours.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    assemble(app, settings, host or SessionHost(settings), ROUTERS, status.server_metrics)
    install(app)
    asyncapi.install(app)
    app.router.routes.append(WebSocketRoute("/{path:path}", problems.refuse_stream))
    StandaloneDocs(app)  # /docs and /redoc with assets from the package, not from a CDN
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    host: SessionHost = app.state.host
    settings: Settings = app.state.settings
    period = min(EXPIRY_PERIOD_S, settings.pending_timeout_s, settings.heartbeat_ttl_s, settings.unload_s)
    expiry = asyncio.create_task(_expire_forever(host, period))
    watch = asyncio.create_task(app.state.authenticator.watch_forever())
    try:
        yield
    finally:
        expiry.cancel()
        watch.cancel()
        await host.drain(app.state.settings.drain_s)
        await host.close()
        await asyncio.to_thread(app.state.authenticator.close)


async def _expire_forever(host: SessionHost, period: float) -> None:
    while True:
        await asyncio.sleep(period)
        try:
            await host.expire()
        except Exception:
            logger.exception("looking for expired sessions failed")
