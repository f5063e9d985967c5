"""``POST /v1/sessions/{session}/ops/{op}``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from telegrad_engine.errors import UnknownOp
from telegrad_engine.program import VERBS
from telegrad_engine.program.instructions import parse_inputs
from telegrad_engine.program.overloads import find_op

from ..hosting import work
from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.route import Route
from ..routing.schemas import INPUTS, Answer, Attrs, Input, Request, Tensor, TensorId

router = APIRouter(prefix="/v1/sessions/{session}/ops", tags=["ops"], route_class=Route)


class OpArguments(Request):
    """The op's inputs and attributes, and ids for its outputs."""

    inputs: list[Input] = Field(default=[], description=INPUTS)
    attrs: Attrs = Field(default={})
    outputs: list[TensorId] | None = Field(
        default=None, description="Ids for the outputs; the server chooses them if this is absent."
    )


class OpResult(Answer):
    """The op's outputs; for an in-place op, the tensor that it changed."""

    outputs: list[Tensor] = Field(description="In the op's order.")


@router.post("/{op}", summary="Run one op", response_model=OpResult)
async def run_op(
    handle: CurrentSession,
    settings: ServerSettings,
    op: Annotated[str, Path(description="An op's name or key; a trailing _ is its in-place form.", examples=["mul"])],
    body: OpArguments,
    data: WithData = False,
) -> Response:
    """A program of one instruction, recorded if an input requires grad. `GET /v1/ops` describes each op."""
    if op in VERBS:
        raise UnknownOp(f"{op!r} is a verb, not an op: send it as an instruction of a program", op=op)
    find_op(op)
    inputs = parse_inputs(body.inputs)
    answer = await handle.call(work.run_op, op, inputs, body.attrs, body.outputs, data, settings.max_json_elements)
    return Response(answer, media_type=JSON)
