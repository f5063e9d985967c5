"""Durable sessions: each command is in the journal before it is answered, and runs again after a restart.

A journal has commands in the order in which they ran; running them again gives the same tensors, graph, random numbers
and answers, which is checked. After an error that may not occur again, such as a cancellation, the session's state is
saved as a snapshot instead. A snapshot also begins a new journal when the old one has become long.

The journal also has what the session uses of its server: templates of programs, and shared functions. The server may
forget a template or replace a function while the journal still needs it.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from xxhash import xxh3_64_intdigest

from telegrad_engine.cancellation import CancellationToken, cancelled_by
from telegrad_engine.errors import (
    ERRORS,
    InternalError,
    NotSupported,
    ServerBusy,
    SessionLost,
    SessionMoved,
    TelegradError,
)
from telegrad_engine.program.program import Make, Program, ProgramCache, Programs
from telegrad_engine.program.registered_functions import Library, permissions
from telegrad_engine.program.registered_functions.function import Applicable, FunctionProgram
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import NotAtOnce
from telegrad_engine.session.statistics import Statistics

from ..journal.format import Data, pack, pack_command, unpack
from ..journal.session_files import SessionFiles
from .commands import COMMANDS, NAMES, QUERIES, restored_arguments, run_numbered
from .sequence import HostedSession, SequenceRecords, StreamAnswer

logger = logging.getLogger(__name__)
Note = Callable[[str, Any], None]
"""Takes the kind and the data of a template or function that a session uses first since its journal began."""


class JournalTemplates:
    """The server's cache of templates for one session, which notes the first use of each template."""

    def __init__(self, shared: Programs, note: Note) -> None:
        self.shared, self._note = shared, note
        self._known: set[str] = set()

    def read(self, text: str, claimed: str | None, max_depth: int) -> Program:
        """Read and cache a template whose text is in the message, and so in the journal."""
        found = self.shared.read(text, claimed, max_depth)
        self._known.add(found.digest)
        return found

    def find(self, known_by: Any, make: Make | None = None) -> Program:
        """Return a cached template, and note its text on first use, unless ``make`` can make it again."""
        found = self.shared.find(known_by, make)
        if make is None and known_by not in self._known:
            self._known.add(known_by)
            self._note("template", found.text)
        return found

    def forget(self) -> None:
        """Note every template again on its next use, because a new journal begins."""
        self._known.clear()


class JournalFunctions(Library):
    """The server's library of functions for one session, which notes the first use of each function.

    While a journal is replayed, ``outer`` is None: functions come from the journal only.
    """

    def __init__(self, shared: Library, note: Note) -> None:
        super().__init__(shared)
        self._note = note
        self._known: dict[str, Applicable] = {}

    def find(self, name: str) -> Applicable:
        """Return a function. On first use, note its definition and those of the functions that it applies."""
        found = super().find(name)
        if name not in self.own:
            self._use(found)
        return found

    def _use(self, function: Applicable) -> None:
        if not isinstance(function, FunctionProgram) or self._known.get(function.name) is function:
            return
        for other in function.uses.values():
            self._use(other)
        self._known[function.name] = function
        self._note("function", function.definition)

    def add(self, function: Applicable) -> None:
        """Add a function to the server's library, or to this one during a replay."""
        add = super().add if self.outer is None else self.outer.add
        add(function)

    def remove(self, name: str) -> None:
        """Remove a function from the server's library, or from this one during a replay."""
        remove = super().remove if self.outer is None else self.outer.remove
        remove(name)

    def replace(self, definition: Mapping[str, Any]) -> None:
        """Set the definition of a shared function during a replay."""
        self.own.pop(definition["name"], None)
        self.own[definition["name"]] = FunctionProgram(definition, self.find)

    def replayed(self, shared: Library) -> None:
        """End the replay: use the server's functions from now on."""
        self.own.clear()
        self.outer = shared

    def forget(self) -> None:
        """Note every function again on its next use, because a new journal begins."""
        self._known.clear()


