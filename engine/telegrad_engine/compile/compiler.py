"""The compiler: decides which programs run as plans and when, and reports why the others do not.

A program that has run often enough on inputs of one signature is planned. From then on it runs as that plan, while its
guards hold and it is not slower. Otherwise it runs one instruction at a time, and :meth:`Compiler.reports` says why. No
decision is final: a failed attempt is repeated after more runs.
"""

from __future__ import annotations

import logging
import math
from itertools import count
from operator import itemgetter
from threading import Lock
from time import perf_counter
from typing import NamedTuple

from ..arrays.symbolic import Untraceable
from ..cancellation import STOPPED, CancellationToken, cancelled_by
from ..context import state
from ..dtypes import DType
from ..program.program import BoundProgram
from ..program.result import Answer
from ..session.session import NotAtOnce, Session
from ..session.statistics import PLANNED
from .change import Change
from .input_signature import Inputs, InputSignature, difference, find_inputs
from .plan import Plan, PlannedRun
from .tracing import plan_program

logger = logging.getLogger(__name__)

MAX_ENTRIES, MAX_BYTES = 64, 256 * 2**20
"""The maximum number of program signatures that are kept, and of bytes that they take together."""
MAX_COMPARED = 8
"""The number of known signatures, most recently used, with which a new one is compared to report a difference."""
VALUES = "the values are not those that are usual, as where an index is out of range"
ROOM = "the session may not have room for all of it at once"
LONG = "it spends its time in its kernels"
AFTER = 2
"""The number of runs of a program before it is planned."""
MAX_S = 1e-3
"""Seconds per instruction above which a plan cannot be faster."""
MIN_LONG_RUNS = 6
"""The minimum number of long runs before planning is postponed: a first run, or a busy machine, takes longer."""
MORE_RUNS = "it is planned after more runs"
MAX_DOUBLINGS = 10
"""The maximum number of times that the number of runs between two attempts to make a plan is doubled."""
TIMED = 10
"""The number of runs of plans that are timed before the newest is kept or dropped."""
MAX_RATIO = 1.2
"""A plan is dropped if it takes more than this many times as long as the interpreter."""
MAX_PLANS = 8
"""The maximum number of plans for one signature, for different outcomes of guards: a last batch is shorter."""
UNIT_BYTES, NODE_BYTES = 512, 4096
"""The estimated memory of a plan per call or node, and of a signature per node of its graph."""


class Report(NamedTuple):
    """How often a session's program ran as a plan, and why the last run was not one of a plan."""

    digest: str
    """The digest of its template, without the fetches and frees at its end."""
    instructions: int
    runs: int
    planned_runs: int
    reason: str | None
    """Why its last run was not one of a plan; None if it was."""


def note(session: Session, program: BoundProgram, reason: str | None, most: int) -> None:
    """Count a run, which was one of a plan unless there is a ``reason``; keep the reports of the ``most`` newest."""
    digest, reports = program.program.template, session.run_reports
    _, _, runs, planned_runs, _ = reports.get(digest, (digest, 0, 0, 0, None))
    reports[digest] = Report(digest, len(program), runs + 1, planned_runs + (reason is None), reason)
    if len(reports) > most:
        del reports[next(iter(reports))]


class Key(NamedTuple):
    """The key of an entry."""

    tenant: str
    """Tenants share no plan: otherwise the speed of a program would tell whether another tenant has run it."""
    digest: str
    """The digest of the program."""
    dtype: str
    """The default dtype."""
    signature: InputSignature


