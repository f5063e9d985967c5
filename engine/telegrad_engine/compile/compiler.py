"""The compiler: decides which programs run as one executable and when, and reports why the others do not.

A program that has run often enough on inputs of one signature is planned, or compiled. From then on it runs as that
executable, while its guards hold and it is not slower. Otherwise it runs in the tier below, down to one instruction at
a time, and :meth:`Compiler.reports` says why. No decision is final: a failed attempt is repeated after more runs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import Lock, Thread, main_thread
from time import perf_counter

from ..arrays.symbolic import Untraceable
from ..cancellation import STOPPED, CancellationToken, cancelled_by
from ..context import state
from ..dtypes import DType
from ..program.program_cache import Bound
from ..program.result import Answer
from ..session.session import NotAtOnce, Session
from .cache_entry import UNIT_BYTES, CacheEntry, Key
from .effects import Change, Executable, Run
from .input_signature import Inputs, InputSignature, find_inputs
from .reports import Report, difference, note
from .tier import COMPILED, Tier

logger = logging.getLogger(__name__)

MAX_ENTRIES, MAX_BYTES = 64, 256 * 2**20
"""The maximum number of program signatures that are kept, and of bytes that they take together."""
MAX_COMPARED = 8
"""The number of known signatures, most recently used, with which a new one is compared to report a difference."""
VALUES = "the values are not those that are usual, as where an index is out of range"
ROOM = "the session may not have room for all of it at once"
ON_THE_CPU = "the session is not on the CPU"
LONG = "it spends its time in its kernels"
MIN_LONG_RUNS = 6
"""The minimum number of long runs before planning is postponed: a first run, or a busy machine, takes longer."""


class Compiler:
    """Runs the cached programs of sessions as executables of one tier; thread-safe.

    ``fallback`` is the compiler of the tier below, or None for the interpreter. ``after`` is the number of runs before
    a program's executable is made, by default the tier's own number. At most ``most`` entries are kept, which take at
    most ``most_bytes``; the least recently used are evicted. If ``choose`` is false, an executable is used even if it
    is slower.
    """

    def __init__(
        self,
        after: int | None = None,
        most: int = MAX_ENTRIES,
        choose: bool = True,
        tier: Tier = COMPILED,
        fallback: Compiler | None = None,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self.after = tier.after if after is None else after
        self._tier, self._fallback, self._most, self._choose = tier, fallback, most, choose
        self._most_bytes = most_bytes
        self._entries: dict[Key, CacheEntry] = {}
        self._uses = count()
        self._jobs: list[Callable[[], object]] = []
        self._worker: Thread | None = None
        self._lock = Lock()

    # Running -----------------------------------------------------------------------------

    def run(self, session: Session, program: Bound, within: float | None = None) -> Answer:
        """Run the program in the session, with the same result and errors as the interpreter.

        With ``within``, run it only if its last run, in this tier or below, took at most so many seconds, and leave
        its effects to ``session.flush``. Raises NotAtOnce, with nothing done, in any other case.
        """
        reason = entry = None
        if program.remembered.is_new:  # most programs that run once never run again
            reason = f"it is {self._tier.word} after more runs"
        else:
            try:
                inputs = self._find_inputs(session, program)
                if inputs is not None:
                    entry = self._entry(program, session.environment.dtype, inputs.signature)
                    answer = self._as_executable(program, inputs, entry, within)
                    if answer is not None:
                        return answer
                    reason = VALUES if entry.is_usable else entry.reason
            except Untraceable as why:
                reason = str(why)
        started = perf_counter()
        try:
            answer = self._run_below(session, program, entry, within)
            if entry is not None:
                entry.time_below(perf_counter() - started)
                if entry.is_set_aside:
                    session.last_s = entry.last_s
            return answer
        except NotAtOnce:
            reason = None
            raise
        finally:
            if reason is not None:
                self._note(session, program, reason)

    def _as_executable(self, program: Bound, inputs: Inputs, entry: CacheEntry, within: float | None) -> Answer | None:
        """Run the program as an executable, made now if it is due; None if there is none whose guards hold."""
        if within is not None and entry.is_usable and entry.last_s > within:
            raise NotAtOnce
        answer = self._attempt(program, inputs, entry)
        if answer is None and entry.is_due:
            if within is not None:
                raise NotAtOnce
            if self._make_executable(program, inputs, entry):
                answer = self._attempt(program, inputs, entry)
        if answer is not None and within is None:
            inputs.session.flush()
            inputs.session.check_intact()
        return answer

    def _run_below(self, session: Session, program: Bound, entry: CacheEntry | None, within: float | None) -> Answer:
        """Run the program in the tier below."""
        if self._fallback is not None and not program.remembered.is_new:
            return self._fallback.run(session, program, within)
        # Only an executable bounds the loops of a registered function.
        is_brief = within is not None and entry is not None and entry.is_set_aside and entry.last_s <= within
        if within is None or (is_brief and not program.remembered.analysis.functions):
            return session.run_instructions(program.instructions)
        raise NotAtOnce

    def _attempt(self, program: Bound, inputs: Inputs, entry: CacheEntry) -> Answer | None:
        """Run the first executable whose guards hold. Return None if there is none.

        Raises Untraceable, with nothing done, if it fails or needs more memory than the session has left.
        ``session.flush`` completes the effects, possibly after the answer was sent.
        """
        if entry.is_set_aside:
            return None
        for executable in entry.variants:
            if not inputs.session.accounts.fits(executable.effects.needs):
                raise Untraceable(ROOM)
            if inputs.session.accounts.shared is not None:
                inputs.unshare([position for position, _ in executable.effects.writes])
            started = perf_counter()
            try:
                run = executable.run(inputs.arrays, inputs.operands, inputs.session.environment.generator)
            except STOPPED as error:  # the interpreter raises it and names the instruction
                raise Untraceable(str(error)) from None
            except Exception as error:
                logger.warning("an executable program failed", exc_info=True)
                entry.drop(executable, f"{self._tier.word}, it failed: {error}")
                raise Untraceable(entry.reason) from None
            if run is not None:
                entry.prefer(executable)
                return self._answer(program, inputs, entry, executable, run, started)
        return None

    def _answer(
        self, program: Bound, inputs: Inputs, entry: CacheEntry, executable: Executable, run: Run, started: float
    ) -> Answer:
        session = inputs.session
        change = Change(executable.effects, inputs, run)
        ran_s = perf_counter() - started
        source, counted = session.source, state.memory is not session.accounts  # not if it runs inside another program

        def finish() -> None:
            started = perf_counter()
            try:
                change.prepare()
            except Exception as error:
                logger.error("an executable program failed after its answer; it runs again", exc_info=error)
                entry.drop(executable, f"{self._tier.word}, it failed: {error}")
                run.rewind(session.environment.generator)
                with cancelled_by(CancellationToken()):  # it was answered, so nothing may cancel it
                    session.run_instructions(program.instructions)
                return
            change.apply()
            session.programs += 1
            session.instructions += len(program)
            session.last_s = ran_s + perf_counter() - started
            if counted:
                session.statistics.add(source, self._tier.word, session.last_s, program)
            self._note(session, program, None)
            entry.time(session.last_s, self._choose and self._worker is None)  # compilation slows down all runs

        session.defer(finish)
        return change.answer

    # Making executables ------------------------------------------------------------------

    def _make_executable(self, program: Bound, inputs: Inputs, entry: CacheEntry) -> bool:
        """Make an executable, start making one, or resume those that were set aside. Return whether one is ready."""
        if entry.is_set_aside:
            entry.resume()
            return True
        if self._tier.longest_s * len(program) < entry.below_s < math.inf:
            if entry.runs >= MIN_LONG_RUNS:
                entry.postpone(LONG)
            return False
        dtype = inputs.session.environment.dtype
        arrays = () if self._tier.in_background else inputs.arrays
        make = partial(self._tier.make, program.remembered, inputs.signature, dtype, inputs.operands, arrays)
        if not self._tier.in_background:
            return self._make(entry, make)
        entry.begin()
        with self._lock:
            self._jobs.append(partial(self._make, entry, make))
            if self._worker is None:
                # Not a daemon thread: XLA treats the end of the process during a compilation as a crash.
                self._worker = Thread(target=self._work, name="telegrad-compiler", daemon=False)
                self._worker.start()
        return False

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs or not main_thread().is_alive():
                    self._worker = None
                    return
                job = self._jobs.pop(0)
            job()

    def _make(self, entry: CacheEntry, make: Callable[[], Executable]) -> bool:
        try:
            executable = make()
            if executable.size * UNIT_BYTES + executable.effects.program.size > self._most_bytes:
                raise Untraceable(f"it comes to {executable.size} calls, more than are kept")
        except Untraceable as reason:
            entry.postpone(str(reason))
            return False
        except Exception as error:
            logger.warning("a program was not %s", self._tier.word, exc_info=True)
            entry.postpone(f"it cannot be {self._tier.word}: {error}")
            return False
        entry.add(executable)
        with self._lock:
            self._evict()
        return True

    @property
    def nbytes(self) -> int:
        """The estimated memory of the executables of this tier and of those below."""
        with self._lock:
            own = sum([entry.size for entry in self._entries.values()])
        return own + (0 if self._fallback is None else self._fallback.nbytes)

    def join(self) -> None:
        """Wait until no program is being compiled."""
        worker = self._worker
        if worker is not None:
            worker.join()

    # Entries and reports -----------------------------------------------------------------

    def _find_inputs(self, session: Session, program: Bound) -> Inputs | None:
        refusal = program.remembered.analysis.refusal
        if refusal is not None:
            raise Untraceable(refusal)
        if session.environment.device is not None and not self._tier.any_device:
            raise Untraceable(ON_THE_CPU)
        return find_inputs(session, program, self._tier.by_value)

    def _entry(self, program: Bound, dtype: DType, signature: InputSignature) -> CacheEntry:
        key = Key(program.remembered.tenant, program.digest, dtype.name, signature)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                like = sorted([each for each in self._entries if each[:3] == key[:3]], key=self._last_use)
                known = [each.signature for each in like[-MAX_COMPARED:]]
                new = difference(program.remembered, signature, known)
                nodes = 0 if signature.graph is None else len(signature.graph.nodes)
                entry = self._entries[key] = CacheEntry(self._tier, self.after, nodes, new)
                self._evict()
            entry.last_use = next(self._uses)
            return entry

    def _evict(self) -> None:
        """Evict the least recently used entries while there are too many, or they take too much memory."""
        total = sum([entry.size for entry in self._entries.values()])
        while self._entries and (len(self._entries) > self._most or total > self._most_bytes):
            total -= self._entries.pop(min(self._entries, key=self._last_use)).size

    def _last_use(self, key: Key) -> float:
        return self._entries[key].last_use

    def _note(self, session: Session, program: Bound, reason: str | None) -> None:
        note(session, program, self._tier.word, reason, session.compiler is self, self._most)

    def reports(self, session: Session) -> list[Report]:
        """Return how the cached programs of a session ran, in the order of their first runs."""
        return list(session.run_reports.values())
