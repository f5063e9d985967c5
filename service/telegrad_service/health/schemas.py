"""Health as it travels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..routing.schemas import Answer


class Health(Answer):
    """The server answers."""

    status: Literal["ok"]
    version: str = Field(description="The server's version.", examples=["0.1.0"])


class Readiness(Answer):
    """The server accepts work."""

    status: Literal["ready"]
    sessions: int = Field(description="The number of sessions.", examples=[1])
    max_sessions: int = Field(description="The most sessions that it holds.", examples=[256])
