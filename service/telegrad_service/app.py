"""The FastAPI application: routes, error handlers and the session host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial

from fastapi import FastAPI
from fastapi_standalone_docs import StandaloneDocs
from starlette.routing import WebSocketRoute

from . import __version__, asyncapi, openapi, problems
from .autograd import endpoints as autograd
from .catalogue import endpoints as catalogue
from .events import endpoints as events
from .functions import endpoints as functions
from .graph import endpoints as graph
from .health import endpoints as health
from .hosting.host import SessionHost
from .http.origins import check_origins
from .keys import endpoints as keys
from .observability.metrics import RequestCounts, registry_of
from .ops import endpoints as ops
from .procedures import endpoints as procedures
from .profile import endpoints as profile
from .programs import endpoints as programs
from .routing.idempotency import IdempotencyKeys
from .routing.route import Route, RouteTable
from .sessions import endpoints as sessions
from .settings import Settings
from .snapshots import endpoints as snapshots
from .tenants.authentication import Authentication, Authenticator
from .tensors import endpoints as tensors
from .usage import endpoints as usage
from .usage.metrics import server_metrics

logger = logging.getLogger(__name__)
EXPIRY_PERIOD_S = 5.0
# Routes are tried in this order; programs come first, since a training loop requests only them.
RESOURCES = (
    programs,
    snapshots,
    sessions,
    tensors,
    ops,
    functions,
    procedures,
    autograd,
    graph,
    profile,
    events,
    catalogue,
    keys,
    health,
    usage,
)
ROUTERS = [resource.router for resource in RESOURCES]


def create_app(
    settings: Settings | None = None, host: SessionHost | None = None, authenticator: Authenticator | None = None
) -> FastAPI:
    """Create an app with its own session host, by default one that keeps sessions in this process."""
    settings = settings or Settings()
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        summary="Gradients over the wire",
        description=openapi.TEXTS["description"],
        openapi_tags=openapi.TAGS,
        license_info=openapi.LICENSE,
        servers=openapi.SERVERS,
        redirect_slashes=False,
        lifespan=_lifespan,
        # FastAPI's own spans have the whole path, and so the ids of sessions; observability/tracing.py makes ours.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings = settings
    app.state.host = host or SessionHost(settings)
    app.state.requests = RequestCounts()
    app.state.metrics = registry_of(partial(server_metrics, app.state.requests, app.state.host))
    app.state.idempotency_keys = IdempotencyKeys()
    app.state.authenticator = authenticator or Authenticator(settings)
    app.state.routes = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    openapi.install(app, ROUTERS)
    asyncapi.install(app)
    app.add_middleware(RouteTable, routes=app.state.routes)
    app.add_middleware(Authentication, authenticator=app.state.authenticator)
    check_origins(app, settings)
    app.router.routes.append(WebSocketRoute("/{path:path}", problems.refuse_stream))
    StandaloneDocs(app)  # /docs and /redoc with assets from the package, not from a CDN
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    host: SessionHost = app.state.host
    settings: Settings = app.state.settings
    period = min(EXPIRY_PERIOD_S, settings.pending_timeout_s, settings.heartbeat_ttl_s, settings.unload_s)
    expiry = asyncio.create_task(_expire_forever(host, period))
    authenticator: Authenticator = app.state.authenticator
    watch = asyncio.create_task(authenticator.watch_forever())
    try:
        yield
    finally:
        expiry.cancel()
        watch.cancel()
        await host.drain(app.state.settings.drain_s)
        await host.close()
        await asyncio.to_thread(authenticator.close)


async def _expire_forever(host: SessionHost, period: float) -> None:
    while True:
        await asyncio.sleep(period)
        try:
            await host.expire()
        except Exception:
            logger.exception("looking for expired sessions failed")
