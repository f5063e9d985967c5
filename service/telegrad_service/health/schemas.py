"""Health as it travels."""

from __future__ import annotations

from typing import Literal

from ..schemas import Answer


class Health(Answer):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Readiness(Answer):
    """The server takes work."""

    status: Literal["ready"]
    sessions: int
    max_sessions: int
