"""Remembered programs with procedures written out, for those who look at a program as a whole: what compiles them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..errors import InvalidArgument
from ..lru import LRU
from .instructions import Instruction
from .procedures import Procedure, Procedures
from .remembered import Bound, Remembered, Step
from .template import digest, stand_in

PROGRAMS = 256
"""How many are kept of one session: those used last."""


class WrittenOut(Remembered):
    """A remembered program in which the instructions of procedures stand where it calls them."""

    def __init__(self, program: Remembered, called: Mapping[int, Procedure]) -> None:
        texts = [program.digest, *[f"{place}:{procedure.digest}" for place, procedure in called.items()]]
        self.digest, self.template = digest(" ".join(texts)), program.template
        self.size, self._endings = program.size, LRU(1)
        self._uploads, self._operands = program._uploads, program._operands
        self.first = self._ids = program._ids
        """The number of the first id that is none of the program's own."""
        self.steps = []
        self.outlines, self.is_new = {}, False
        for place, step in enumerate(program.steps):
            self.steps += [step] if place not in called else self._written(step.instruction, called[place])

    def _written(self, call: Instruction, procedure: Procedure) -> Iterator[Step]:
        """The instructions of one call, and one that frees what it does not give back."""
        names: dict[str, Any] = dict(zip(procedure.inputs, call.inputs[0], strict=True))
        given_back = dict(zip(procedure.outputs, call.outputs, strict=False))
        dropped = []

        def renamed(values: Sequence[Any]) -> list[Any]:
            return [names[x] if type(x) is str else tuple(renamed(x)) if type(x) is tuple else x for x in values]

        for step in procedure.steps:
            inputs = renamed(step.inputs)
            for name in step.outputs:
                names[name] = given_back.get(name) or self._new()
                if name not in given_back:
                    dropped.append(names[name])
            instruction = procedure.with_numbers(step, names)
            mode = step.grad_mode or call.grad_mode
            yield Step(
                Instruction(step.op, inputs, renamed(step.outputs), instruction.attrs, mode, step.checked), None, None
            )
        if dropped:
            yield Step(Instruction("free", [tuple(dropped)]), None, None)

    def _new(self) -> str:
        self._ids += 1
        return stand_in(int(self._ids) - 1)

    @cached_property
    def fresh(self) -> list[str]:
        """Ids for what its procedures make: no client's looks like that."""
        return [f"%{i}" for i in range(int(self._ids - self.first))]


class Inlined(Bound):
    """Such a program on the tensors of one message. Run one by one, its instructions are those that were sent."""

    def __init__(self, sent: Bound, written: WrittenOut) -> None:
        self._sent = sent
        super().__init__(written, [*sent.ids[: int(written.first)], *written.fresh], sent.arrays, sent.operands)

    @property
    def distinct(self) -> bool:
        """Whether no id stands twice in the message."""
        return self._sent.distinct

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions, with calls. Raises MalformedRequest as any program."""
        return self._sent.instructions


class Inliner:
    """Writes out the programs of one session, each once."""

    def __init__(self, procedures: Procedures) -> None:
        self._procedures = procedures
        self._known: LRU[tuple[str, ...], WrittenOut] = LRU(PROGRAMS)

    def written_out(self, program: Bound) -> Bound:
        """The program without calls; itself, if there are none, one will fail, or it runs for the first time."""
        if program.remembered.is_new:
            return program
        places = program.remembered.calls
        if not places:
            return program
        called = {}
        for place in places:
            call = program.remembered.steps[place].instruction
            procedure = self._procedures.get(call.attrs.get("name"))
            if procedure is None or not _fits(call, procedure):
                return program
            called[place] = procedure
        key = (program.digest, *[procedure.digest for procedure in called.values()])
        written = self._known.get(key)
        if written is None:
            try:
                written = self._known[key] = WrittenOut(program.remembered, called)
            except InvalidArgument:
                return program  # a tensor in the place of a number, say: the call says so
        return Inlined(program, written)


def _fits(call: Instruction, procedure: Procedure) -> bool:
    """Whether a call has what the procedure takes, and each of its outputs is a tensor that the procedure makes."""
    given = call.inputs[0] if len(call.inputs) == 1 else None
    if not isinstance(given, tuple) or len(given) != len(procedure.inputs) or call.attrs.keys() != {"name"}:
        return False
    if not all(isinstance(x, (str, bool, int, float)) for x in given):
        return False
    return len(call.outputs) <= len(procedure.outputs) and procedure.makes_its_outputs
