"""``POST /v1/sessions/{session}/backward`` and ``…/grad``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from ..dependencies import CurrentSession, ServerSettings
from ..media import JSON
from ..routing import Route
from . import service
from .schemas import BACKWARD_EXAMPLES, GRAD_EXAMPLES, Backward, BackwardAnswer, Grad, GradAnswer

router = APIRouter(prefix="/v1/sessions/{session}", tags=["autograd"], route_class=Route)
WAITS = "The pass waits for the client: `pending` says what for"


@router.post(
    "/backward",
    operation_id="backward",
    summary="Accumulate gradients",
    response_model=BackwardAnswer,
    responses={202: {"model": BackwardAnswer, "description": WAITS}},
)
async def backward(
    handle: CurrentSession, body: Annotated[Backward, Body(openapi_examples=BACKWARD_EXAMPLES)]
) -> Response:
    """Adds to the gradients of the leaves; `GET …/tensors/{id}/grad` reads them.

    The graph is freed, unless it is to be retained.
    """
    waits, answer = await handle.call(service.backward, body)
    return Response(answer, 202 if waits else 200, media_type=JSON)


@router.post(
    "/grad",
    operation_id="grad",
    summary="Compute gradients",
    response_model=GradAnswer,
    responses={202: {"model": GradAnswer, "description": WAITS}},
)
async def grad(
    handle: CurrentSession,
    settings: ServerSettings,
    body: Annotated[Grad, Body(openapi_examples=GRAD_EXAMPLES)],
    data: Annotated[bool, Query(description="whether the gradients' `data` is filled")] = True,
) -> Response:
    """The gradients of `outputs` with respect to `inputs`, as new tensors. Accumulated ones stay alone."""
    waits, answer = await handle.call(service.grad, body, data, settings.max_json_elements)
    return Response(answer, 202 if waits else 200, media_type=JSON)
