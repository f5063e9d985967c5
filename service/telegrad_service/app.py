"""The application: routes, errors and the host behind them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI

from . import __version__, openapi, problems
from .autograd import endpoints as autograd
from .catalogue import endpoints as catalogue
from .compiled import endpoints as compiled
from .functions import endpoints as functions
from .graph import endpoints as graph
from .health import endpoints as health
from .host import InProcessHost, SessionHost
from .ops import endpoints as ops
from .pending import endpoints as pending
from .profile import endpoints as profile
from .programs import endpoints as programs
from .sessions import endpoints as sessions
from .settings import Settings
from .tensors import endpoints as tensors

logger = logging.getLogger(__name__)
EXPIRY_PERIOD_S = 5.0
# Routes are tried in this order, and a training loop asks for programs alone.
RESOURCES = (
    programs, sessions, tensors, ops, functions, autograd, pending, graph, profile, compiled, catalogue, health,
)  # fmt: skip
ROUTERS = [resource.router for resource in RESOURCES]


def create_app(settings: Settings | None = None, host: SessionHost | None = None) -> FastAPI:
    """An app with its own host: sessions in this process unless told otherwise."""
    settings = settings or Settings()
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        summary="Gradients over the wire",
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.host = host or InProcessHost(settings)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    openapi.install(app, ROUTERS)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    host: SessionHost = app.state.host
    period = min(EXPIRY_PERIOD_S, app.state.settings.pending_timeout_s)
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