MAX_JOURNAL_BYTES = 128 * 2**20
"""A snapshot begins a new journal when the journal has more bytes."""
SNAPSHOT_SHARE = 20
"""The next snapshot comes after commands have taken this many times as long as the last snapshot."""
ANSWERS = 1
"""The version of commands' answers. Raise it when one changes, so that replays do not compare older answers."""
MAX_CHECKED = 2**16
"""The size in bytes of the largest answer whose checksum a replay compares."""
UNREPEATABLE = frozenset(slug for slug, error in ERRORS.items() if not error.repeatable)
"""Errors that depend on more than the session's state, so that they may not occur in a replay."""
WITHOUT_EFFECT = frozenset({"function-exists", "missing-scope", "unknown-function"})
"""Those of them that an instruction raises before it has an effect."""


class Durable:
    """Runs the commands of one durable session, whose journal and snapshots are in ``files``.

    ``options`` are the arguments of a new session that are part of its state, ``surroundings`` the other ones. All
    methods are called by one thread at a time, in the order of the session's commands.
    """

    def __init__(
        self, files: SessionFiles, options: Mapping[str, Any], surroundings: snapshot.SessionConfig, max_replay_s: float
    ) -> None:
        self.files = files
        self.senders = SequenceRecords()
        self.session: HostedSession | None = None
        """The session; None while it is only on the disk."""
        self.statistics = Statistics()
        """What the session has used since the server started."""
        self._options, self._surroundings = options, surroundings
        self._templates = JournalTemplates(surroundings["memory"], self._note_use)
        self._functions = JournalFunctions(surroundings["library"], self._note_use)
        self._new: list[Data] = []
        """The templates and functions that commands have used and that the journal does not have yet."""
        self._held: list[Data] = []
        """The parts of the next frame, while a numbered request is not answered."""
        self._snapshot_wanted = False
        """Whether a snapshot will replace that frame."""
        self._max_replay_s = max_replay_s
        """A snapshot begins a new journal when running the journal again would take longer."""
        self._replay_s = 0.0
        """Seconds that the commands in the journal took."""
        self._snapshot_s = 0.0

    # Running -------------------------------------------------------------------------------------

    def run(
        self, function: Callable[..., Any], arguments: Sequence[Any], task: Callable[..., Any], holds: bool = False
    ) -> Any:
        """Return ``task(session, *arguments)``, which calls the command ``function``, and write it to the journal.

        With ``holds``, :meth:`answer` writes the command together with its recorded answer. Raises ServerBusy, with the
        command undone, if the journal cannot be written, SessionMoved if another server has taken the session, and
        SessionLost if the session cannot be loaded.
        """
        session = self.session or self.load()
        if function in QUERIES:
            try:
                return task(session, *arguments)
            finally:
                self.files.check_owned()  # afterwards, so that the result is up to date
        return self._run(session, function, arguments, task, holds)

    def run_at_once(self, function: Callable[..., Any], arguments: Sequence[Any], within: float) -> Any:
        """Return ``function(session, *arguments, within=within)``. Raises NotAtOnce if it would wait for the disk."""
        if self.session is None or self.files.waits or self._is_snapshot_due:
            raise NotAtOnce
        return self._run(self.session, function, arguments, partial(function, within=within), False, True)

    def _run(
        self,
        session: HostedSession,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        task: Callable[..., Any],
        holds: bool,
        at_once: bool = False,
    ) -> Any:
        self.files.check_owned()
        # Before the command runs, because it may change the arrays in its arguments.
        command = pack_command(NAMES[function], arguments)
        session.flush()
        before, begun = session.instructions, perf_counter()
        last = self.senders.of(arguments[0]).last if function is run_numbered else 0
        result: Any = None
        error: BaseException | None = None
        try:
            result = task(session, *arguments)
        except NotAtOnce:
            raise
        except BaseException as caught:
            error = caught
        self._replay_s += perf_counter() - begun
        slug = _slug(error, result)
        ran = (session.instructions != before or session.defers) and not _is_harmless(slug, error, result)
        # A message without instructions may still free tensors.
        ran |= isinstance(result, StreamAnswer) and result.error is None and self.senders.of(arguments[0]).last > last
        if ran and slug not in UNREPEATABLE:
            self._held += [*self._new, *command, pack(["outcome", slug, _check(result), ANSWERS])]
            self._new.clear()
        elif isinstance(result, StreamAnswer) and result.number is not None:
            self._hold_answer(arguments[0], result.number)
        self._snapshot_wanted |= ran and slug in UNREPEATABLE
        if not holds:
            self._write(session, at_once)
        if error is not None:
            raise error
        return result

    def answer(self, sender: str, number: int) -> None:
        """Write the commands of a numbered request, and its recorded answer, to the journal. Raises ServerBusy."""
        session = self.session
        if session is None:
            raise ServerBusy("the session's journal could not be written")
        self._hold_answer(sender, number)
        try:
            self._write(session)
        except SessionMoved as moved:  # may be repeated: the other server has command and answer, or neither
            raise SessionMoved(moved.detail) from None

    def _hold_answer(self, sender: str, number: int) -> None:
        """Add the recorded answer of a numbered request, if there is one, to the next frame."""
        if (recorded := self.senders.of(sender).dump(number)) is not None:
            self._held.append(pack(["answer", sender, number, recorded]))

    def _note_use(self, kind: str, data: Any) -> None:
        """Add a template or function that the session uses first since its journal began to the next frame."""
        self._new.append(pack([kind, data]))

    def _write(self, session: HostedSession, at_once: bool = False) -> None:
        """Write the next frame or a snapshot. If that fails, raises ServerBusy and unloads the session."""
        parts, self._held = self._held, []
        wanted, self._snapshot_wanted = self._snapshot_wanted, False
        try:
            # A snapshot includes recorded answers and the effects of the commands in this frame.
            if wanted and (reason := self._save(session)) is not None:
                raise ServerBusy(f"what the program did cannot be kept, and was undone: {reason}")
            if parts and not wanted:
                self.files.append(parts)
            else:
                self.files.check_owned()
        except ServerBusy:
            # The state in memory was not acknowledged. The next command loads the state on the disk.
            self.unload()
            raise
        if self._is_snapshot_due and not at_once:
            self._begin_journal(session)

    # Snapshots -----------------------------------------------------------------------------------

    @property
    def _is_snapshot_due(self) -> bool:
        """Whether the journal is long, and a snapshot is not too expensive."""
        is_long = self.files.size > MAX_JOURNAL_BYTES or self._replay_s > self._max_replay_s
        return is_long and self._replay_s >= SNAPSHOT_SHARE * self._snapshot_s

    def _begin_journal(self, session: HostedSession) -> None:
        """Save a snapshot and begin a new journal. If that fails, continue the old one."""
        try:
            self._save(session)
        except ServerBusy:
            logger.exception("a snapshot could not be written; the journal goes on")
            self._replay_s = 0.0

    def _save(self, session: HostedSession) -> str | None:
        """Save a snapshot and begin a journal on it. Return the reason if the session has no snapshot now."""
        begun = perf_counter()
        session.flush()
        try:
            saved = snapshot.save(session)
        except NotSupported as error:
            logger.info("no snapshot: %s", error.detail)
            self._replay_s = 0.0  # try again after the same time
            return error.detail
        self.files.replace([saved], [pack(["senders", self.senders.dump()])])
        self._templates.forget()
        self._functions.forget()
        self._replay_s, self._snapshot_s = 0.0, perf_counter() - begun
        return None

    def unload(self) -> None:
        """Free the session's memory."""
        self.session = None
        self._held = []
        self.files.close()

    def put_away(self) -> None:
        """Save the session in a snapshot, so that the next :meth:`load` is fast, and free its memory."""
        if self.session is not None and self._replay_s and self.files.owned:
            try:
                self._save(self.session)
            except ServerBusy:
                logger.exception("a snapshot could not be written; the journal has the session")
        self.unload()
        if not self.files.owned:
            return
        try:
            self.files.write_manifest()  # for the time of the last use
        except ServerBusy:
            logger.exception("the manifest of session %.6s… could not be written", self.files.manifest.id)

    def delete(self) -> None:
        """Delete the session's files, and free its memory."""
        self.session = None
        self.files.delete()

    # Loading -------------------------------------------------------------------------------------

    def load(self) -> HostedSession:
        """Restore the session from its snapshot and its journal.

        Raises SessionLost if that is impossible, and ServerBusy if it is impossible now, as for lack of memory.
        """
        self._held = []
        around = self._surroundings
        # Templates and functions come from the journal only, until it was replayed.
        self._templates = JournalTemplates(ProgramCache(sys.maxsize, sys.maxsize), self._note_use)
        self._functions = JournalFunctions(around["library"], self._note_use)
        refused, permissions.refusals = permissions.refusals, {}  # everything in the journal was permitted
        try:
            with cancelled_by(CancellationToken()):
                session = self._loaded()
        finally:
            permissions.refusals = refused
        session.max_program_s = around["max_program_s"]
        session.max_program_instructions = around["max_program_instructions"]
        session.statistics = self.statistics
        self._templates.shared = around["memory"]
        self._functions.replayed(around["library"])
        self._new.clear()
        self.session = session
        if self._is_snapshot_due:  # so that a server that is killed repeatedly makes progress
            self._begin_journal(session)
        return session

    def _loaded(self) -> HostedSession:
        """Restore the snapshot, and run the commands of the journal."""
        own: snapshot.SessionConfig = {
            **self._surroundings,
            "memory": self._templates,
            "library": self._functions,
            "max_program_s": math.inf,
            "max_program_instructions": math.inf,
        }
        saved = self.files.snapshot()
        if saved is None:
            session = HostedSession(**self._options, **own)
        else:
            session = snapshot.restore(saved, HostedSession, **own)
        session.senders, session.is_durable = self.senders, True
        self.senders.restart(session.accounts)
        self._functions.outer = None
        begun = perf_counter()
        for frame in self.files.frames():
            self._replay(session, frame.payload)
        self._replay_s = perf_counter() - begun
        return session

    def _replay(self, session: HostedSession, payload: memoryview) -> None:
        """Run the commands of one frame, and load its recorded answers. Raises SessionLost if an outcome differs."""
        outcome: tuple[str | None, int] = (None, 0)
        packed = unpack(payload)
        for kind, *rest in packed:
            if kind == "template":
                self._templates.read(rest[0], None, sys.maxsize)
            elif kind == "function":
                self._functions.replace(rest[0])
            elif kind == "command":
                name, count = rest
                outcome = _rerun(session, name, list(islice(packed, count)))
            elif kind == "outcome":
                self._compare(outcome, *rest)
            elif kind == "answer":
                sender, number, entry = rest
                self.senders.of(sender).load(number, entry)
            elif kind == "senders":
                self.senders.load(rest[0])
            else:
                raise SessionLost(f"the journal has an entry of another version of Telegrad: {kind!r:.40}")

    def _compare(self, outcome: tuple[str | None, int], slug: str | None, check: int, answers: int) -> None:
        """Compare a command's outcome with the one in the journal. Raises SessionLost or ServerBusy if it differs."""
        if outcome[0] != slug:
            if outcome[0] in UNREPEATABLE:
                raise ServerBusy(f"the session cannot be loaded now: running its journal met {outcome[0]!r}")
            raise SessionLost(
                f"the session cannot be restored: a program of its journal ended with {outcome[0] or 'no error'}, "
                f"before with {slug or 'no error'}; was it another version, or another library of functions?"
            )
        if check and answers == ANSWERS and outcome[1] != check:
            # A difference in the last bit is better than a lost session.
            logger.warning("session %.6s… is restored, but an answer differs from before", self.files.manifest.id)


