"""``/v1/ops`` and ``/v1/devices``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ..hosting.devices import DEVICES
from ..routing.dependencies import Host
from ..routing.route import Route
from . import service
from .schemas import DeviceEntry, DevicePage, OpKind, OpPage

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=Route)


@router.get("/ops", operation_id="list_ops", summary="List the ops and verbs")
async def list_ops(
    host: Host,
    prefix: Annotated[str | None, Query(description="Only those whose key starts with this.")] = None,
    q: Annotated[str | None, Query(description="Only those with this text in key, alias or documentation.")] = None,
    kind: Annotated[OpKind | None, Query(description="Only those of this kind.")] = None,
) -> OpPage:
    """Everything that an instruction of a program can be, ordered by key."""
    return OpPage(items=list(service.search(prefix, q, kind, host.library)))


@router.get("/ops/{op}", operation_id="get_op", summary="Describe an op or verb")
async def get_op(
    host: Host,
    op: Annotated[str, Path(description="A name, an alias or a key.", examples=["max"])],
) -> OpPage:
    """All overloads of a name, or the one that a key such as `max.dim` names."""
    return OpPage(items=service.find(op, host.library))


@router.get("/devices", operation_id="list_devices", summary="List the devices")
async def list_devices() -> DevicePage:
    """The possible values of `device` of a new session."""
    return DevicePage(items=[DeviceEntry(**device._asdict()) for device in DEVICES.values()])
