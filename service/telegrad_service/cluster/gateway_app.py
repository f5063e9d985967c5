"""The application of a gateway: console, health checks, keys, metrics, and lists from several workers.

All other requests go to :class:`Gateway`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import FastAPI, Response
from fastapi.routing import APIRouter
from prometheus_client.core import Metric
from starlette.routing import Mount

from telegrad_engine.errors import ServerBusy

from .. import __version__, console
from ..database import Database
from ..observability.logs import CommandFailed
from ..observability.metrics import RequestCounts, build_info, counter, gauge, request_counter
from ..resources import keys
from ..resources.catalogue import DeviceEntry, DevicePage
from ..resources.sessions import UNLOADED, Session, SessionPage
from ..resources.status import (
    Readiness,
    TenantUsage,
    Usage,
    WorkerEntry,
    WorkerPage,
    get_health,
    get_metrics,
)
from ..routing.dependencies import CurrentPrincipal, found
from ..routing.route import Route
from ..routing.schemas import Paged
from ..server import NotServed, announce, assemble, check_exposure, serve
from ..settings import GatewaySettings
from .connection import TunnelProtocol
from .directory import Directory, Worker, WorkerState, guarded
from .gateway import Gateway
from .tokens import Secrets

ALL = "?limit=1000"
"""The query for a whole list in one page: a worker has fewer sessions of one tenant."""
SUMMED = sorted(name for name in TenantUsage.model_fields if name != "tenant")
router = APIRouter(route_class=Route)


CurrentGateway = Annotated[Gateway, found(lambda request: request.app.state.host)]
router.get("/healthz")(get_health)
router.get("/metrics", response_class=Response)(get_metrics)


@router.get("/readyz")
async def get_readiness(gateway: CurrentGateway) -> Readiness:
    """503 while the gateway stops, without a ready worker, and while the directory cannot be read."""
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


@router.get("/v1/sessions")
async def list_sessions(gateway: CurrentGateway, principal: CurrentPrincipal, page: Paged) -> SessionPage:
    """The tenant's sessions. Those whose worker does not answer are described as they were created, and unloaded."""
    placed = await guarded(gateway.directory.sessions, principal.tenant)
    found, following = page.of("sessions", placed, lambda each: each.number)
    workers = {each.worker for each in found if each.worker is not None}
    current: dict[str, Any] = {}
    for answer in await gateway.ask(principal, f"/v1/sessions{ALL}", workers) if workers else ():
        current |= {item["id"]: item for item in answer["items"]}
    # A worker of an earlier version does not tell all members.
    items = [
        Session(**UNLOADED | current.get(each.id, {**each.description, "state": "unloaded"}) | {"worker": each.worker})
        for each in found
    ]
    return SessionPage(items=items, next_cursor=following)


@router.get("/v1/devices")
async def list_devices(gateway: CurrentGateway, principal: CurrentPrincipal, page: Paged) -> DevicePage:
    """The devices that any worker has, in the order of their names."""
    answers = await gateway.ask(principal, f"/v1/devices{ALL}")
    devices = {item["name"]: item for answer in answers for item in answer["items"]}
    found, following = page.of("devices", sorted(devices), str)
    return DevicePage(items=[DeviceEntry(**devices[name]) for name in found], next_cursor=following)


@router.get("/v1/usage")
async def get_usage(gateway: CurrentGateway, principal: CurrentPrincipal, page: Paged) -> Usage:
    """What tenants have used on all workers, in the order of their names."""
    answers = await gateway.ask(principal, f"/v1/usage{ALL}")
    totals: defaultdict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(SUMMED, 0))
    for answer in answers:
        for item in answer["items"]:
            total = totals[item["tenant"] or ""]
            for name in SUMMED:
                total[name] += item[name]
    found, following = page.of("usage", sorted(totals), str)
    items = [TenantUsage(tenant=name or None, **totals[name]) for name in found]
    since = min((answer["since"] for answer in answers), default=datetime.now(UTC))
    return Usage(since=since, items=items, next_cursor=following)


