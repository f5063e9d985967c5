"""Sessions as they travel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..schemas import Answer, DTypeName, Request

Name = Annotated[str, StringConstraints(max_length=200)]
Ttl = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CreateSession(Request):
    """A new session."""

    name: Name | None = Field(default=None, description="a name for people; need not be unique")
    device: str = Field(default="cpu", description="where its tensors live, one of `GET /v1/devices`")
    dtype: DTypeName = Field(default="float32", description="dtype of floating tensors where none is given")
    seed: int | None = Field(
        default=None, ge=0, lt=2**64, description="start of its random numbers; null is a random one"
    )
    ttl_s: Ttl | None = Field(
        default=None, description="seconds of idleness after which it ends; null is the server's default"
    )
    compile: bool = Field(
        default=False, description="whether programs that recur are compiled; see `GET …/compiled`. Needs JAX"
    )
    durable: bool = Field(default=False, description="whether it should survive a restart; not available yet")


class UpdateSession(Request):
    """What to change; what is absent stays."""

    name: Name | None = None
    ttl_s: Ttl | None = Field(
        default=None, description="seconds of idleness after which it ends; null is the server's default"
    )


class Session(Answer):
    """A session."""

    id: str = Field(description="unguessable; who knows it may use the session")
    name: str | None
    device: str
    dtype: DTypeName
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime = Field(description="when it ends if nobody uses it")
    ttl_s: float = Field(description="seconds of idleness after which it ends")
    durable: Literal[False]
    sequence: int = Field(description="last sequence number that was used; 0 before the first")


class SessionStatus(Session):
    """A session and what it holds."""

    tensors: int = Field(description="how many tensors have an id")
    used_bytes: int = Field(description="bytes of tensors that ids and the graph hold")
    max_bytes: int = Field(description="how many it may hold")
    programs: int = Field(description="how many programs ran")
    instructions: int = Field(description="how many instructions ran")


class SessionPage(Answer):
    """Some of the sessions, oldest first."""

    items: list[Session]
    next_cursor: str | None
