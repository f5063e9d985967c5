"""``GET /v1/sessions/{session}/compiled``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..http.media import JSON
from ..routing.dependencies import CurrentSession
from ..routing.route import Route
from . import service
from .schemas import CompiledPrograms

router = APIRouter(prefix="/v1/sessions/{session}", tags=["profile"], route_class=Route)


@router.get(
    "/compiled",
    operation_id="get_compiled",
    summary="List the recurring programs",
    response_model=CompiledPrograms,
)
async def get_compiled(handle: CurrentSession) -> Response:
    """How often each recurring program ran one instruction at a time, planned, or compiled, and why its last run did
    not use the fastest tier. Programs are compiled if the session was created with `compile`."""
    return Response(await handle.call(service.read), media_type=JSON)
