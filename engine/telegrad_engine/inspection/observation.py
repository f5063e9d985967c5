"""What listeners learn of a session's programs: how each ran, the numbers that it fetched, and now and then a step.

A step is observed at most once in ``PERIOD_S`` seconds, and takes at most ``SHARE`` of the session's time: after two
steps in a row that took a second longer than usual, none is observed for ``1 / SHARE`` seconds. One that did may have
had to wait for a busy machine. An observed program runs one instruction at a time, with the same results. A session
without an observation does none of this.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from ..errors import MalformedRequest
from ..graph.node import count_nodes
from ..lru import LRU
from ..program.instructions import MAX_INSTRUCTIONS, Instruction
from ..program.program import BoundProgram, Program
from ..program.result import Answer
from ..program.template import stand_in
from ..schema.parameters import encode_number
from .record import NOWHERE, Known, Origin
from .step import PASSES, Step, StepObserver

PERIOD_S = 1.0
SHARE = 0.005
"""The most that steps take of the session's time, and that counts of the graph take."""
GRAPH_PERIOD_S = 0.25
"""The least seconds between two counts of the graph's nodes."""
MAX_PROGRAMS = 16
"""The most programs that one step has."""
IDLE_S = 0.5
"""Seconds without a program after which the next one begins a step."""
WITHOUT_PASS = 32
"""The number of programs without a backward pass after which any of them may begin a step."""
MAX_TEMPLATES = 256
"""The number of templates, most recently used, of which anything is known."""
MAX_TEXT = 200
"""The most characters of a module's path or a line."""
RECENT = 16
"""The number of programs among which the op that made a fetched number is looked for."""
UNNAMED_RUNS = 4
"""The runs of a template in which its numbers are left out, because its client may be about to tell its lines."""


class Scalar(NamedTuple):
    """A fetched number."""

    key: str
    """Identifies the curve that it belongs to."""
    label: str
    value: Any
    """The number as JSON data."""


class Recurring:
    """What is known of the programs of one template."""

    __slots__ = ("labels", "lines", "makers", "passes", "runs", "usual_s")

    def __init__(self) -> None:
        self.lines: Sequence[Origin] | None = None
        """Where the client's program has the instructions; None if it has not told."""
        self.usual_s: float | None = None
        """The seconds that a program takes unobserved; None before the first one."""
        self.runs = 0
        """The number of runs while numbers were wanted."""
        self.passes: bool | None = None
        """Whether it has a backward pass; None if nobody has looked."""
        self.makers: Mapping[str | None, int] | None = None
        """The instruction that makes each placeholder; None if nobody has looked."""
        self.labels: dict[int, tuple[str, str]] = {}
        """The key and the label of the number in a slot, as long as the client tells no other lines."""


