"""``GET /v1/sessions/{session}/profile``, and ``…/compiled``: which programs ran as plans, or why not."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from telegrad_engine.profiler import to_data
from telegrad_engine.program import json_codec

from ..hosting.commands import query
from ..routing.dependencies import InSession
from ..routing.pages import Page, Paged
from ..routing.route import Route
from ..routing.schemas import Answer

Category = Literal["op", "backward", "range", "verb"]

router = APIRouter(prefix="/v1/sessions/{session}", tags=["profile"], route_class=Route)


class RangeTotals(Answer):
    """The sums over all ranges of one name. A range is an op, a derivative, a verb or a client's label."""

    name: str = Field(examples=["aten::mul", "MulBackward0"])
    category: Category
    input_shapes: str = Field(
        description="The shapes as text, if they are recorded; each combination has totals of its own.", examples=[""]
    )
    count: int = Field(description="The number of ranges.", examples=[100])
    total_ns: int = Field(
        description="Nanoseconds; a range inside another range of its name counts twice.", examples=[250_000]
    )
    self_ns: int = Field(description="Nanoseconds without the ranges inside.", examples=[250_000])
    bytes: int = Field(description="Allocated bytes, if memory is recorded.", examples=[0])
    self_bytes: int = Field(description="Allocated bytes without the ranges inside.", examples=[0])


class ProfiledRange(Answer):
    """One range."""

    id: int = Field(description="Ranges are numbered in the order of their starts.", examples=[1])
    name: str = Field(examples=["aten::mul"])
    category: Category
    input_shapes: list[Any] = Field(description="Empty if shapes are not recorded.", examples=[[]])
    parent: int | None = Field(description="The id of the range around it; null if there is none.", examples=[None])
    thread: int = Field(examples=[1])
    start_ns: int = Field(description="Nanoseconds since the start of the profile.", examples=[1_000])
    end_ns: int = Field(description="Nanoseconds since the start of the profile.", examples=[3_500])
    inner_ns: int = Field(description="Nanoseconds of the ranges inside.", examples=[0])
    bytes: int = Field(description="Allocated bytes, if memory is recorded.", examples=[0])
    inner_bytes: int = Field(description="Allocated bytes of the ranges inside.", examples=[0])


class Profile(Answer):
    """How a session spent its time while it was profiled."""

    record_shapes: bool = Field(description="Whether shapes are recorded.", examples=[False])
    profile_memory: bool = Field(description="Whether allocated memory is recorded.", examples=[False])
    totals: list[RangeTotals]
    events: list[ProfiledRange] = Field(description="The ranges that ended first; empty unless `events` is true.")
    events_dropped: int = Field(description="The number of ranges that are part of the totals only.", examples=[0])


@router.get("/profile", summary="Read a profile", response_model=Profile)
@query
def get_profile(
    session: InSession,
    events: Annotated[bool, Query(description="Whether the response has the ranges, besides their totals.")] = False,
) -> bytes:
    """The running profile, or the last one.

    The instructions `start_profile` and `stop_profile` begin and end it; `begin_range` and `end_range` label parts.
    """
    return json_codec.dumps(to_data(session.last_profile(), events))


class CompiledProgram(Answer):
    """How a recurring program ran in a session."""

    digest: str = Field(description="Its id: the SHA-256 of its canonical text.", examples=["9f86d081884c7d65"])
    instructions: int = Field(description="The number of its instructions.", examples=[12])
    runs: int = Field(description="How often it ran.", examples=[100])
    planned_runs: int = Field(description="How many of these runs were one list of NumPy calls.", examples=[98])
    reason: str | None = Field(
        description="Why its last run was not one list of NumPy calls; null if it was.",
        examples=["instruction 3, unique: it depends on values"],
    )


class CompiledPage(Page[CompiledProgram]):
    """The latest 64 programs of a session, in the order of their first runs."""


@router.get("/compiled", summary="List the recurring programs")
@query
def list_compiled(session: InSession, page: Paged) -> CompiledPage:
    """How often each recurring program ran, and how often as one list of NumPy calls, and why its last run was not one
    of these."""
    reports = [] if session.compiler is None else session.compiler.reports(session)
    found, following = page.of("compiled", enumerate(reports), itemgetter(0))
    return CompiledPage(items=[CompiledProgram(**report._asdict()) for _, report in found], next_cursor=following)
