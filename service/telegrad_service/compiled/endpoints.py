"""``GET /v1/sessions/{session}/compiled``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..dependencies import CurrentSession
from ..media import JSON
from ..routing import Route
from . import service
from .schemas import CompiledPrograms

router = APIRouter(prefix="/v1/sessions/{session}", tags=["profile"], route_class=Route)


@router.get(
    "/compiled",
    operation_id="get_compiled",
    summary="Read which programs run as one executable",
    response_model=CompiledPrograms,
)
async def get_compiled(handle: CurrentSession) -> Response:
    """How the remembered programs of a session ran: one instruction at a time, planned, or compiled if the session was
    created with `compile`. And why those that did not run in the quickest way did not."""
    return Response(await handle.call(service.read), media_type=JSON)
