"""Programs that recur as they travel."""

from __future__ import annotations

from pydantic import Field

from ..schemas import Answer


class CompiledProgram(Answer):
    """How a remembered program ran in a session."""

    digest: str = Field(description="what it is known by: the SHA-256 of its canonical text")
    instructions: int = Field(description="how many it has")
    runs: int = Field(description="how often it ran")
    planned_runs: int = Field(description="how often of these as one list of NumPy calls")
    compiled_runs: int = Field(description="how often as an executable of JAX")
    reason: str | None = Field(
        description="why it did not run in the quickest way that the session has the last time; null if it did",
        examples=["instruction 3, dropout: it draws random numbers"],
    )


class CompiledPrograms(Answer):
    """The programs of a session, in the order in which they first ran; the latest 64."""

    items: list[CompiledProgram]
