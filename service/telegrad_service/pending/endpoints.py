"""``/v1/sessions/{session}/pending``: passes that wait for the client, and ``…/{call}/resume``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.route import Route
from . import service
from .schemas import EXAMPLES, PendingCall, PendingPage, ResumeArguments, ResumeResult

router = APIRouter(prefix="/v1/sessions/{session}/pending", tags=["autograd"], route_class=Route)
Call = Annotated[str, Path(description="The call's id.", examples=["call1"])]


@router.get("", operation_id="list_pending", summary="List the calls that passes wait for", response_model=PendingPage)
async def list_pending(handle: CurrentSession) -> PendingPage:
    """Calls of functions and hooks that the client evaluates."""
    return await handle.call(service.page)


@router.get("/{call}", operation_id="get_pending", summary="Read a call", response_model=PendingCall)
async def get_pending(handle: CurrentSession, call: Call) -> PendingCall:
    """The call that a backward pass waits for."""
    return await handle.call(service.find, call)


@router.post(
    "/{call}/resume",
    operation_id="resume",
    summary="Resume a pass",
    response_model=ResumeResult,
    responses={202: {"model": ResumeResult, "description": "The pass waits again."}},
)
async def resume(
    handle: CurrentSession,
    settings: ServerSettings,
    call: Call,
    body: Annotated[ResumeArguments, Body(openapi_examples=EXAMPLES)],
    data: WithData = True,
) -> Response:
    """The pass continues with the client's results. If they do not fit, it still waits."""
    waits, answer = await handle.call(service.resume, call, body.gradients, data, settings.max_json_elements)
    return Response(answer, 202 if waits else 200, media_type=JSON)


@router.delete("/{call}", operation_id="cancel_pending", summary="Cancel a pass", status_code=204)
async def cancel_pending(handle: CurrentSession, call: Call) -> Response:
    """Gradients that the pass has accumulated stay, as after an error."""
    await handle.call(service.cancel, call)
    return Response(status_code=204)
