"""Recurring programs as they travel."""

from __future__ import annotations

from pydantic import Field

from ..routing.schemas import Answer


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
