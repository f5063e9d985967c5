"""Schemas of sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from ..routing.pages import Page
from ..routing.schemas import Answer, DType, Request

Name = Annotated[str, StringConstraints(max_length=200)]
Ttl = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TTL = "Seconds without a request after which the session ends; null is the server's default."


class SessionCreate(Request):
    """A new session."""

    name: Name | None = Field(
        default=None,
        description="A name for people. A tenant has at most one durable session of a name: a second one is refused "
        "with the first one's id in `session`.",
    )
    device: str = Field(
        default="cpu", description="Where its tensors live: one of `GET /v1/devices`, or `gpu` for any GPU."
    )
    dtype: DType = Field(default="float32", description="The default dtype of floating-point tensors.")
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="The seed of its random numbers; null is a random seed. The verb `manual_seed` takes any integer.",
    )
    ttl_s: Ttl | None = Field(default=None, description=TTL)
    heartbeats: bool = Field(
        default=False,
        description="Whether the session ends soon after its client: after the server's `heartbeat_ttl_s` without "
        "an open stream, a request or a heartbeat.",
    )
    durable: bool = Field(
        default=False,
        description="Whether it survives a restart or a crash of the server, which needs a data folder.",
    )


class SessionUpdate(Request):
    """What to change; absent fields stay as they are."""

    name: Name | None = Field(default=None, description="A name for people; need not be unique.")
    ttl_s: Ttl | None = Field(default=None, description=TTL)


class Session(Answer):
    """A session."""

    id: str = Field(
        description="Unguessable. Clients of the same tenant may use the session; without API keys, whoever knows it.",
        examples=["0s7vJ1mQ2nGx4yRkTz8bWc5d"],
    )
    tenant: str = Field(description="The tenant that it belongs to.", examples=["local"])
    name: str | None = Field(description="A name for people.", examples=["notebook"])
    device: str = Field(description="Where its tensors live.", examples=["cpu"])
    dtype: DType = Field(description="The default dtype of floating-point tensors.", examples=["float32"])
    created_at: datetime = Field(examples=["2026-01-01T12:00:00Z"])
    last_used_at: datetime = Field(examples=["2026-01-01T12:00:01Z"])
    expires_at: datetime = Field(
        description="When it ends if no request uses it and no heartbeat arrives before.",
        examples=["2026-01-01T13:00:01Z"],
    )
    ttl_s: float = Field(description="Seconds without a request after which it ends.", examples=[3600.0])
    heartbeat_ttl_s: float | None = Field(
        description="Seconds without a sign of life after which it ends; null for a session without heartbeats.",
        examples=[None],
    )
    durable: bool = Field(description="Whether it survives a restart of the server.", examples=[False])
    sequence: int = Field(
        description="The last sequence number that was used without a sender; 0 before the first.", examples=[0]
    )


class SessionStatus(Session):
    """A session and what it holds."""

    version: str = Field(description="The server's version.", examples=["0.1.0"])
    tensors: int = Field(description="The number of tensors that have an id.", examples=[1])
    used_bytes: int = Field(description="The bytes of tensors that ids and the graph hold.", examples=[8])
    max_bytes: int = Field(description="The most bytes that it may hold.", examples=[2**31])
    programs: int = Field(description="The number of programs that ran.", examples=[1])
    instructions: int = Field(description="The number of instructions that ran.", examples=[1])


class SessionEndpoint(Answer):
    """Where a session is reached without a gateway; all fields are null on a server without gateways."""

    url: str | None = Field(
        description="The address of the worker that has the session; clients may not be able to reach it.",
        examples=[None],
    )
    token: str | None = Field(
        description="What the worker takes as `Authorization: Bearer`, for this session and this client alone.",
        examples=[None],
    )
    expires_at: datetime | None = Field(
        description="When the token expires. A stream that is open by then stays open.", examples=[None]
    )


class SessionPage(Page[Session]):
    """Sessions, oldest first."""