class CacheEntry:
    """The plans of a program for one signature.

    An attempt to make one is due after a number of runs in which none ran. The number doubles after each attempt,
    whether it succeeded or not.
    """

    def __init__(self, after: int, nodes: int, difference: str | None) -> None:
        """``nodes`` is the size of the signature's graph, ``difference`` its difference from known signatures."""
        self._own_bytes = nodes * NODE_BYTES
        self.plans: list[Plan] = []
        """The plans; the one that ran last is first."""
        self._after, self._attempts = after, 0
        self.runs = 0
        """The number of runs since the last attempt in which no plan ran."""
        self.reason = MORE_RUNS + (f": {difference}" if difference else "")
        """Why no plan runs, unless a guard is the reason."""
        self.last_use = math.inf
        """When a program was run last on inputs of this signature."""
        self._timed = 0
        self.planned_s = self.interpreted_s = math.inf
        """The seconds of the shortest run of a plan, and of the shortest run one instruction at a time."""
        self.last_s = math.inf
        """The seconds of the last run of a plan."""

    @property
    def size(self) -> int:
        """The estimated memory in bytes."""
        program = self.plans[0].effects.program.size if self.plans else 0
        return self._own_bytes + program + UNIT_BYTES * sum(plan.size for plan in self.plans)

    @property
    def is_due(self) -> bool:
        """Whether the next run should make a plan."""
        return self.runs + 1 >= self._after << min(self._attempts, MAX_DOUBLINGS)

    def postpone(self, reason: str) -> None:
        """Wait for twice as many runs as before the last attempt."""
        self.reason = reason
        self.runs = 0
        self._attempts += 1

    def add(self, plan: Plan) -> None:
        """Use a plan that was made."""
        self.postpone(self.reason)
        self.plans, self._timed = [plan, *self.plans[: MAX_PLANS - 1]], 0
        self.planned_s = self.last_s = math.inf

    def prefer(self, plan: Plan) -> None:
        """Move a plan to the front, so that it is tried first."""
        if self.plans and self.plans[0] is not plan:
            self.plans = [plan, *[each for each in self.plans if each is not plan]]

    def drop(self, plan: Plan, reason: str) -> None:
        """Drop a plan."""
        self.plans = [each for each in self.plans if each is not plan]
        self.postpone(reason)

    def time(self, plan: Plan, seconds: float, choose: bool) -> None:
        """Record the time of a run of a plan. With ``choose``, drop it if the interpreter is faster."""
        self.last_s = seconds
        if not choose or self._timed == TIMED:
            return
        self._timed += 1
        self.planned_s = min(self.planned_s, seconds)
        if self._timed == TIMED and self.planned_s > self.interpreted_s * MAX_RATIO:
            interpreted, planned = (f"{s * 1e6:.0f} µs" for s in (self.interpreted_s, self.planned_s))
            self.drop(plan, f"it runs faster one instruction at a time: {interpreted}, against {planned} planned")

    def time_interpreted(self, seconds: float) -> None:
        """Record the time of a run one instruction at a time."""
        self.runs += 1
        self.interpreted_s = min(self.interpreted_s, seconds)


