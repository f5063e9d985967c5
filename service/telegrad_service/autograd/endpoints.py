"""``/v1/sessions/{session}/backward``, ``…/grad`` and ``…/pending``: backward passes that wait for the client."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from ..hosting.session_handle import SessionHandle
from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.pages import Paged
from ..routing.route import Route
from . import service
from .schemas import (
    BackwardArguments,
    BackwardResult,
    GradArguments,
    GradResult,
    PendingCall,
    PendingPage,
    ResumeArguments,
    ResumeResult,
)

router = APIRouter(prefix="/v1/sessions/{session}", tags=["autograd"], route_class=Route)
WAITS = "The pass waits for the client; `pending` says for what."
Call = Annotated[str, Path(description="The call's id.", examples=["call1"])]


def _answered(handle: SessionHandle, waits_for: str | None, answer: bytes) -> Response:
    """The response to a request about a pass that is done, or waits for a call."""
    if waits_for is None:
        return Response(answer, media_type=JSON)
    return Response(answer, 202, {"location": f"/v1/sessions/{handle.id}/pending/{waits_for}"}, media_type=JSON)


@router.post(
    "/backward",
    summary="Accumulate gradients",
    response_model=BackwardResult,
    responses={202: {"model": BackwardResult, "description": WAITS}},
)
async def backward(handle: CurrentSession, body: BackwardArguments) -> Response:
    """Gradients are added to those of the leaves; `GET …/tensors/{id}/grad` reads them.

    The graph is freed, unless `retain_graph` or `create_graph` is true.
    """
    return _answered(handle, *await handle.call(service.backward, body))


@router.post(
    "/grad",
    summary="Compute gradients",
    response_model=GradResult,
    responses={202: {"model": GradResult, "description": WAITS}},
)
async def grad(
    handle: CurrentSession,
    settings: ServerSettings,
    body: GradArguments,
    data: WithData = True,
) -> Response:
    """The gradients of `outputs` with respect to `inputs`, as new tensors. Existing `.grad` values are unchanged."""
    return _answered(handle, *await handle.call(service.grad, body, data, settings.max_json_elements))


@router.get("/pending", summary="List the calls that passes wait for")
async def list_pending(handle: CurrentSession, page: Paged) -> PendingPage:
    """Calls of functions and hooks that the client evaluates."""
    return await handle.call(service.page, page)


@router.get("/pending/{call}", summary="Read a call")
async def get_pending(handle: CurrentSession, call: Call) -> PendingCall:
    """The call that a backward pass waits for."""
    return await handle.call(service.find, call)


@router.post(
    "/pending/{call}/resume",
    summary="Resume a pass",
    response_model=ResumeResult,
    responses={202: {"model": ResumeResult, "description": "The pass waits again."}},
)
async def resume(
    handle: CurrentSession,
    settings: ServerSettings,
    call: Call,
    body: ResumeArguments,
    data: WithData = True,
) -> Response:
    """The pass continues with the client's results. If they do not fit, it still waits."""
    elements = settings.max_json_elements
    return _answered(handle, *await handle.call(service.resume, call, body.gradients, data, elements))


@router.delete("/pending/{call}", summary="Cancel a pass", status_code=204)
async def cancel_pending(handle: CurrentSession, call: Call) -> Response:
    """Gradients that the pass has accumulated stay, as after an error."""
    await handle.call(service.cancel, call)
    return Response(status_code=204)
