"""Lists whose items are on several workers, put together by a gateway."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from ..catalogue.schemas import DeviceEntry, DevicePage
from ..routing.pages import PageRequest
from ..sessions.schemas import Session, SessionPage
from ..tenants.principal import Principal
from ..usage.endpoints import TenantUsage, Usage
from .directory import guarded
from .gateway import Gateway

ALL = "?limit=1000"
"""One page of whatever a worker lists: it has fewer sessions of one tenant than that."""
SUMMED = sorted(name for name in TenantUsage.model_fields if name != "tenant")


async def sessions_page(gateway: Gateway, principal: Principal, request: PageRequest) -> SessionPage:
    """A page of a tenant's sessions, as their workers describe them; as they were created, if these do not answer."""
    placed = await guarded(gateway.directory.sessions, principal.tenant)
    found, following = request.of("sessions", placed, lambda each: each.number)
    workers = {each.worker for each in found if each.worker is not None}
    current: dict[str, Any] = {}
    for answer in await gateway.ask(principal, f"/v1/sessions{ALL}", workers) if workers else ():
        current |= {item["id"]: item for item in answer["items"]}
    items = [Session(**current.get(each.id, each.description)) for each in found]
    return SessionPage(items=items, next_cursor=following)


async def devices_page(gateway: Gateway, principal: Principal, request: PageRequest) -> DevicePage:
    """A page of the devices that any worker has, in the order of their names."""
    answers = await gateway.ask(principal, f"/v1/devices{ALL}")
    devices = {item["name"]: item for answer in answers for item in answer["items"]}
    found, following = request.of("devices", sorted(devices), str)
    return DevicePage(items=[DeviceEntry(**devices[name]) for name in found], next_cursor=following)


async def usage_page(gateway: Gateway, principal: Principal, request: PageRequest) -> Usage:
    """A page of what tenants have used on all workers, in the order of their names."""
    answers = await gateway.ask(principal, f"/v1/usage{ALL}")
    totals: defaultdict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(SUMMED, 0))
    for answer in answers:
        for item in answer["items"]:
            total = totals[item["tenant"] or ""]
            for name in SUMMED:
                total[name] += item[name]
    found, following = request.of("usage", sorted(totals), str)
    items = [TenantUsage(tenant=name or None, **totals[name]) for name in found]
    since = min((answer["since"] for answer in answers), default=datetime.now(UTC))
    return Usage(since=since, items=items, next_cursor=following)
