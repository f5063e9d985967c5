"""What listeners learn of a session's programs: how each ran, the numbers that it fetched, and now and then a step.

A step is observed at most once in ``PERIOD_S`` seconds, and takes at most ``SHARE`` of the session's time: after a step
that took a second longer than usual, none is observed for ``1 / SHARE`` seconds. An observed program runs one
instruction at a time, with the same results. A session without an observation does none of this.
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
"""The number of templates, most recently used, whose usual time and origins are known."""
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
        self._lines: LRU[str, Sequence[Origin]] = LRU(MAX_TEMPLATES)
        """For each template, where the client's program has its instructions."""
        self._usual_s: LRU[str, float] = LRU(MAX_TEMPLATES)
        """The seconds that each template took when it ran unobserved."""
        self._runs: LRU[str, int] = LRU(MAX_TEMPLATES)
        self._passes: LRU[str, bool] = LRU(MAX_TEMPLATES)
        self._recent: deque[tuple[Program, Sequence[str]]] = deque(maxlen=RECENT)
        self._makers: LRU[str, Mapping[str | None, int]] = LRU(MAX_TEMPLATES)
        """For each template, the instruction that makes each id."""
        self._observer: StepObserver | None = None
        """The observer of the step that has begun."""
        self._extra_s = 0.0
        """The seconds by which observing that step has made it longer."""
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
        """Run a program for which :meth:`observer_of` has no observer, by ``run``, which runs it as a plan."""
        begun = perf_counter()
        answer = run()
        self._note(program, perf_counter() - begun, True, False)
        self._collect(program, answer)
        return answer

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
        usual: float = self._usual_s.get(template, math.inf)
        if not observed:
            self._usual_s[template] = min(usual, seconds)
        return usual

    def _has_pass(self, program: Sequence[Instruction]) -> bool:
        """Whether a program has a backward pass."""
        if not isinstance(program, BoundProgram):
            return any(i.op in PASSES for i in program)
        template = program.program.template
        found: bool | None = self._passes.get(template)
        if found is None:
            found = self._passes[template] = any(step.instruction.op in PASSES for step in program.program.steps)
        return found

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
        # Without the usual time of a program that recurs, its cost would not be known.
        recurs = isinstance(program, BoundProgram) and not program.program.is_new
        if not begins or (recurs and self._usual_s.get(program.program.template) is None):  # type: ignore[attr-defined]
            return None
        observer = self._observer = StepObserver(self.known)
        self._extra_s = 0.0
        return observer

    def _run_observed(self, session: Any, program: Sequence[Instruction], observer: StepObserver) -> Answer:
        lines = self._lines.get(program.program.template) if isinstance(program, BoundProgram) else None
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
            self._due = perf_counter() + max(PERIOD_S, self._extra_s / SHARE)

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
            template = program.program.template
            self._runs[template] = self._runs.get(template, 0) + 1
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
            slot = ids.index(name)
            index = self._makers_of(made_by).get(name if made_by.is_new else stand_in(slot))
            if index is None:
                continue
            op, lines = made_by.steps[index].instruction.op, self._lines.get(made_by.template)
            if lines is not None and index < len(lines) and (line := lines[index].line) is not None:
                return f"{line} {op}", f"{op} {line}"
            if self._runs.get(made_by.template, 0) <= UNNAMED_RUNS:
                return None
            return f"{made_by.template[:16]}:{slot}", op
        slot = program.ids.index(name) if name in program.ids else -1
        return f"{program.program.template[:16]}:{slot}", "value"

    def _makers_of(self, program: Program) -> Mapping[str | None, int]:
        """The instruction that makes each id: one of a message for a new program, else a placeholder."""
        found: Mapping[str | None, int] | None = None if program.is_new else self._makers.get(program.template)
        if found is None:
            found = {name: index for index, step in enumerate(program.steps) for name in step.instruction.outputs or ()}
            if not program.is_new:
                self._makers[program.template] = found
        return found

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
            self._lines[digest] = [_origin(pair) for pair in lines]

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


def _origin(pair: Any) -> Origin:
    if pair is None:
        return NOWHERE
    if not isinstance(pair, list) or len(pair) != 2 or not all(x is None or isinstance(x, str) for x in pair):
        raise MalformedRequest("the origin of an instruction is [module, line], each a string or null, or null")
    return Origin(*[x and x[:MAX_TEXT] for x in pair])
