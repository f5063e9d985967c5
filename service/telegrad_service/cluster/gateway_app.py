"""The application of a gateway: what it serves itself, and the gateway for all else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRouter
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.routing import Mount

from telegrad_engine.errors import ServerBusy
from telegrad_engine.session.memory_accounting import Accounts

from .. import __version__, problems
from ..catalogue.schemas import DevicePage
from ..database.database import Database, DatabaseUnavailable
from ..health.endpoints import Readiness, get_health
from ..http.origins import check_origins
from ..keys import endpoints as keys
from ..observability.ledger import Ledger
from ..observability.metrics import RequestCounts
from ..routing.dependencies import CurrentPrincipal
from ..routing.idempotency import IdempotencyKeys
from ..routing.pages import Paged
from ..routing.route import Route
from ..routing.route_table import RouteTable
from ..server import NotServed, announce, check_exposure, serve
from ..sessions.schemas import SessionPage
from ..tenants.authentication import Authentication
from ..tenants.authenticator import Authenticator
from ..usage.endpoints import Usage, get_metrics
from .directory import Directory, WorkerState
from .gateway import Gateway
from .gateway_metrics import GatewayCollector
from .listing import devices_page, sessions_page, usage_page
from .settings import GatewaySettings
from .tokens import Secrets
from .tunnel import TunnelProtocol

MAX_BODY_BYTES = 2**28
"""The bytes of bodies that a gateway reads itself, all together."""
POLL_S = 0.02
router = APIRouter(route_class=Route)


class GatewayProcess:
    """What the server asks of a session host, as far as a gateway has it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.ledger = Ledger()
        self._bodies = Accounts(MAX_BODY_BYTES)

    def bodies(self, tenant: str) -> Accounts:
        """The memory account of the bodies that the gateway reads itself."""
        return self._bodies

    async def drain(self, seconds: float) -> bool:
        """Refuse new requests, and wait until workers have answered what was asked, at most so many seconds.

        Streams end with the server, and their clients connect again.
        """
        self._gateway.draining = True
        deadline = time.monotonic() + seconds
        while self._gateway.proxy.waiting:
            if time.monotonic() > deadline:
                self._gateway.proxy.give_up()
                return False
            await asyncio.sleep(POLL_S)
        return True

    def ended(self, seconds: float) -> bool:
        """Whether nothing computes here."""
        return True


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


router.get("/healthz", operation_id="get_health", summary="Is the gateway alive?")(get_health)
router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Read the metrics",
    description="The metrics of this gateway. Those of programs and sessions are the workers'.",
    response_class=Response,
)(get_metrics)


@router.get("/readyz", operation_id="get_readiness", summary="Does the cluster take work?")
async def get_readiness(request: Request) -> Readiness:
    """503 while the gateway stops, without a worker that is ready, and while the directory is out of reach."""
    gateway = _gateway(request)
    if gateway.draining:
        raise ServerBusy("the gateway is about to stop")
    if not gateway.members.current:
        raise ServerBusy("the directory cannot be read")
    ready = [worker for worker in gateway.members.all if worker.state is WorkerState.READY]
    if not ready:
        raise ServerBusy("no worker is ready; `telegrad worker` starts one")
    return Readiness(
        status="ready",
        sessions=sum(worker.report.sessions for worker in ready),
        max_sessions=sum(worker.report.max_sessions for worker in ready),
    )


@router.get("/v1/sessions", operation_id="list_sessions", summary="List the sessions")
async def list_sessions(request: Request, principal: CurrentPrincipal, page: Paged) -> SessionPage:
    """The tenant's sessions on all workers, oldest first."""
    return await sessions_page(_gateway(request), principal, page)


@router.get("/v1/devices", operation_id="list_devices", summary="List the devices")
async def list_devices(request: Request, principal: CurrentPrincipal, page: Paged) -> DevicePage:
    """The possible values of `device` of a new session, on any worker, ordered by name."""
    return await devices_page(_gateway(request), principal, page)


@router.get("/v1/usage", operation_id="get_usage", summary="Read what was used")
async def get_usage(request: Request, principal: CurrentPrincipal, page: Paged) -> Usage:
    """What the tenant has used on all workers since they started; with `admin`, what every tenant has."""
    return await usage_page(_gateway(request), principal, page)


def _trusted(authorities: Path | None) -> ssl.SSLContext:
    """What verifies the certificates of workers. Raises NotServed if the file of authorities cannot be read."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise NotServed(f"the authorities of workers cannot be read from {authorities}: {error}") from error


def create_gateway(settings: GatewaySettings, database: Database) -> FastAPI:
    """Create the application of a gateway. The database must have been opened. Raises NotServed."""
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        redirect_slashes=False,
        openapi_url=None,  # a worker serves it
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    secrets = Secrets(database, settings.cluster_secret.get_secret_value())
    gateway = Gateway(Directory(database), secrets, settings.worker_timeout_s, _trusted(settings.worker_ca))
    app.state.settings, app.state.gateway = settings, gateway
    app.state.host = GatewayProcess(gateway)
    app.state.requests = RequestCounts()
    app.state.metrics = CollectorRegistry(auto_describe=False)
    app.state.metrics.register(GatewayCollector(gateway, app.state.requests))
    ProcessCollector(registry=app.state.metrics)
    app.state.idempotency_keys = IdempotencyKeys()
    app.state.authenticator = Authenticator(settings)
    problems.install(app)
    for each in (keys.router, router):
        app.include_router(each)
    app.state.routes = [route for each in (keys.router, router) for route in each.routes if isinstance(route, Route)]
    app.router.routes.append(Mount("/", app=gateway))
    app.add_middleware(RouteTable, routes=app.state.routes)
    app.add_middleware(Authentication, authenticator=app.state.authenticator)
    check_origins(app, settings)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = app.state.gateway
    with contextlib.suppress(ServerBusy):
        await gateway.members.look()
    tasks = [
        asyncio.create_task(gateway.members.look_forever()),
        asyncio.create_task(app.state.authenticator.watch_forever()),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await gateway.proxy.close()
        await asyncio.to_thread(app.state.authenticator.close)


def run_gateway(settings: GatewaySettings, what: str, workers: Future[None] | None = None) -> None:
    """Serve as a gateway until SIGINT or SIGTERM. Raises NotServed if the settings do not allow that.

    ``workers`` is done when there are workers. The gateway is announced, as ``what``, when it knows them.
    """
    try:
        database = Database(settings.database_url.get_secret_value())
        database.open()
    except DatabaseUnavailable as error:
        raise NotServed(str(error)) from None
    app = create_gateway(settings, database)
    check_exposure(app)

    async def announce_when_ready(url: str) -> None:
        if workers is not None:
            await asyncio.wrap_future(workers)
            with contextlib.suppress(ServerBusy):
                await app.state.gateway.members.look()
        announce(app, what, url)

    def listens(url: str) -> None:
        app.state.announcing = asyncio.get_running_loop().create_task(announce_when_ready(url))

    try:
        serve(app, settings, listens, TunnelProtocol)
    finally:
        database.close()