class Observation:
    """The observation of one session. Its programs call :meth:`run`; the other members are for who listens."""

    def __init__(self) -> None:
        self.observes = False
        """Whether anybody wants steps and numbers; otherwise only digest and tier of programs are noted."""
        self.digest: str | None = None
        """The digest of the last program's template; None for another program."""
        self.planned = False
        """Whether the last program ran as one list of NumPy calls."""
        self.scalars: list[Scalar] = []
        """The numbers that were fetched since :meth:`taken_scalars`."""
        self.step: Step | None = None
        """The last observed step."""
        self.step_sequence: int | None = None
        """The sequence number of its last program, if that had one; set by the owner."""
        self.known = Known.nothing()
        """What is known of nodes that were observed."""
        self._templates: LRU[str, Recurring] = LRU(MAX_TEMPLATES)
        self._recent: deque[tuple[Program, Sequence[str]]] = deque(maxlen=RECENT)
        self._unnoted: tuple[BoundProgram, Answer, float] | None = None
        """The last program, its answer and its seconds, if it was planned and is not noted yet."""
        self._observer: StepObserver | None = None
        """The observer of the step that has begun."""
        self._extra_s = 0.0
        """The seconds by which observing that step has made it longer."""
        self._extra_before_s = 0.0
        """Those of the step before."""
        self._due = self._graph_due = 0.0
        """When the next step may begin, and when the graph may be counted again."""
        self._without_pass = math.inf
        """The number of programs since the last backward pass."""
        self._ended = -math.inf

    @property
    def nbytes(self) -> int:
        """The bytes that the last step takes."""
        return 0 if self.step is None else self.step.nbytes

    def run(
        self, session: Any, program: Sequence[Instruction], run: Callable[[Sequence[Instruction]], Answer]
    ) -> Answer:
        """Run a program of the session, by ``run`` or observed."""
        begun = perf_counter()
        observer = self.observer_of(program)
        try:
            answer = run(program) if observer is None else self._run_observed(session, program, observer)
        finally:
            seconds = perf_counter() - begun
            usual = self._note(program, seconds, observer is None and session.last_s < math.inf, observer is not None)
            if observer is not None:
                self._extra_s += max(observer.spent_s, seconds - usual)
                observer.spent_s = 0.0
                self._end_program(session, observer, self._has_pass(program))
        self._collect(program, answer)
        return answer

    def run_planned(self, program: BoundProgram, run: Callable[[], Answer]) -> Answer:
        """Run a program for which :meth:`observer_of` has no observer, by ``run``, which runs it as a plan.

        Its owner calls :meth:`note_planned` once the answer is sent, before another program runs.
        """
        begun = perf_counter()
        answer = run()
        self._unnoted = program, answer, perf_counter() - begun
        return answer

    def note_planned(self) -> None:
        """Note the last program if :meth:`run_planned` ran it."""
        if self._unnoted is not None:
            (program, answer, seconds), self._unnoted = self._unnoted, None
            self._note(program, seconds, True, False)
            self._collect(program, answer)

    def _note(self, program: Sequence[Instruction], seconds: float, planned: bool, observed: bool) -> float:
        """Note a run of a program. Return the seconds that the program usually takes unobserved, or infinity."""
        template = self.digest = program.program.template if isinstance(program, BoundProgram) else None
        self.planned = planned
        self._ended = perf_counter()
        if not self.observes:
            return math.inf
        self._without_pass = 0 if self._has_pass(program) else self._without_pass + 1
        if template is None:
            return math.inf
        known = self._known_of(template)
        usual = math.inf if known.usual_s is None else known.usual_s
        if not observed:
            known.usual_s = min(usual, seconds)
        return usual

    def _known_of(self, template: str) -> Recurring:
        """What is known of the programs of a template."""
        found: Recurring | None = self._templates.get(template)
        if found is None:
            found = self._templates[template] = Recurring()
        return found

    def _has_pass(self, program: Sequence[Instruction]) -> bool:
        """Whether a program has a backward pass."""
        if not isinstance(program, BoundProgram):
            return any(i.op in PASSES for i in program)
        known = self._known_of(program.program.template)
        if known.passes is None:
            known.passes = any(step.instruction.op in PASSES for step in program.program.steps)
        return known.passes

    # Steps -------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """End the step that has begun, because nobody wants it any more. Any thread may call this."""
        self._observer = None

    def observer_of(self, program: Sequence[Instruction]) -> StepObserver | None:
        """The observer of a program that continues a step, or that begins one now; None for any other."""
        observer, now = self._observer, perf_counter()
        if observer is not None or not self.observes or now < self._due:
            return observer
        begins = self._without_pass == 0 or self._without_pass >= WITHOUT_PASS or now - self._ended > IDLE_S
        if not begins:
            return None
        recurs = isinstance(program, BoundProgram) and not program.program.is_new
        # Without the usual time of a program that recurs, its cost would not be known.
        if recurs and self._known_of(program.program.template).usual_s is None:  # type: ignore[attr-defined]
            return None
        observer = self._observer = StepObserver(self.known)
        self._extra_s = 0.0
        return observer

    def _run_observed(self, session: Any, program: Sequence[Instruction], observer: StepObserver) -> Answer:
        lines = self._known_of(program.program.template).lines if isinstance(program, BoundProgram) else None
        outer = session.on_instruction
        session.on_instruction = observer.begin(lines or (), outer)
        try:
            answer: Answer = session.run_instructions(program, observer)
            return answer
        finally:
            session.on_instruction = outer

    def _end_program(self, session: Any, observer: StepObserver, visits: bool) -> None:
        """Publish the step so far, and end it after a backward pass."""
        begun = perf_counter()
        if len(observer.record):
            self.step = observer.step_of(session.tensors, (0 if self.step is None else self.step.revision) + 1)
        observer.programs += 1
        self._extra_s += perf_counter() - begun
        if observer.is_complete or visits or observer.programs >= MAX_PROGRAMS:
            self._observer = None
            extra_s, self._extra_before_s = min(self._extra_s, self._extra_before_s), self._extra_s
            self._due = perf_counter() + max(PERIOD_S, extra_s / SHARE)

    # Numbers -----------------------------------------------------------------------------------

    def taken_scalars(self) -> list[Scalar]:
        """The numbers that were fetched since the last call."""
        found, self.scalars = self.scalars, []
        return found

    def _collect(self, program: Sequence[Instruction], answer: Answer) -> None:
        """Note the numbers among the fetched values, if anybody wants them."""
        if not self.observes:
            return
        if isinstance(program, BoundProgram):
            self._known_of(program.program.template).runs += 1
            self._recent.appendleft((program.program, program.ids))
        for name, value in answer.values.items():
            if value.array is not None and value.array.size == 1:
                described = self._described(program, name)
                if described is not None:
                    number = encode_number(float(value.array.reshape(())))
                    self.scalars.append(Scalar(*described, number))

    def _described(self, program: Sequence[Instruction], name: str) -> tuple[str, str] | None:
        """The key and the label of a fetched number; None if it is left out."""
        if not isinstance(program, BoundProgram):
            return name, name
        for made_by, ids in self._recent:
            if name not in ids:
                continue
            slot, known = ids.index(name), self._known_of(made_by.template)
            if not made_by.is_new and (described := known.labels.get(slot)) is not None:
                return described
            index = _makers_of(made_by, known).get(name if made_by.is_new else stand_in(slot))
            if index is None:
                continue
            op, lines = made_by.steps[index].instruction.op, known.lines
            if lines is not None and index < len(lines) and (line := lines[index].line) is not None:
                described = f"{line} {op}", f"{op} {line}"
            elif known.runs <= UNNAMED_RUNS:
                return None
            else:
                described = f"{made_by.template[:16]}:{slot}", op
            if not made_by.is_new:
                known.labels[slot] = described
            return described
        slot = program.ids.index(name) if name in program.ids else -1
        return f"{program.program.template[:16]}:{slot}", "value"

    # What the client tells -----------------------------------------------------------------------

    def add_origins(self, origins: Any) -> None:
        """Note where a client's program has the instructions of templates.

        ``origins`` has for each digest a list of ``[module, line]`` or null. Raises MalformedRequest.
        """
        if not isinstance(origins, dict) or len(origins) > MAX_TEMPLATES:
            raise MalformedRequest(
                "origins has for each template a list of [module, line], or null, for its instructions"
            )
        for digest, lines in origins.items():
            if not isinstance(lines, list) or len(lines) > MAX_INSTRUCTIONS:
                raise MalformedRequest("the origins of a template are a list of [module, line], or null")
            known = self._known_of(digest)
            known.lines, known.labels = [_origin(pair) for pair in lines], {}

    # The graph -----------------------------------------------------------------------------------

    def count_graph(self, session: Any) -> int | None:
        """The number of nodes of the session's graph; None if it was counted recently, as that takes time."""
        begun = perf_counter()
        if begun < self._graph_due:
            return None
        nodes = count_nodes(session.tensors.values())
        self.note_reading(perf_counter() - begun)
        return nodes

    def note_reading(self, seconds: float) -> None:
        """Note that the graph was read for so long, while programs had to wait."""
        self._graph_due = max(self._graph_due, perf_counter() + max(GRAPH_PERIOD_S, seconds / SHARE))


def _makers_of(program: Program, known: Recurring) -> Mapping[str | None, int]:
    """The instruction that makes each id: one of a message for a new program, else a placeholder."""
    if not program.is_new and known.makers is not None:
        return known.makers
    found = {name: index for index, step in enumerate(program.steps) for name in step.instruction.outputs or ()}
    if not program.is_new:
        known.makers = found
    return found


def _origin(pair: Any) -> Origin:
    if pair is None:
        return NOWHERE
    if not isinstance(pair, list) or len(pair) != 2 or not all(x is None or isinstance(x, str) for x in pair):
        raise MalformedRequest("the origin of an instruction is [module, line], each a string or null, or null")
    return Origin(*[x and x[:MAX_TEXT] for x in pair])
