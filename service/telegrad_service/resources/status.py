"""``/healthz``, ``/readyz``, ``/metrics``, ``/v1/usage`` and ``/v1/workers``, for operators."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from prometheus_client.core import Metric
from pydantic import Field

from telegrad_engine.arrays import available
from telegrad_engine.errors import ServerBusy

from .. import __version__
from ..hosting.host import SessionHost
from ..observability.metrics import (
    CONTENT_TYPES,
    OPENMETRICS,
    TEXT,
    RequestCounts,
    TenantTotals,
    build_info,
    counter,
    gauge,
    histogram,
    render,
    request_counter,
)
from ..routing.dependencies import Accepted, CurrentPrincipal, Host, ServerSettings
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, Page, Paged

OCCUPIED_S = 5.0
"""The server is not ready if every thread has run the same work for this many seconds."""
router = APIRouter(route_class=Route)


class Health(Answer):
    """The server answers."""

    status: Literal["ok"]
    version: str = Field(description="The server's version.", examples=["0.1.0"])


class Readiness(Answer):
    """The server accepts work."""

    status: Literal["ready"]
    sessions: int = Field(description="The number of sessions.", examples=[1])
    max_sessions: int = Field(description="The most sessions that it holds.", examples=[256])


@router.get("/healthz", tags=["health"], summary="Is the server alive?")
async def get_health() -> Health:
    """Answers as long as the process does, also while sessions compute."""
    return Health(status="ok", version=__version__)


@router.get("/readyz", tags=["health"], summary="Does the server take work?")
async def get_readiness(host: Host, settings: ServerSettings) -> Readiness:
    """503 while the server drains before it stops, and while long programs have taken all of its threads."""
    if host.draining:
        raise ServerBusy("the server is about to stop and takes no more work")
    if host.workers.occupied(OCCUPIED_S):
        raise ServerBusy("long programs have taken all of the server's threads")
    return Readiness(status="ready", sessions=len(host.sessions()), max_sessions=settings.max_sessions)


SCRAPED: dict[str, Any] = {"schema": {"type": "string"}, "example": "telegrad_sessions 1.0\n"}


class TenantUsage(Answer):
    """What one tenant has used since the server started."""

    tenant: str | None = Field(
        description="Its name; null for all tenants together that came after the first 1,000.", examples=["local"]
    )
    sessions: int = Field(description="The number of its open sessions.", examples=[1])
    sessions_created: int = Field(description="The number of sessions that it created.", examples=[3])
    requests: int = Field(description="The number of its requests; a stream counts as one.", examples=[120])
    programs: int = Field(description="The number of programs that ran.", examples=[2000])
    instructions: int = Field(description="The number of instructions that ran.", examples=[24_000])
    seconds: float = Field(description="The seconds that its programs took.", examples=[1.25])
    received_bytes: int = Field(description="Bytes of request bodies and of messages on streams.", examples=[1_000_000])
    sent_bytes: int = Field(description="Bytes of response bodies and of messages on streams.", examples=[500_000])
    tensor_bytes: int = Field(description="Bytes of tensors and graphs that its sessions hold now.", examples=[4096])


class Usage(Page[TenantUsage]):
    """What tenants have used, in the order of their names."""

    since: datetime = Field(description="When the server started to count.", examples=["2026-01-01T12:00:00Z"])


@router.get("/v1/usage", tags=["usage"], summary="Read what was used")
async def get_usage(host: Host, principal: CurrentPrincipal, page: Paged) -> Usage:
    """What the tenant has used since the server started; with the scope `admin`, what every tenant has used."""
    tenant = None if "admin" in principal.scopes else principal.tenant
    totals = host.ledger.totals(tenant)
    if tenant is not None:
        totals.setdefault(tenant, TenantTotals())
    # The tenants that are counted together come first, before any cursor.
    names, following = page.of("usage", sorted(name or "" for name in totals), str)
    sessions = Counter(handle.tenant for handle in host.sessions(tenant))
    items = [_usage(name or None, sessions[name], totals[name or None]) for name in names]
    return Usage(since=datetime.fromtimestamp(host.ledger.since, UTC), items=items, next_cursor=following)


class WorkerEntry(Answer):
    """A process that has sessions."""

    name: str = Field(description="The worker's id; `server` for a server without workers.", examples=["server"])
    url: str | None = Field(
        description="Its address; null for a server without workers. Clients may not be able to reach it.",
        examples=[None],
    )
    state: Literal["ready", "draining", "unreachable"] = Field(
        description="`draining`: it takes no new sessions. `unreachable`: it does not answer the gateway now."
    )
    version: str = Field(description="The version of Telegrad that it runs.", examples=["0.1.0"])
    sessions: int = Field(description="The number of its sessions, of all tenants.", examples=[1])
    max_sessions: int = Field(description="The most sessions that it holds.", examples=[256])
    device: str = Field(description="Its devices, separated by commas.", examples=["cpu"])
    used_bytes: int | None = Field(
        description="The bytes of the tensors of all sessions; null if it does not answer.", examples=[4096]
    )


class WorkerPage(Page[WorkerEntry]):
    """Workers by name."""


@router.get("/v1/workers", tags=["usage"], summary="List the workers")
async def list_workers(host: Host, settings: ServerSettings, page: Paged) -> WorkerPage:
    """The workers of the cluster; a server without workers is its own."""
    devices = await asyncio.to_thread(available)
    own = WorkerEntry(
        name=host.worker_id or "server",
        url=host.url,
        state="draining" if host.draining else "ready",
        version=__version__,
        sessions=len(host.sessions()),
        max_sessions=settings.max_sessions,
        device=", ".join(sorted(device.name for device in devices)),
        used_bytes=sum(handle.used_bytes for handle in host.sessions()),
    )
    found, following = page.of("workers", [own], attrgetter("name"))
    return WorkerPage(items=found, next_cursor=following)


def _usage(tenant: str | None, sessions: int, totals: TenantTotals) -> TenantUsage:
    same = ("sessions_created", "requests", "programs", "instructions", "seconds", "tensor_bytes")
    return TenantUsage(
        tenant=tenant,
        sessions=sessions,
        received_bytes=totals.received + totals.stream_received,
        sent_bytes=totals.sent + totals.stream_sent,
        **{name: getattr(totals, name) for name in same},
    )


@router.get(
    "/metrics",
    tags=["usage"],
    summary="Read the metrics",
    response_class=Response,
    responses={200: {"description": "The metrics.", "content": {TEXT: SCRAPED, OPENMETRICS: SCRAPED}}},
)
@route_options(writes=(TEXT, OPENMETRICS))
async def get_metrics(request: Request, accepted: Accepted) -> Response:
    """The metrics of the server for Prometheus, as text or as OpenMetrics; docs/reference/metrics.md lists them."""
    collected = [*request.app.state.metrics.collect()]
    body = await asyncio.to_thread(render, collected, accepted)
    return Response(body, headers={"content-type": CONTENT_TYPES[accepted], "cache-control": "no-store"})


def server_metrics(host: SessionHost, counts: RequestCounts) -> Iterator[Metric]:
    """Every metric of a server with its current value."""
    ledger, workers, cached, sessions = host.ledger, host.workers, host.programs, host.sessions()
    total = ledger.total()
    programs, families = total.statistics.programs, total.statistics.families
    yield build_info(__version__, "server")
    yield request_counter(counts)
    yield histogram(
        "telegrad_http_request_duration_seconds",
        "Seconds from the headers of a request to the end of its answer, by route and method; not of streams.",
        {key: (buckets, counts.seconds[key]) for key, buckets in counts.buckets.items()},
        ("route", "method"),
    )
    yield histogram(
        "telegrad_program_duration_seconds",
        "Seconds that programs took in their sessions, by source (http, stream) and tier (interpreted, planned).",
        {key: (each.buckets, each.seconds) for key, each in programs.items()},
        ("source", "tier"),
    )
    instructions = {key: each.instructions for key, each in programs.items()}
    text = "Instructions of programs, by source and tier."
    yield counter("telegrad_program_instructions", text, instructions, ("source", "tier"))
    text = "Instructions by family: of an op (math, shape, linalg, nn, random), the verb's name, or function."
    yield counter("telegrad_instructions", text, families, ("family",))
    text = "Problem documents that were sent, by slug."
    yield counter("telegrad_problems", text, counts.problems + total.problems, ("slug",))
    text = "Bytes of request bodies (http) and of messages (stream), as received."
    received = {"http": counts.received, "stream": total.stream_received}
    yield counter("telegrad_received_bytes", text, received, ("source",))
    text = "Bytes of response bodies (http) and of messages (stream), as sent."
    sent = {"http": counts.sent, "stream": total.stream_sent}
    yield counter("telegrad_sent_bytes", text, sent, ("source",))
    text = "Sessions that ended, by reason (deleted, expired, moved)."
    yield counter("telegrad_sessions_ended", text, ledger.ended, ("reason",))
    text = "Programs that were named by their digest, by result (hit, miss)."
    lookups = {"hit": cached.hits, "miss": cached.misses}
    yield counter("telegrad_cached_program_lookups", text, lookups, ("result",))
    yield counter("telegrad_sessions_created", "Sessions that were created.", ledger.created)
    listeners = sum(len(handle.feed.listeners) for handle in sessions)
    waiting = sum(handle.actor.waiting for handle in sessions)
    accounted = host.quotas.memory.used
    for name, text, value in (
        ("telegrad_tensor_bytes", "Bytes of the tensors and graphs of all sessions.", total.tensor_bytes),
        ("telegrad_answer_bytes", "Bytes of answers recorded for repetitions.", total.answer_bytes),
        ("telegrad_sessions", "Open sessions.", len(sessions)),
        ("telegrad_streams", "Open streams.", sum(len(handle.streams) for handle in sessions)),
        ("telegrad_event_listeners", "Clients that listen to the events of a session.", listeners),
        ("telegrad_threads", "Threads that compute.", workers.count),
        ("telegrad_busy_threads", "Threads that run a program now.", workers.busy_count),
        ("telegrad_backlog_calls", "Calls that wait for a free thread.", workers.backlog),
        ("telegrad_waiting_calls", "Calls that wait for an earlier call of their session.", waiting),
        ("telegrad_accounted_bytes", "Bytes that count towards max_process_bytes: sessions and bodies.", accounted),
        ("telegrad_body_bytes", "Bytes reserved for bodies that are read or answered.", host.quotas.body_bytes),
        ("telegrad_cached_programs", "Remembered programs.", len(cached)),
        ("telegrad_cached_program_bytes", "Bytes of remembered programs, estimated.", cached.nbytes),
    ):
        yield gauge(name, text, value)
