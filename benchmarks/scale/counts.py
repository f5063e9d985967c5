"""What a run of the simulation records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Ownership(NamedTuple):
    """A worker may answer for a session in this time."""

    session: int
    worker: int
    epoch: int
    since: float
    until: float


@dataclass
class Counts:
    """What happened in a run."""

    arrived: int = 0
    ended: int = 0
    gone: int = 0
    """Volatile sessions of failed workers."""
    moved: int = 0
    """Sessions that a drain moved."""
    failed_over: int = 0
    steps: float = 0.0
    """Acknowledged steps in the time that counts."""
    refused: int = 0
    """Answers of workers that had lost the session."""
    failures: int = 0
    lapsed: int = 0
    renewals: int = 0
    step_times: list[float] = field(default_factory=list)
    """Seconds per step, of each job in the time that counts."""
    create_s: list[float] = field(default_factory=list)
    resume_s: list[float] = field(default_factory=list)
    """From the end of a worker's process until a session that was training is restored."""
    resume_hung_s: list[float] = field(default_factory=list)
    """The same for a process that hangs."""
    move_s: list[float] = field(default_factory=list)
    """How long a drain interrupts an active session."""
