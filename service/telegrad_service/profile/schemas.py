"""A profile as it travels."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..schemas import Answer

Category = Literal["op", "backward", "range", "verb"]


class RangeTotals(Answer):
    """What all ranges of one name add up to. A range is an op, a derivative, a verb or what a client labelled."""

    name: str = Field(examples=["aten::mul", "MulBackward0"])
    category: Category
    input_shapes: str = Field(description="the shapes as text, if they are recorded: others are counted apart")
    count: int
    total_ns: int = Field(description="nanoseconds; a range inside another of its name counts twice")
    self_ns: int = Field(description="less the ranges inside")
    bytes: int = Field(description="allocated, if memory is recorded")
    self_bytes: int


class ProfiledRange(Answer):
    """One range."""

    id: int = Field(description="ranges are numbered as they begin")
    name: str
    category: Category
    input_shapes: list[Any]
    parent: int | None = Field(description="the range that it is inside of")
    thread: int
    start_ns: int = Field(description="nanoseconds since the profile began")
    end_ns: int
    inner_ns: int = Field(description="the time of the ranges inside")
    bytes: int
    inner_bytes: int


class Profile(Answer):
    """Where the time of a session went while it was profiled."""

    record_shapes: bool
    profile_memory: bool
    totals: list[RangeTotals]
    events: list[ProfiledRange] = Field(description="empty unless asked for; the first that ended")
    events_dropped: int = Field(description="how many are in the totals alone")
