"""``GET /v1/sessions/{session}/compiled``."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from telegrad_engine.program import json_codec
from telegrad_engine.session.session import Session

from ..http.media import JSON
from ..routing.dependencies import CurrentSession
from ..routing.route import Route
from ..routing.schemas import Answer

router = APIRouter(prefix="/v1/sessions/{session}", tags=["profile"], route_class=Route)


class CompiledProgram(Answer):
    """How a recurring program ran in a session."""

    digest: str = Field(description="Its id: the SHA-256 of its canonical text.", examples=["9f86d081884c7d65"])
    instructions: int = Field(description="The number of its instructions.", examples=[12])
    runs: int = Field(description="How often it ran.", examples=[100])
    planned_runs: int = Field(description="How many of these runs were one list of NumPy calls.", examples=[98])
    compiled_runs: int = Field(description="How many of these runs were one executable of JAX.", examples=[0])
    reason: str | None = Field(
        description="Why its last run did not use the session's fastest tier; null if it did.",
        examples=["instruction 3, dropout: it draws random numbers"],
    )


class CompiledPrograms(Answer):
    """The latest 64 programs of a session, in the order of their first runs."""

    items: list[CompiledProgram]


def read(session: Session) -> bytes:
    """The reports of the session's compiler, if it has one."""
    reports = [] if session.compiler is None else session.compiler.reports(session)
    return json_codec.dumps({"items": [report._asdict() for report in reports]})


@router.get(
    "/compiled",
    operation_id="get_compiled",
    summary="List the recurring programs",
    response_model=CompiledPrograms,
)
async def get_compiled(handle: CurrentSession) -> Response:
    """How often each recurring program ran one instruction at a time, planned, or compiled, and why its last run did
    not use the fastest tier. Programs are compiled if the session was created with `compile`."""
    return Response(await handle.call(read), media_type=JSON)
