"""``GET /v1/usage`` and ``GET /metrics``."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from ..hosting.host import SessionHost
from ..observability.ledger import Totals
from ..observability.metrics import CONTENT_TYPES, OPENMETRICS, TEXT, render
from ..routing.dependencies import Accepted, CurrentPrincipal, Host
from ..routing.pages import Page, Paged, PageRequest
from ..routing.route import Route, route_options
from ..routing.schemas import Answer

router = APIRouter(tags=["usage"], route_class=Route)
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


def page(host: SessionHost, tenant: str | None, request: PageRequest) -> Usage:
    """A page of what each tenant, or one, has used, in the order of their names."""
    totals = host.ledger.totals(tenant)
    if tenant is not None:
        totals.setdefault(tenant, Totals())
    # The tenants that are counted together come first, before any cursor.
    names, following = request.of("usage", sorted(name or "" for name in totals), str)
    sessions = Counter(handle.tenant for handle in host.sessions(tenant))
    items = [_usage(name or None, sessions[name], totals[name or None]) for name in names]
    return Usage(since=datetime.fromtimestamp(host.ledger.since, UTC), items=items, next_cursor=following)


def _usage(tenant: str | None, sessions: int, totals: Totals) -> TenantUsage:
    same = ("sessions_created", "requests", "programs", "instructions", "seconds", "tensor_bytes")
    return TenantUsage(
        tenant=tenant,
        sessions=sessions,
        received_bytes=totals.received + totals.stream_received,
        sent_bytes=totals.sent + totals.stream_sent,
        **{name: getattr(totals, name) for name in same},
    )


@router.get("/v1/usage", summary="Read what was used")
async def get_usage(host: Host, principal: CurrentPrincipal, request: Paged) -> Usage:
    """What the tenant has used since the server started; with the scope `admin`, what every tenant has used."""
    return page(host, None if "admin" in principal.scopes else principal.tenant, request)


@router.get(
    "/metrics",
    summary="Read the metrics",
    response_class=Response,
    responses={200: {"description": "The metrics.", "content": {TEXT: SCRAPED, OPENMETRICS: SCRAPED}}},
)
@route_options(writes=(TEXT, OPENMETRICS))
async def get_metrics(request: Request, accepted: Accepted) -> Response:
    """The metrics of the server for Prometheus, as text or as OpenMetrics; docs/observability.md lists them."""
    collected = [*request.app.state.metrics.collect()]
    body = await asyncio.to_thread(render, collected, accepted)
    return Response(body, headers={"content-type": CONTENT_TYPES[accepted], "cache-control": "no-store"})
