"""The FastAPI application: routes, error handlers and the session host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_standalone_docs import StandaloneDocs
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import WebSocketRoute

from . import __version__, openapi, problems
from .autograd import endpoints as autograd
from .catalogue import endpoints as catalogue
from .functions import endpoints as functions
from .graph import endpoints as graph
from .health import endpoints as health
from .hosting.host import InProcessHost, SessionHost
from .http.origins import OriginCheck
from .ops import endpoints as ops
from .profile import endpoints as profile
from .programs import endpoints as programs
from .sessions import endpoints as sessions
from .settings import Settings
from .tensors import endpoints as tensors

logger = logging.getLogger(__name__)
EXPIRY_PERIOD_S = 5.0
EXPOSED = ("Location", "Retry-After", "Content-Encoding")
"""Response headers that pages of other origins may read, in addition to the CORS-safelisted ones."""
# Routes are tried in this order; programs come first, since a training loop requests only them.
RESOURCES = (programs, sessions, tensors, ops, functions, autograd, graph, profile, catalogue, health)
ROUTERS = [resource.router for resource in RESOURCES]


def create_app(settings: Settings | None = None, host: SessionHost | None = None) -> FastAPI:
    """Create an app with its own session host, by default one that keeps sessions in this process."""
    settings = settings or Settings()
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        summary="Gradients over the wire",
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        license_info=openapi.LICENSE,
        servers=openapi.SERVERS,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.host = host or InProcessHost(settings)
    app.state.routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    openapi.install(app, ROUTERS)
    _check_origins(app, settings)
    app.router.routes.append(WebSocketRoute("/{path:path}", problems.refuse_stream))
    StandaloneDocs(app)  # /docs and /redoc with assets from the package, not from a CDN
    return app


def _check_origins(app: FastAPI, settings: Settings) -> None:
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


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    host: SessionHost = app.state.host
    settings: Settings = app.state.settings
    period = min(EXPIRY_PERIOD_S, settings.pending_timeout_s, settings.heartbeat_ttl_s)
    expiry = asyncio.create_task(_expire_forever(host, period))
    try:
        yield
    finally:
        expiry.cancel()
        await host.drain(app.state.settings.drain_s)
        await host.close()


async def _expire_forever(host: SessionHost, period: float) -> None:
    while True:
        await asyncio.sleep(period)
        try:
            await host.expire()
        except Exception:
            logger.exception("looking for expired sessions failed")
