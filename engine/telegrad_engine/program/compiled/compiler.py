"""Which programs run compiled, since when, and why the others do not.

A program that has run often enough on tensors of the same kinds is compiled on a thread of its own. Its next run is a
trial, held against the eager one. From then on it runs compiled, as long as what it takes for granted of values holds
and it turns out to be quicker. In every other case it runs eagerly, and :meth:`Compiler.reports` says why.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Thread, main_thread
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...backends.tracing import Untraceable
from ...dtypes import DType
from ...session import Answer, Session
from ..remembered import Bound
from .executable import Compiled
from .facts import Found, Kinds, look
from .outcome import Run
from .outline import Outline
from .tracing import compile_program
from .trial import Trial

logger = logging.getLogger(__name__)
AFTER, MOST = 20, 64
"""After how many runs a program is compiled, and how many kinds of programs are kept, compiled or counted."""
TIMED, MISSES = 10, 10
"""How many compiled runs are timed before one is chosen, and how many may be in vain, one after the other."""
SOON = "it is compiled after more runs"
WORKING = "it is being compiled"
TRIAL = "it is compiled, and held against the eager run first"
VALUES = "the values are not those that are usual, as where an index is out of range"
ROOM = "the session may not have room for all of it at once"


class Report(NamedTuple):
    """How a session's program ran the last time."""

    digest: str
    instructions: int
    runs: int
    compiled_runs: int
    reason: str | None
    """Why it did not run compiled the last time; None if it did."""


class Entry:
    """A program on tensors of certain kinds."""

    def __init__(self) -> None:
        self.runs = 0
        self.reason: str | None = SOON
        """Why it runs eagerly; None if it does not."""
        self.compiled: Compiled | None = None
        self.tried = False
        """Whether what is compiled has come to what the eager run did."""
        self.misses = self.timed = 0
        self.eager_s = self.compiled_s = float("inf")
        """The shortest run of either kind."""

    def refuse(self, reason: str) -> None:
        """Run eagerly from now on."""
        self.reason, self.compiled, self.tried = reason, None, True

    def time(self, seconds: float) -> None:
        """Note how long a compiled run took, and after some of them refuse what is slower than the eager ones."""
        self.timed += 1
        self.compiled_s = min(self.compiled_s, seconds)
        if self.timed == TIMED and self.compiled_s > self.eager_s:
            quick, slow = (f"{s * 1e6:.0f} µs" for s in (self.eager_s, self.compiled_s))
            self.refuse(f"it is quicker one instruction at a time: {quick}, and {slow} compiled")


