"""``POST /v1/sessions/{session}/ops/{op}``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from telegrad_engine.overloads import find_op
from telegrad_engine.program.instructions import parse_inputs

from .. import work
from ..dependencies import CurrentSession, ServerSettings
from ..media import JSON
from ..routing import Route
from .schemas import EXAMPLES, OpAnswer, RunOp

router = APIRouter(prefix="/v1/sessions/{session}/ops", tags=["ops"], route_class=Route)


@router.post("/{op}", operation_id="run_op", summary="Run one op", response_model=OpAnswer)
async def run_op(
    handle: CurrentSession,
    settings: ServerSettings,
    op: Annotated[str, Path(description="name or key of an op; a trailing _ is its in-place form", examples=["mul"])],
    body: Annotated[RunOp, Body(openapi_examples=EXAMPLES)],
    data: Annotated[bool, Query(description="whether the outputs' `data` is filled")] = False,
) -> Response:
    """A program of one instruction, recorded if an input requires grad. `GET /v1/ops` describes each op."""
    find_op(op)  # verbs have routes of their own
    inputs = parse_inputs(body.inputs)
    answer = await handle.call(work.run_op, op, inputs, body.attrs, body.outputs, data, settings.max_json_elements)
    return Response(answer, media_type=JSON)
