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
from telegrad_engine.program.program import Program
from telegrad_engine.program.program_cache import Make, ProgramCache, Programs
from telegrad_engine.program.registered_functions import Library, permissions
from telegrad_engine.program.registered_functions.function import Applicable, FunctionProgram
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import NotAtOnce
from telegrad_engine.session.statistics import Statistics

from ..journal.format import Data, pack, pack_command, unpack
from ..journal.store import SessionFiles
from .commands import COMMANDS, NAMES, QUERIES, restored_arguments, run_numbered
from .sequence import HostedSession, SequenceRecords, StreamAnswer

Note = Callable[[str, Any], None]
"""Takes the kind and the data of what a session uses for the first time since its journal began."""


class JournalTemplates:
    """The server's cache of templates, as one session uses it."""

    def __init__(self, shared: Programs, note: Note) -> None:
        self.shared, self._note = shared, note
        self._known: set[str] = set()

    def read(self, text: str, claimed: str | None, max_depth: int) -> Program:
        """Read and cache a template whose text the message has, so that the journal has it too."""
        found = self.shared.read(text, claimed, max_depth)
        self._known.add(found.digest)
        return found

    def find(self, known_by: Any, make: Make | None = None) -> Program:
        """Return a cached template, whose text is new on first use. A program that the session makes is not."""
        found = self.shared.find(known_by, make)
        if make is None and known_by not in self._known:
            self._known.add(known_by)
            self._note("template", found.text)
        return found

    def forget(self) -> None:
        """Take every template as new again, because a new journal begins."""
        self._known.clear()


class JournalFunctions(Library):
    """The server's library of functions, as one session uses it.

    While a journal is replayed, ``outer`` is None: functions come from the journal alone.
    """

    def __init__(self, shared: Library, note: Note) -> None:
        super().__init__(shared)
        self._note = note
        self._known: dict[str, Applicable] = {}

    def find(self, name: str) -> Applicable:
        """Return a function, whose definition is new on first use, and those of the functions it applies."""
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
        """Add a function to the server's library; during a replay, to this one."""
        add = super().add if self.outer is None else self.outer.add
        add(function)

    def remove(self, name: str) -> None:
        """Remove a function from the server's library; during a replay, from this one."""
        remove = super().remove if self.outer is None else self.outer.remove
        remove(name)

    def replace(self, definition: Mapping[str, Any]) -> None:
        """Use this definition of a shared function during a replay."""
        self.own.pop(definition["name"], None)
        self.own[definition["name"]] = FunctionProgram(definition, self.find)

    def replayed(self, shared: Library) -> None:
        """Use the server's functions from now on."""
        self.own.clear()
        self.outer = shared

    def forget(self) -> None:
        """Take every function as new again, because a new journal begins."""
        self._known.clear()


logger = logging.getLogger(__name__)
MAX_JOURNAL_BYTES = 128 * 2**20
"""A snapshot begins a new journal when the journal has more bytes."""
SNAPSHOT_SHARE = 20
"""Commands must have run this many times as long as the last snapshot took before there is another one."""
ANSWERS = 1
"""The format of commands' answers. Raise it when one changes: a replay then does not compare the answers of before."""
MAX_CHECKED = 2**16
"""The largest answer, in bytes, whose checksum a replay compares."""
UNREPEATABLE = frozenset(slug for slug, error in ERRORS.items() if not error.repeatable)
"""Errors that depend on more than the session's state, so that a replay might not meet them."""
WITHOUT_EFFECT = frozenset({"function-exists", "missing-scope", "unknown-function"})
"""Those of them that an instruction meets before it does anything."""