class Compiler:
    """Runs the remembered programs of sessions, compiled where that can be and pays; safe to use from many threads.

    ``after`` is how often a program runs before it is compiled, ``most`` how many kinds of programs are kept; the
    least recently used are forgotten. ``choose`` false keeps what is compiled even where it is slower.
    """

    def __init__(self, after: int = AFTER, most: int = MOST, choose: bool = True) -> None:
        self.after, self._most, self._choose = after, most, choose
        self._outlines: OrderedDict[str, Outline] = OrderedDict()
        self._entries: OrderedDict[tuple[str, str, Kinds], Entry] = OrderedDict()
        self._reports: WeakKeyDictionary[Session, OrderedDict[str, Report]] = WeakKeyDictionary()
        self._waiting: list[tuple[Entry, Outline, Kinds, DType]] = []
        self._worker: Thread | None = None
        self._lock = Lock()

    # Running -----------------------------------------------------------------------------

    def run(self, session: Session, program: Bound) -> Answer:
        """Run the program in the session, with the result, and the errors, of running it eagerly."""
        outline = self._outline(program)
        try:
            if outline.refusal is not None:
                raise Untraceable(outline.refusal)
            found = look(session, outline, program.ids, program.arrays)
        except Untraceable as why:
            self._report(session, program, str(why))
            return session.run_instructions(program.instructions)
        if found is None:
            return session.run_instructions(program.instructions)
        entry = self._entry(program.digest, session.dtype, found.kinds)
        entry.runs += 1
        reason = entry.reason
        if reason is None:
            try:
                answer = self._attempt(session, program, found, entry)
                self._report(session, program, None)
                return answer
            except Untraceable as why:
                reason = str(why)
        try:
            return self._eagerly(session, program, outline, found, entry)
        finally:
            self._report(session, program, entry.reason or reason)

    def _attempt(self, session: Session, program: Bound, found: Found, entry: Entry) -> Answer:
        """Run compiled. Raises Untraceable, with nothing done, where that cannot be this time."""
        compiled = entry.compiled
        if compiled is None or session.used_bytes + compiled.outcome.needs > session.max_bytes:
            raise Untraceable(ROOM)
        started = perf_counter()
        outs = self._call(compiled, found, entry)
        answer = compiled.outcome.put(session, program.ids, found.tensors, Run(found.arrays, outs))
        session.programs += 1
        session.instructions += len(program)
        if self._choose and entry.timed < TIMED:
            entry.time(perf_counter() - started)
        return answer

    def _call(self, compiled: Compiled, found: Found, entry: Entry) -> Sequence[Any]:
        """What the executable returns. Raises Untraceable if it failed, or what it takes for granted is not so."""
        try:
            outs = compiled.run(found.arrays)
        except Exception as error:
            logger.warning("a compiled program failed", exc_info=True)
            entry.refuse(f"compiled, it fails: {error}")
            raise Untraceable(entry.reason) from None
        if outs is None:
            entry.misses += 1
            if entry.misses == MISSES:
                entry.refuse(VALUES)
            raise Untraceable(VALUES)
        entry.misses = 0
        return outs

    def _eagerly(self, session: Session, program: Bound, outline: Outline, found: Found, entry: Entry) -> Answer:
        """Run eagerly, and beside it for the first time what is compiled; have compiled what has run often enough."""
        trial, compiled = None, entry.compiled
        if compiled is not None and not entry.tried:
            with suppress(Untraceable):
                outs = self._call(compiled, found, entry)
                trial = Trial(session, compiled.outcome, program.ids, found, outs)
        started = perf_counter()
        answer = session.run_instructions(program.instructions)
        entry.eager_s = min(entry.eager_s, perf_counter() - started)
        if trial is not None and compiled is not None and entry.compiled is compiled:
            difference = trial.difference(session, answer)
            if difference is not None:
                entry.refuse(f"compiled, it came to something else: {difference}")
            else:
                compiled.outcome.adopt_layouts(session, program.ids, len(found.tensors))
                entry.tried, entry.reason = True, None
        elif entry.reason == SOON and entry.runs >= self.after:
            self._have_compiled(entry, outline, found.kinds, session.dtype)
        return answer

    # Compiling ---------------------------------------------------------------------------

    def _have_compiled(self, entry: Entry, outline: Outline, kinds: Kinds, dtype: DType) -> None:
        entry.reason = WORKING
        with self._lock:
            self._waiting.append((entry, outline, kinds, dtype))
            if self._worker is None:
                # No daemon: the process must not end in the middle of XLA, which takes that for a crash.
                self._worker = Thread(target=self._work, name="telegrad-compiler")
                self._worker.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or not main_thread().is_alive():  # the process ends: no more of it
                    self._worker = None
                    return
                entry, outline, kinds, dtype = self._waiting.pop(0)
            try:
                compiled = compile_program(outline, kinds, dtype)
                entry.reason, entry.compiled = TRIAL, compiled
            except Untraceable as reason:
                entry.refuse(str(reason))
            except Exception as error:
                logger.warning("a program was not compiled", exc_info=True)
                entry.refuse(f"JAX does not compile it: {error}")

    def settle(self) -> None:
        """Wait until nothing is being compiled."""
        worker = self._worker
        if worker is not None:
            worker.join()

    # What is known -----------------------------------------------------------------------

    def _outline(self, program: Bound) -> Outline:
        with self._lock:
            outline = self._outlines.get(program.digest)
            if outline is None:
                outline = self._outlines[program.digest] = Outline(program.remembered)
                _forget(self._outlines, 8 * self._most)
            return outline

    def _entry(self, digest: str, dtype: DType, kinds: Kinds) -> Entry:
        key = digest, dtype.name, kinds
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry()
                _forget(self._entries, self._most)
            self._entries.move_to_end(key)
            return entry

    def _report(self, session: Session, program: Bound, reason: str | None) -> None:
        with self._lock:
            reports = self._reports.setdefault(session, OrderedDict())
            before = reports.get(program.digest)
            runs, compiled_runs = (0, 0) if before is None else (before.runs, before.compiled_runs)
            reports[program.digest] = Report(
                program.digest, len(program), runs + 1, compiled_runs + (reason is None), reason
            )
            _forget(reports, self._most)

    def reports(self, session: Session) -> list[Report]:
        """How the remembered programs of a session ran, in the order in which they first did."""
        with self._lock:
            return list(self._reports.get(session, {}).values())


def _forget(table: OrderedDict[Any, Any], most: int) -> None:
    while len(table) > most:
        table.popitem(last=False)