def _rerun(session: HostedSession, name: str, arguments: Sequence[Any]) -> tuple[str | None, int]:
    function = COMMANDS[name]
    values = restored_arguments(function, arguments)
    try:
        result = function(session, *values)
    except Exception as error:
        return _slug(error, None), 0
    session.flush()
    return _slug(None, result), _check(result)


def _slug(error: BaseException | None, result: Any) -> str | None:
    """The slug of a command's error; None without an error."""
    if error is None:
        error = getattr(result, "error", None)
    if error is None:
        return None
    return error.slug if isinstance(error, TelegradError) else InternalError.slug


def _is_harmless(slug: str | None, error: BaseException | None, result: Any) -> bool:
    """Whether a command failed at its first instruction, without an effect."""
    error = error or getattr(result, "error", None)
    return slug in WITHOUT_EFFECT and isinstance(error, TelegradError) and error.context.get("instruction") == 0


def _check(result: Any) -> int:
    """A checksum of a short answer that a replay must have, too; 0 for other answers."""
    if isinstance(result, StreamAnswer) and result.observed:
        return 0
    answer = result.answer if isinstance(result, StreamAnswer) else result
    return xxh3_64_intdigest(answer) if isinstance(answer, bytes) and len(answer) <= MAX_CHECKED else 0
