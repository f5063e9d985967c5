"""``/v1/sessions/{session}/pending``: passes that wait for the client, and ``…/{call}/resume``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from ..dependencies import CurrentSession, ServerSettings
from ..media import JSON
from ..routing import Route
from . import service
from .schemas import EXAMPLES, PassAnswer, PendingCall, PendingPage, Resume

router = APIRouter(prefix="/v1/sessions/{session}/pending", tags=["autograd"], route_class=Route)
Call = Annotated[str, Path(description="id of the call", examples=["call1"])]


@router.get("", operation_id="list_pending", summary="What passes wait for", response_model=PendingPage)
async def list_pending(handle: CurrentSession) -> PendingPage:
    """Calls that the client is to evaluate: functions of its own, and hooks."""
    return await handle.call(service.page)


@router.get("/{call}", operation_id="get_pending", summary="One call", response_model=PendingCall)
async def get_pending(handle: CurrentSession, call: Call) -> PendingCall:
    """What a pass waits for."""
    return await handle.call(service.find, call)


@router.post(
    "/{call}/resume",
    operation_id="resume",
    summary="Go on with a pass",
    response_model=PassAnswer,
    responses={202: {"model": PassAnswer, "description": "The pass waits again"}},
)
async def resume(
    handle: CurrentSession,
    settings: ServerSettings,
    call: Call,
    body: Annotated[Resume, Body(openapi_examples=EXAMPLES)],
    data: Annotated[bool, Query(description="whether the outputs' `data` is filled")] = True,
) -> Response:
    """With what the client computed. Gradients that do not fit are refused, and the pass goes on waiting."""
    waits, answer = await handle.call(service.resume, call, body.gradients, data, settings.max_json_elements)
    return Response(answer, 202 if waits else 200, media_type=JSON)


@router.delete("/{call}", operation_id="cancel_pending", summary="Give up a pass", status_code=204)
async def cancel_pending(handle: CurrentSession, call: Call) -> Response:
    """What it has accumulated so far stays, as after an error."""
    await handle.call(service.cancel, call)
    return Response(status_code=204)
