"""Which programs run as one executable, since when, and why the others do not.

A program that has run often enough on tensors of the same kinds is planned, or compiled. Where that gives other sums
than running it one instruction at a time, its next run is a trial, held against that. From then on it runs as an
executable, as long as what that takes for granted of values holds and it turns out to be quicker. In every other case
it runs the next way down, one instruction at a time in the end, and :meth:`Compiler.reports` says why.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from threading import Lock, Thread, main_thread
from time import perf_counter

import numpy as np

from ...answer import Answer
from ...backends.symbolic import Untraceable
from ...cancellation import CancellationToken, cancelled_by
from ...dtypes import DType
from ...errors import TelegradError
from ...session import NotAtOnce, Session
from ..remembered import Bound
from .analysis import Analysis, Key
from .cache_entry import CacheEntry, Entry
from .effects import Run, Site
from .executable import Executable
from .input_signature import Inputs, InputSignature, look
from .misses import difference
from .reports import Counts, Ledger, Report
from .tier import COMPILED, Tier
from .trial import Trial

logger = logging.getLogger(__name__)


class GuardsFailed(Untraceable):
    """What an executable takes for granted of numbers or values does not hold this time."""


MOST = 64
"""How many kinds of programs are kept, as executables or counted."""
MOST_BYTES = 256 * 2**20
"""How many bytes all executables of one kind take, with the programs that they keep."""
UNIT_BYTES = 512
"""What an executable takes for each call, node or instruction that it keeps."""
MOST_NODES = 2**16
"""How many nodes all graphs have together that programs took and that are kept to be recognised."""
MAX_COMPARED = 8
"""With how many kinds of tensors new ones are compared, to say what is new about them: those used last."""
MISSES = 10
"""How many runs of an executable may be in vain, one after the other."""
VALUES = "the values are not those that are usual, as where an index is out of range"
ROOM = "the session may not have room for all of it at once"
ON_THE_CPU = "the session is not on the CPU"
SURELY = 6
"""How many runs have to be long before it is the kernels that are: the first may be, and those on a busy machine."""
LONG = "it spends its time in its kernels"


class Compiler:
    """Runs the remembered programs of sessions as executables where that can be and pays; safe to use from threads.

    ``tier`` is how they are made, and ``fallback`` runs what does not run so, else it runs one instruction at a time.
    ``after`` is how often a program runs before, the way's own number if it is None; ``most`` how many kinds of
    programs are kept, and ``most_bytes`` how many bytes their executables take; the least recently used are forgotten.
    ``choose`` false keeps what is slower, too.
    """

    def __init__(
        self,
        after: int | None = None,
        most: int = MOST,
        choose: bool = True,
        tier: Tier = COMPILED,
        fallback: Compiler | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.after = tier.after if after is None else after
        self._tier, self._fallback, self._most, self._choose = tier, fallback, most, choose
        self._most_bytes = most_bytes
        self._entries: OrderedDict[Key, CacheEntry] = OrderedDict()
        self._ledger = Ledger(most)
        self._waiting: list[tuple[Entry, Analysis, InputSignature, DType, Sequence[float]]] = []
        self._worker: Thread | None = None
        self._lock = Lock()

    # Running -----------------------------------------------------------------------------

    def run(self, session: Session, program: Bound) -> Answer:
        """Run the program in the session, with the result, and the errors, of running it eagerly."""
        try:
            found = self._look(session, program)
        except Untraceable as why:
            self._ledger.note(session, program.digest, len(program), str(why))
            return self._otherwise(session, program)
        if found is None:
            return self._otherwise(session, program)
        variants = self._variants(program, session.environment.dtype, found.kinds)
        reason = None
        try:
            answer = self._attempt_any(session, program, found, variants)
            if answer is None and self._make_if_due(session, program, found, variants):
                answer = self._attempt_any(session, program, found, variants)
            if answer is not None:
                session.finish()
                session.check_intact()
                return answer
        except Untraceable as why:
            reason = str(why)
        entry = variants.next
        missed = VALUES if variants.ready and reason is None else None
        reason = reason or entry.reason
        try:
            return self._eagerly(session, program, found, variants)
        finally:
            self._ledger.note(session, program.digest, len(program), missed or entry.reason or reason)

    def run_at_once(self, session: Session, program: Bound, within: float) -> Answer:
        """Run the program if the last run of its executable, here or fallback, took at most ``within`` seconds.

        Where eager runs were found to be quicker it is one of them. Raises NotAtOnce, with nothing done, in any other
        case: what is counted, made or tried, is so in :meth:`run`.
        """
        try:
            found = self._look(session, program)
            if found is None:
                raise NotAtOnce
            variants = self._variants(program, session.environment.dtype, found.kinds)
            if any(entry.last_s > within for entry in variants.ready):
                raise NotAtOnce
            answer = self._attempt_any(session, program, found, variants)
            if answer is not None:
                return answer
            entry = variants.next
            if not entry.settled:
                raise NotAtOnce
            # Of a registered function's loops only an executable knows that they are short.
            if not entry.eager_is_best or self._fallback is not None or found.kinds.functions:
                raise Untraceable(str(entry.reason))
            if entry.last_s > within:
                raise NotAtOnce
            answer, reason = self._eagerly(session, program, found, variants), entry.reason
        except Untraceable as why:
            if self._fallback is None:
                raise NotAtOnce from None
            answer, reason = self._fallback.run_at_once(session, program, within), str(why)
        self._ledger.note(session, program.digest, len(program), reason)
        return answer

    def _look(self, session: Session, program: Bound) -> Inputs | None:
        analysis = self._analysis(program)
        if analysis.refusal is not None:
            raise Untraceable(analysis.refusal)
        if session.environment.device is not None and not self._tier.everywhere:
            raise Untraceable(ON_THE_CPU)
        return look(session, analysis, program, self._tier.by_value)

    def _otherwise(self, session: Session, program: Bound) -> Answer:
        if self._fallback is not None:
            return self._fallback.run(session, program)
        return session.run_instructions(program.instructions)

    def _attempt_any(self, session: Session, program: Bound, found: Inputs, variants: CacheEntry) -> Answer | None:
        """Run the executable whose guards hold; None if there is none. Raises Untraceable as ``_attempt``."""
        for entry in variants.ready:
            try:
                answer = self._attempt(session, program, found, variants, entry)
            except GuardsFailed:
                continue
            variants.prefer(entry)
            return answer
        return None

    def _attempt(self, session: Session, program: Bound, found: Inputs, variants: CacheEntry, entry: Entry) -> Answer:
        """Run the executable. Raises Untraceable, with nothing done, where that cannot be this time.

        What is left to do once the answer has gone, ``session.finish`` does.
        """
        executable = entry.executable
        if executable is None or not session.accounts.fits(executable.effects.needs):
            raise Untraceable(ROOM)
        started = perf_counter()
        try:
            run = self._call(executable, found, entry, session.environment.generator)
        finally:
            variants.check(entry)
        site = Site(session, program.ids, found.tensors, found.nodes, found.space)
        answer, prepare = executable.effects.begin(site, run)
        ran_s = perf_counter() - started

        def finish() -> None:
            started = perf_counter()
            try:
                change = prepare()
            except Exception as error:
                self._run_again(session, program, run, entry, error)
                variants.check(entry)
                return
            change()
            session.programs += 1
            session.instructions += len(program)
            session.last_s = ran_s + perf_counter() - started
            self._ledger.note(session, program.digest, len(program), None)
            entry.time(session.last_s, self._choose and self._worker is None)  # beside the compiler all takes longer
            variants.check(entry)

        session.leave(finish)
        return answer

    def _run_again(self, session: Session, program: Bound, run: Run, entry: Entry, error: Exception) -> None:
        """Run one instruction at a time a program whose executable has answered, but cannot change the session."""
        logger.error("an executable program failed after its answer; it runs again", exc_info=error)
        entry.refuse(f"{self._tier.word}, it fails: {error}")
        run.rewind(session.environment.generator)
        with cancelled_by(CancellationToken()):  # it has been answered: nothing stops it any more
            session.run_instructions(program.instructions)

    def _call(self, executable: Executable, found: Inputs, entry: Entry, generator: np.random.Generator) -> Run:
        """What the executable comes to. Raises Untraceable if it failed, or what it takes for granted is not so."""
        try:
            run = executable.run(found.arrays, found.operands, generator)
        except Exception as error:
            logger.warning("an executable program failed", exc_info=True)
            entry.refuse(f"{self._tier.word}, it fails: {error}")
            raise Untraceable(entry.reason) from None
        if run is None:
            entry.misses += 1
            raise GuardsFailed(VALUES)
        entry.misses = 0
        return run

    def _eagerly(self, session: Session, program: Bound, found: Inputs, variants: CacheEntry) -> Answer:
        """Run otherwise, and beside it for the first time an executable that is to be held against that."""
        entry = variants.next
        trial, executable = None, entry.executable
        if executable is not None and not entry.tried:
            with suppress(Untraceable):
                numbers = deepcopy(session.environment.generator)
                run = self._call(executable, found, entry, numbers)
                trial = Trial(session, executable, program.ids, found, run, numbers)
            if entry.misses == MISSES:
                variants.give_up()
        started = perf_counter()
        answer = self._otherwise(session, program)
        entry.time_eager(perf_counter() - started)
        if entry.eager_is_best:
            session.last_s = entry.last_s
        if trial is not None and executable is not None and entry.executable is executable:
            difference = trial.difference(session, answer)
            if difference is not None:
                entry.differ(difference)
            else:
                entry.tried, entry.reason = True, None
                variants.is_ready(entry)
        return answer

    # Making executables ------------------------------------------------------------------

    def _make_if_due(self, session: Session, program: Bound, found: Inputs, variants: CacheEntry) -> bool:
        """Count a run, and make an executable of what has run often enough. Whether it can be relied on at once."""
        entry = variants.next
        entry.runs += 1
        if not entry.waiting or entry.runs < variants.waits_for(self.after):
            return False
        self._make(entry, self._analysis(program), found, session.environment.dtype)
        if entry.executable is None or not entry.executable.exact:
            return False
        entry.tried, entry.reason = True, None
        variants.is_ready(entry)
        return True

    def _make(self, entry: Entry, analysis: Analysis, found: Inputs, dtype: DType) -> None:
        if entry.eager_s > self._tier.longest_s * len(analysis.program.steps):
            if entry.runs >= SURELY:
                entry.refuse(LONG)
            return
        entry.begin()
        if not self._tier.apart:
            self._made(entry, analysis, found.kinds, dtype, found.operands, found)
            return
        with self._lock:
            self._waiting.append((entry, analysis, found.kinds, dtype, found.operands))
            if self._worker is None:
                # No daemon, though who starts it may be one: the process must not end in the middle of XLA, which
                # takes that for a crash.
                self._worker = Thread(target=self._work, name="telegrad-compiler", daemon=False)
                self._worker.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or not main_thread().is_alive():  # the process ends: no more of it
                    self._worker = None
                    return
                entry, analysis, kinds, dtype, operands = self._waiting.pop(0)
            self._made(entry, analysis, kinds, dtype, operands, None)

    def _made(
        self,
        entry: Entry,
        analysis: Analysis,
        kinds: InputSignature,
        dtype: DType,
        operands: Sequence[float],
        found: Inputs | None,
    ) -> None:
        try:
            executable = self._tier.make(analysis, kinds, dtype, operands, () if found is None else found.arrays)
            if executable.size * UNIT_BYTES + analysis.program.size > self._most_bytes:
                raise Untraceable(f"it comes to {executable.size} calls, more than are kept")
            entry.have(executable)
            self._make_room()
        except Untraceable as reason:
            if isinstance(reason.__cause__, TelegradError):  # it is the values that are wrong: others may not be
                entry.wait()
            else:
                entry.refuse(str(reason))
        except Exception as error:
            logger.warning("a program was not %s", self._tier.word, exc_info=True)
            entry.refuse(f"it cannot be {self._tier.word}: {error}")

    def _make_room(self) -> None:
        """Forget the programs that were used least recently, while all of them are too large together."""
        with self._lock:
            made = {key: variants.executables for key, variants in self._entries.items() if variants.executables}
            kinds = Counter(key.digest for key in made)
            programs = {key.digest: executables[0].effects.analysis.program.size for key, executables in made.items()}
            sizes = {key: sum(each.size for each in executables) * UNIT_BYTES for key, executables in made.items()}
            total = sum(sizes.values()) + sum(programs.values())
            for key, size in sizes.items():
                if total <= self._most_bytes:
                    break
                del self._entries[key]
                total -= size
                kinds[key.digest] -= 1
                if not kinds[key.digest]:
                    total -= programs[key.digest]

    def settle(self) -> None:
        """Wait until nothing is being compiled."""
        worker = self._worker
        if worker is not None:
            worker.join()

    # What is known -----------------------------------------------------------------------

    def _analysis(self, program: Bound) -> Analysis:
        with self._lock:
            outlines = program.remembered.outlines
            analysis: Analysis | None = outlines.get(self)
            if analysis is None:
                analysis = outlines[self] = Analysis(program.remembered)
            return analysis

    def _variants(self, program: Bound, dtype: DType, kinds: InputSignature) -> CacheEntry:
        analysis: Analysis = program.remembered.outlines[self]
        key = analysis.key
        if key is None or key.kinds is not kinds or key.dtype != dtype.name:
            key = analysis.key = Key(program.digest, dtype.name, kinds)
        with self._lock:
            variants = self._entries.get(key)
            if variants is None:
                like = [each for each in self._entries if each.digest == key.digest and each.dtype == key.dtype]
                differs = difference(analysis, kinds, [each.kinds for each in like[-MAX_COMPARED:]])
                variants = self._entries[key] = CacheEntry(self._tier, differs)
                self._forget(kinds)
            self._entries.move_to_end(key)
            return variants

    def _forget(self, latest: InputSignature) -> None:
        """Forget what was used least recently, where there is too much."""
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        if latest.graph is None:
            return
        graphs = [key.kinds.graph for key in self._entries]
        nodes = [0 if each is None else len(each.nodes) for each in graphs]
        total = sum(nodes)
        for key, count in zip([*self._entries], nodes, strict=True):
            if total <= MOST_NODES:
                break
            if count:
                del self._entries[key]
                total -= count

    def reports(self, session: Session) -> list[Report]:
        """How the remembered programs of a session ran, in the order in which they first did."""
        below = {} if self._fallback is None else self._fallback._ledger.of(session)
        reports = []
        for digest, counts in self._ledger.of(session).items():
            own = {f"{self._tier.word}_runs": counts.own}
            planned = below.get(digest, Counts()).own
            known = {"planned_runs": planned, "compiled_runs": 0, **own}
            reports.append(Report(digest, counts.instructions, counts.runs, reason=counts.reason, **known))
        return reports
