"""``GET /v1/sessions/{session}/profile``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from ..http.media import JSON
from ..routing.dependencies import CurrentSession
from ..routing.route import Route
from . import service
from .schemas import Profile

router = APIRouter(prefix="/v1/sessions/{session}", tags=["profile"], route_class=Route)


@router.get("/profile", operation_id="get_profile", summary="Read a profile", response_model=Profile)
async def get_profile(
    handle: CurrentSession,
    events: Annotated[bool, Query(description="Whether the response has the ranges, besides their totals.")] = False,
) -> Response:
    """The running profile, or the last one.

    The instructions `start_profile` and `stop_profile` begin and end it; `begin_range` and `end_range` label parts.
    """
    return Response(await handle.call(service.read, events), media_type=JSON)