@router.get("/v1/workers")
async def list_workers(gateway: CurrentGateway, principal: CurrentPrincipal, page: Paged) -> WorkerPage:
    """The workers that are not dead, by name; those that do not answer, as they reported last."""
    answers = await gateway.ask(principal, f"/v1/workers{ALL}")
    current = {item["name"]: item for answer in answers for item in answer["items"]}
    workers = {worker.id: worker for worker in gateway.members.all}
    found, following = page.of("workers", sorted(workers), str)
    items = [_worker(workers[name], current.get(name)) for name in found]
    return WorkerPage(items=items, next_cursor=following)


def _worker(worker: Worker, current: Any) -> WorkerEntry:
    """The entry of a worker, with its own answer if there is one."""
    if current is not None:
        return WorkerEntry(**current | {"state": str(worker.state)})
    return WorkerEntry(
        name=worker.id,
        url=worker.url,
        state="unreachable",
        version=worker.version,
        sessions=worker.report.sessions,
        max_sessions=worker.report.max_sessions,
        device=", ".join(worker.devices),
        used_bytes=None,
    )


def gateway_metrics(gateway: Gateway, counts: RequestCounts) -> Iterator[Metric]:
    """Every metric of a gateway with its current value."""
    yield build_info(__version__, "gateway")
    yield request_counter(counts)
    yield counter("telegrad_problems", "Problem documents of the gateway itself, by slug.", counts.problems, ("slug",))
    states = Counter(str(worker.state) for worker in gateway.members.all)
    workers = {str(state): states[state] for state in (WorkerState.READY, WorkerState.DRAINING)}
    yield gauge("telegrad_workers", "Workers that are not dead, by state (ready, draining).", workers, ("state",))
    sessions = sum(worker.report.sessions for worker in gateway.members.all)
    for family, name, text, value in (
        (gauge, "telegrad_sessions", "Open sessions of all workers.", sessions),
        (gauge, "telegrad_gateway_streams", "Streams that pass through this gateway.", gateway.proxy.streams),
        (gauge, "telegrad_gateway_under_way", "Requests that wait for a worker's answer.", gateway.proxy.waiting),
        (counter, "telegrad_gateway_repeats", "Requests that were sent to a worker again.", gateway.repeats),
        (counter, "telegrad_gateway_moves", "Sessions that this gateway gave to other workers.", gateway.moves),
        (counter, "telegrad_gateway_deaths", "Workers that this gateway declared dead.", gateway.members.deaths),
    ):
        yield family(name, text, value)


def create_gateway(settings: GatewaySettings, database: Database) -> FastAPI:
    """Create the application of a gateway. The database must be open. Raises NotServed."""
    app = FastAPI(
        title="Telegrad",
        version=__version__,
        redirect_slashes=False,
        openapi_url=None,  # a worker serves it
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    try:
        tls = ssl.create_default_context(cafile=settings.worker_ca)
    except OSError as error:
        text = f"the authorities of workers cannot be read from {settings.worker_ca}: {error}"
        raise NotServed(text) from error
    secrets = Secrets(database, settings.cluster_secret.get_secret_value())
    gateway = Gateway(Directory(database), secrets, settings.worker_timeout_s, tls)
    assemble(app, settings, gateway, [keys.router, router, console.router], gateway_metrics)
    app.router.routes.append(Mount("/", app=gateway))
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = app.state.host
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
        gateway.proxy.cut()
        await asyncio.to_thread(app.state.authenticator.close)


def run_gateway(settings: GatewaySettings, what: str, workers: Future[None] | None = None) -> None:
    """Serve as a gateway until SIGINT or SIGTERM. Raises CommandFailed if settings or database do not allow that.

    ``what`` announces the gateway. ``workers`` is done when the workers serve: the gateway is announced then, and it
    stops if they fail.
    """
    database = Database(settings.database_url.get_secret_value())
    database.open()
    app = create_gateway(settings, database)
    check_exposure(app)

    async def announce_when_ready(url: str) -> None:
        if workers is not None:
            try:
                await asyncio.wrap_future(workers)
            except CommandFailed:
                signal.raise_signal(signal.SIGTERM)
                return
            with contextlib.suppress(ServerBusy):
                await app.state.host.members.look()
        announce(app, what, url)

    def listens(url: str) -> None:
        app.state.announcing = asyncio.get_running_loop().create_task(announce_when_ready(url))

    try:
        serve(app, settings, listens, TunnelProtocol)
        if workers is not None and workers.done():
            workers.result()
    finally:
        database.close()