class Durable:
    """Runs the commands of one durable session, whose journal and snapshots are in ``files``.

    ``options`` are the arguments of a new :class:`Session`, and ``surroundings`` those that are not state.
    All methods are called by one thread at a time, in the order of the session's commands.
    """

    def __init__(
        self,
        files: SessionFiles,
        options: Mapping[str, Any],
        surroundings: snapshot.SessionConfig,
        max_replay_s: float,
    ) -> None:
        self.files = files
        self.senders = SequenceRecords()
        self.session: HostedSession | None = None
        """The session; None while it is only on the disk."""
        self.statistics = Statistics()
        """What the session has used, since the server started."""
        self._options, self._surroundings = options, surroundings
        self._templates = JournalTemplates(surroundings["memory"], self._note_use)
        self._functions = JournalFunctions(surroundings["library"], self._note_use)
        self._new: list[Data] = []
        """The templates and functions that commands have used and the journal does not have."""
        self._held: list[Data] = []
        """The parts of the next frame, while a numbered request has not been answered."""
        self._snapshot_wanted = False
        """Whether that frame is to be a snapshot instead."""
        self._max_replay_s = max_replay_s
        """A snapshot begins a new journal when running the journal again would take longer."""
        self._replay_s = 0.0
        """The seconds that the commands of the journal took."""
        self._snapshot_s = 0.0

    # Running -------------------------------------------------------------------------------------

    def run(
        self, function: Callable[..., Any], arguments: Sequence[Any], task: Callable[..., Any], holds: bool = False
    ) -> Any:
        """Return ``task(session, *arguments)``, which calls the command ``function``, written to the journal.

        With ``holds`` it is written together with the answer that :meth:`answer` gets. Raises ServerBusy, with the
        command undone, if the journal cannot be written, SessionMoved if another server has the session by then, and
        SessionLost if the session cannot be loaded.
        """
        session = self.session or self.load()
        if function in QUERIES:
            result = task(session, *arguments)
            self.files.check_owned()  # afterwards: so far the result was the latest
            return result
        return self._run(session, function, arguments, task, holds)

    def run_at_once(self, function: Callable[..., Any], arguments: Sequence[Any], within: float) -> Any:
        """Return ``function(session, *arguments, within=within)``. Raises NotAtOnce if the disk must be waited for."""
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
        # Before it runs, because it may change arrays that it was given.
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
        # A message may only free tensors.
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
        """Write the commands of a numbered request together with its recorded answer. Raises ServerBusy."""
        session = self.session
        if session is None:
            raise ServerBusy("the session's journal could not be written")
        self._hold_answer(sender, number)
        try:
            self._write(session)
        except SessionMoved as moved:  # it may be repeated: either the other server has the answer, too, or neither
            raise SessionMoved(moved.detail) from None

    def _hold_answer(self, sender: str, number: int) -> None:
        """Add the recorded answer to a numbered request, if there is one, to the next frame."""
        if (recorded := self.senders.of(sender).dump(number)) is not None:
            self._held.append(pack(["answer", sender, number, recorded]))

    def _note_use(self, kind: str, data: Any) -> None:
        """Note a template or a function that the session uses for the first time since its journal began."""
        self._new.append(pack([kind, data]))

    def _write(self, session: HostedSession, at_once: bool = False) -> None:
        """Write the next frame, or a snapshot. Raises ServerBusy, and forgets what was not written."""
        parts, self._held = self._held, []
        wanted, self._snapshot_wanted = self._snapshot_wanted, False
        try:
            # The recorded answers are part of a snapshot, and so are the effects of the commands in this frame.
            if wanted and (reason := self._save(session)) is not None:
                raise ServerBusy(f"what the program did cannot be kept, and was undone: {reason}")
            if parts and not wanted:
                self.files.append(parts)
            else:
                self.files.check_owned()
        except ServerBusy:
            # What is in memory was not acknowledged; the next command loads what is on the disk.
            self.unload()
            raise
        if self._is_snapshot_due and not at_once:
            self._begin_journal(session)

    # Snapshots -----------------------------------------------------------------------------------

    @property
    def _is_snapshot_due(self) -> bool:
        """Whether the journal has become long, and the last snapshot is not too recent."""
        is_long = self.files.size > MAX_JOURNAL_BYTES or self._replay_s > self._max_replay_s
        return is_long and self._replay_s >= SNAPSHOT_SHARE * self._snapshot_s

    def _begin_journal(self, session: HostedSession) -> None:
        """Save a snapshot and begin a new journal."""
        try:
            self._save(session)
        except ServerBusy:
            logger.exception("a snapshot could not be written; the journal goes on")
            self._replay_s = 0.0

    def _save(self, session: HostedSession) -> str | None:
        """Save a snapshot and begin a journal on it. Return why the session cannot be saved now, if so."""
        begun = perf_counter()
        session.flush()
        try:
            saved = snapshot.save(session)
        except NotSupported as error:
            logger.info("no snapshot: %s", error.detail)
            self._replay_s = 0.0  # until the same time has passed again
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
        """Save the session in a snapshot, which makes the next :meth:`load` quick, and free its memory."""
        if self.session is not None and self._replay_s and self.files.owned:
            try:
                self._save(self.session)
            except ServerBusy:
                logger.exception("a snapshot could not be written; the journal has the session")
        self.unload()
        if not self.files.owned:
            return
        try:
            self.files.write_manifest()  # which has the time of the last use
        except ServerBusy:
            logger.exception("the manifest of session %.6s… could not be written", self.files.manifest.id)

    def delete(self) -> None:
        """Delete the session's files, and free its memory."""
        self.session = None
        self.files.delete()

    # Loading -------------------------------------------------------------------------------------

    def load(self) -> HostedSession:
        """Make the session from its snapshot and its journal.

        Raises SessionLost if that is not possible, and ServerBusy if it is not possible now, as for lack of memory.
        """
        self._held = []
        around = self._surroundings
        # Templates and functions come from the journal alone, until it has been replayed.
        self._templates = JournalTemplates(ProgramCache(sys.maxsize, sys.maxsize), self._note_use)
        self._functions = JournalFunctions(around["library"], self._note_use)
        refused, permissions.refusals = permissions.refusals, {}  # what the journal has was permitted
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
        if self._is_snapshot_due:  # so that a server that is killed again and again starts from here the next time
            self._begin_journal(session)
        return session

    def _loaded(self) -> HostedSession:
        """The session in the state of its snapshot, after the commands of its journal."""
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
        """Run the commands of one frame, and record its answers. Raises SessionLost if they end otherwise."""
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
        """Hold the end of a command against that in the journal. Raises SessionLost or ServerBusy if it is another."""
        if outcome[0] != slug:
            if outcome[0] in UNREPEATABLE:
                raise ServerBusy(f"the session cannot be loaded now: running its journal met {outcome[0]!r}")
            raise SessionLost(
                f"the session cannot be restored: a program of its journal ended with {outcome[0] or 'no error'}, "
                f"before with {slug or 'no error'}; was it another version, or another library of functions?"
            )
        if answers == ANSWERS and outcome[1] != check:
            # Losing the session would be worse than a last bit that differs.
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
    """The slug of a command's error; None if it has none."""
    if error is None:
        error = getattr(result, "error", None)
    if error is None:
        return None
    return error.slug if isinstance(error, TelegradError) else InternalError.slug


def _is_harmless(slug: str | None, error: BaseException | None, result: Any) -> bool:
    """Whether a command failed at its first instruction, which had no effect."""
    error = error or getattr(result, "error", None)
    return slug in WITHOUT_EFFECT and isinstance(error, TelegradError) and error.context.get("instruction") == 0


def _check(result: Any) -> int:
    """A checksum of a short answer; 0 for any other."""
    answer = result.answer if isinstance(result, StreamAnswer) else result
    return xxh3_64_intdigest(answer) if isinstance(answer, bytes) and len(answer) <= MAX_CHECKED else 0
