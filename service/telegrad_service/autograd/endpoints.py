"""``POST /v1/sessions/{session}/backward`` and ``…/grad``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.route import Route
from . import service
from .schemas import BACKWARD_EXAMPLES, GRAD_EXAMPLES, BackwardArguments, BackwardResult, GradArguments, GradResult

router = APIRouter(prefix="/v1/sessions/{session}", tags=["autograd"], route_class=Route)
WAITS = "The pass waits for the client; `pending` says for what."


@router.post(
    "/backward",
    operation_id="backward",
    summary="Accumulate gradients",
    response_model=BackwardResult,
    responses={202: {"model": BackwardResult, "description": WAITS}},
)
async def backward(
    handle: CurrentSession, body: Annotated[BackwardArguments, Body(openapi_examples=BACKWARD_EXAMPLES)]
) -> Response:
    """Gradients are added to those of the leaves; `GET …/tensors/{id}/grad` reads them.

    The graph is freed, unless `retain_graph` or `create_graph` is true.
    """
    waits, answer = await handle.call(service.backward, body)
    return Response(answer, 202 if waits else 200, media_type=JSON)


@router.post(
    "/grad",
    operation_id="grad",
    summary="Compute gradients",
    response_model=GradResult,
    responses={202: {"model": GradResult, "description": WAITS}},
)
async def grad(
    handle: CurrentSession,
    settings: ServerSettings,
    body: Annotated[GradArguments, Body(openapi_examples=GRAD_EXAMPLES)],
    data: WithData = True,
) -> Response:
    """The gradients of `outputs` with respect to `inputs`, as new tensors. Existing `.grad` values are unchanged."""
    waits, answer = await handle.call(service.grad, body, data, settings.max_json_elements)
    return Response(answer, 202 if waits else 200, media_type=JSON)