class Compiler:
    """Runs the cached programs of sessions as plans; thread-safe.

    ``after`` is the number of runs before a program is planned. At most ``most`` entries are kept, which take at most
    ``most_bytes``; the least recently used are evicted. If ``choose`` is false, programs are planned even if that is
    slower.
    """

    def __init__(
        self, after: int = AFTER, most: int = MAX_ENTRIES, choose: bool = True, most_bytes: int = MAX_BYTES
    ) -> None:
        self.after, self._most, self._choose, self._most_bytes = after, most, choose, most_bytes
        self._entries: dict[Key, CacheEntry] = {}
        self._uses = count()
        self._lock = Lock()

    # Running -----------------------------------------------------------------------------

    def run(self, session: Session, program: BoundProgram, within: float | None = None) -> Answer:
        """Run the program in the session, with the same result and errors as the interpreter.

        With ``within``, run it only if its last run took at most so many seconds, and leave its effects to
        ``session.flush``. Raises NotAtOnce, with nothing done, in any other case.
        """
        entry = None
        reason: str | None = MORE_RUNS
        if not program.program.is_new:  # most programs that run once never run again
            try:
                inputs = find_inputs(session, program)
                if inputs is None:
                    reason = None
                else:
                    entry = self._entry(program, session.environment.dtype, inputs.signature)
                    answer = self._as_plan(program, inputs, entry, within)
                    if answer is not None:
                        return answer
                    reason = VALUES if entry.plans else entry.reason
            except Untraceable as why:
                reason = str(why)
        if within is not None:
            raise NotAtOnce
        started = perf_counter()
        try:
            answer = session.run_instructions(program.instructions)
            if entry is not None:
                entry.time_interpreted(perf_counter() - started)
            return answer
        finally:
            if reason is not None:
                note(session, program, reason, self._most)

    def _as_plan(self, program: BoundProgram, inputs: Inputs, entry: CacheEntry, within: float | None) -> Answer | None:
        """Run the program as a plan, made now if it is due; None if there is none whose guards hold."""
        if within is not None and entry.plans and entry.last_s > within:
            raise NotAtOnce
        answer = self._attempt(program, inputs, entry)
        if answer is None and within is None and entry.is_due and self._make_plan(program, inputs, entry):
            answer = self._attempt(program, inputs, entry)
        if answer is not None and within is None:
            inputs.session.flush()
            inputs.session.check_intact()
        return answer

    def _attempt(self, program: BoundProgram, inputs: Inputs, entry: CacheEntry) -> Answer | None:
        """Run the first plan whose guards hold. Return None if there is none.

        Raises Untraceable, with nothing done, if it fails or needs more memory than the session has left.
        ``session.flush`` completes the effects, possibly after the answer was sent.
        """
        for plan in entry.plans:
            if not inputs.session.accounts.fits(plan.effects.needs):
                raise Untraceable(ROOM)
            if inputs.session.accounts.shared is not None:
                inputs.unshare([position for position, _ in plan.effects.writes])
            started = perf_counter()
            try:
                run = plan.run(inputs.arrays, inputs.operands, inputs.session.environment.generator)
            except STOPPED as error:  # the interpreter raises it and names the instruction
                raise Untraceable(str(error)) from None
            except Exception as error:
                logger.warning("a planned program failed", exc_info=True)
                entry.drop(plan, f"planned, it failed: {error}")
                raise Untraceable(entry.reason) from None
            if run is not None:
                entry.prefer(plan)
                return self._answer(program, inputs, entry, plan, run, started)
        return None

    def _answer(
        self, program: BoundProgram, inputs: Inputs, entry: CacheEntry, plan: Plan, run: PlannedRun, started: float
    ) -> Answer:
        session = inputs.session
        change = Change(plan.effects, inputs, run)
        ran_s = perf_counter() - started
        source, counted = session.source, state.memory is not session.accounts  # not if it runs inside another program

        def finish() -> None:
            started = perf_counter()
            try:
                change.prepare()
            except Exception as error:
                logger.error("a planned program failed after its answer; it runs again", exc_info=error)
                entry.drop(plan, f"planned, it failed: {error}")
                run.rewind(session.environment.generator)
                with cancelled_by(CancellationToken()):  # it was answered, so nothing may cancel it
                    session.run_instructions(program.instructions)
                return
            change.apply()
            session.programs += 1
            session.instructions += len(program)
            session.last_s = ran_s + perf_counter() - started
            if counted:
                session.statistics.add(source, PLANNED, session.last_s, program, len(program))
            note(session, program, None, self._most)
            entry.time(plan, session.last_s, self._choose)

        session.defer(finish)
        return change.answer

    # Making plans ------------------------------------------------------------------------

    def plan(self, program: BoundProgram, inputs: Inputs) -> Plan:
        """Return a plan of the program, from a run on these inputs. Raises Untraceable, with the reason."""
        return plan_program(program.program, inputs)

    def _make_plan(self, program: BoundProgram, inputs: Inputs, entry: CacheEntry) -> bool:
        """Make a plan. Return whether there is one."""
        if self._choose and MAX_S * len(program) < entry.interpreted_s < math.inf:
            if entry.runs >= MIN_LONG_RUNS:
                entry.postpone(LONG)
            return False
        try:
            plan = self.plan(program, inputs)
            if plan.size * UNIT_BYTES + plan.effects.program.size > self._most_bytes:
                raise Untraceable(f"it comes to {plan.size} calls, more than are kept")
        except Untraceable as reason:
            entry.postpone(str(reason))
            return False
        except Exception as error:
            logger.warning("a program was not planned", exc_info=True)
            entry.postpone(f"it cannot be planned: {error}")
            return False
        entry.add(plan)
        with self._lock:
            self._evict()
        return True

    @property
    def nbytes(self) -> int:
        """The estimated memory of the plans."""
        with self._lock:
            return sum([entry.size for entry in self._entries.values()])

    # Entries and reports -----------------------------------------------------------------

    def _entry(self, program: BoundProgram, dtype: DType, signature: InputSignature) -> CacheEntry:
        key = Key(program.program.tenant, program.program.digest, dtype.name, signature)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                like = [(other.last_use, each) for each, other in self._entries.items() if each[:3] == key[:3]]
                known = [each.signature for _, each in sorted(like, key=itemgetter(0))[-MAX_COMPARED:]]
                new = difference(program.program, signature, known)
                nodes = 0 if signature.graph is None else len(signature.graph.nodes)
                entry = self._entries[key] = CacheEntry(self.after, nodes, new)
                self._evict()
            entry.last_use = next(self._uses)
            return entry

    def _evict(self) -> None:
        """Evict the least recently used entries while there are too many, or they take too much memory."""
        total = sum([entry.size for entry in self._entries.values()])
        while self._entries and (len(self._entries) > self._most or total > self._most_bytes):
            # A signature with a large graph takes long to hash: each is hashed once.
            oldest, _ = min(self._entries.items(), key=lambda item: item[1].last_use)
            total -= self._entries.pop(oldest).size

    def reports(self, session: Session) -> list[Report]:
        """Return how the cached programs of a session ran, in the order of their first runs."""
        return list(session.run_reports.values())
