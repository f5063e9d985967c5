"""Counts of what a session has run: programs by source and tier with their times, and instructions by family.

They are kept for every program, so that a server can read them at any time without having watched (a program costs
half a microsecond). The thread that runs the session's programs writes them; other threads may read them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import add

from ..program.instructions import Instruction
from ..program.program import BoundProgram
from ..program.verbs import VERBS
from ..schema.op import CATALOGUE

INTERPRETED, PLANNED = "interpreted", "planned"
"""The tiers: programs that run one instruction at a time, and those that run as plans."""
BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
"""The upper bounds of the buckets of durations, in seconds."""
FUNCTION, UNKNOWN, OTHER = "function", "unknown", "other"
"""The families of registered functions, of names that are no op or verb, and of ops from outside the engine."""
_OPS = f"{__name__.partition('.')[0]}.ops."


def family_of(name: str) -> str:
    """The family of an instruction: that of the op, such as ``nn``, the verb's name, or ``function``.

    The name may come from a client, and the family is one of a fixed set.
    """
    if name == "apply":
        return FUNCTION
    if name in VERBS:
        return name
    op = CATALOGUE.ops.get(name) or CATALOGUE.ops.get(name.removesuffix("_"))
    if op is None:
        overloads = CATALOGUE.overloads.get(name) or CATALOGUE.overloads.get(name.removesuffix("_"))
        if not overloads:
            return UNKNOWN
        op = overloads[0]
    module: str = op.raw.__module__
    return module.removeprefix(_OPS).partition(".")[0] if module.startswith(_OPS) else OTHER


class ProgramCounts:
    """The programs of one source and tier: how many took how long, and their instructions."""

    __slots__ = ("buckets", "instructions", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        """The number of programs by duration: up to each of ``BOUNDS_S``, but above the one before; the last is
        beyond."""
        self.seconds = 0.0
        self.instructions = 0

    @property
    def count(self) -> int:
        """The number of programs."""
        return sum(self.buckets)

    def merge(self, other: ProgramCounts) -> None:
        """Add the counts of another object."""
        self.buckets = [*map(add, self.buckets, other.buckets)]
        self.seconds += other.seconds
        self.instructions += other.instructions


class Statistics:
    """The counts of one session, or the sum of several."""

    def __init__(self) -> None:
        self.programs: dict[tuple[str, str], ProgramCounts] = {}
        """The counts by source and tier."""
        self.families: Counter[str] = Counter()
        """The number of instructions that ran, by family."""

    def add(self, source: str, tier: str, seconds: float, program: Sequence[Instruction], ran: int) -> None:
        """Count a program, of which the first ``ran`` instructions ran."""
        try:
            counts = self.programs[source, tier]
        except KeyError:
            counts = self.programs[source, tier] = ProgramCounts()
        counts.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        counts.seconds += seconds
        counts.instructions += ran
        if ran < len(program) or not isinstance(program, BoundProgram):
            for instruction in program[:ran]:
                self.families[family_of(instruction.op)] += 1
            return
        families = program.program.families
        if families is None:
            families = program.program.families = Counter(
                [family_of(step.instruction.op) for step in program.program.steps]
            )
        for family, count in families.items():
            self.families[family] += count

    def merge(self, other: Statistics) -> None:
        """Add the counts of another object."""
        for key, counts in [*other.programs.items()]:  # another thread may add to them meanwhile
            if key not in self.programs:
                self.programs[key] = ProgramCounts()
            self.programs[key].merge(counts)
        for family, count in [*other.families.items()]:
            self.families[family] += count
