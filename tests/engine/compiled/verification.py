"""A compiler that checks each run of a plan against the interpreter, for tests of which programs run how.

Before a run it copies what the program takes to another session. Afterwards it runs the program there one instruction
at a time, and everything that either leaves has to be the same, bit for bit.

Internals: everything that a program leaves is compared, whether or not a client could see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from telegrad_engine import Tensor
from telegrad_engine.compile import Compiler
from telegrad_engine.compile.compiler import CacheEntry
from telegrad_engine.compile.graphs import rebuild
from telegrad_engine.compile.input_signature import Inputs
from telegrad_engine.dtypes import FLOATING
from telegrad_engine.errors import TelegradError
from telegrad_engine.program.program import BoundProgram
from telegrad_engine.program.result import Answer, describe
from telegrad_engine.session.environment import Environment
from telegrad_engine.session.session import Session


class VerifyingCompiler(Compiler):
    """Raises AssertionError where a plan leaves something else than the interpreter."""

    verified = 0
    """How many runs were checked."""

    def _attempt(self, program: BoundProgram, inputs: Inputs, entry: CacheEntry) -> Answer | None:
        twin = Twin(program, inputs) if entry.plans else None
        answer = super()._attempt(program, inputs, entry)
        if answer is None or twin is None:
            return answer
        answer = deepcopy(answer)  # as it is before the session changes
        inputs.session.flush()
        try:
            difference = twin.difference(inputs.session, answer)
        except TelegradError as error:  # which the SDK would take for the program's
            difference = f"the interpreter raises {error!r}"
        assert difference is None, f"as a plan the program gave something else: {difference}"
        self.verified += 1
        return answer


class Twin:
    """A session with copies of what a program takes, in which it runs one instruction at a time."""

    def __init__(self, program: BoundProgram, inputs: Inputs) -> None:
        session, self._program = inputs.session, program
        self._session = Session(max_bytes=2**62)
        there = session.environment
        self._session.environment = Environment(there.device, there.dtype, deepcopy(there.generator))
        self._session.functions = session.functions
        self._cells: dict[int, list[int]] = {}
        taken = [self._copied(tensor) for tensor in inputs.tensors]
        signature = inputs.signature
        for tensor, spec in zip(taken, signature.tensors, strict=True):
            tensor._grad = None if spec.grad is None else taken[spec.grad]
        self._template = program.program
        self._session.tensors |= {id: session.tensors[id] for i in self._template.freed if (id := program.ids[i])}
        for i, place in zip(self._template.taken, signature.places, strict=True):
            self._session.tensors[program.ids[i]] = taken[place]
        graph = inputs._graph
        if graph is not None:
            rebuild(graph.signature, taken, graph.arrays, graph.numbers)

    def difference(self, session: Session, answer: Answer) -> str | None:
        """What the plan, which gave ``answer``, left otherwise in its session; None if it left the same."""
        expected = self._session.run_instructions(self._program.instructions)
        for name, value in expected.values.items():
            other = answer.values.get(name)
            if other is None or other.description != value.description:
                return f"{name}, when it is fetched"
            if value.array is not None and not _same(other.array, value.array):
                return f"the value of {name}, when it is fetched"
        generators = [each.environment.generator.bit_generator.state for each in (self._session, session)]
        if generators[0] != generators[1]:
            return "how many random numbers it draws"
        places = [*self._template.taken, *self._template.made, *self._template.freed]
        ours, theirs = [[s.tensors.get(self._program.ids[i]) for i in places] for s in (session, self._session)]
        if _sharing(ours) != _sharing(theirs):
            return "which tensors are left, and which of them share memory"
        for i, a, b in zip(places, ours, theirs, strict=True):
            if a is not None and b is not None and (found := self._between(a, b)):
                return f"{found} of {self._program.ids[i]}"
        return None

    def _between(self, a: Tensor, b: Tensor) -> str | None:
        if describe("", a) != describe("", b):
            return "the shape, dtype, version or history"
        if not _same(a._host(), b._host()):
            return "the value"
        if (a._grad is None) != (b._grad is None):
            return "whether there is a gradient"
        if a._grad is not None and b._grad is not None and (found := self._between(a._grad, b._grad)):
            return f"{found} of the gradient"
        return None

    def _copied(self, tensor: Any) -> Any:
        copied = Tensor(tensor._data.copy(order="K"))
        copied._version_counter = self._cells.setdefault(id(tensor._version_counter), list(tensor._version_counter))
        copied._requires_grad = tensor._requires_grad
        return copied


def _sharing(tensors: Sequence[Tensor | None]) -> list[int | None]:
    """For each tensor the first that has the same memory."""
    first: dict[int, int] = {}
    return [None if t is None else first.setdefault(id(t._version_counter), i) for i, t in enumerate(tensors)]


def _same(a: Any, b: Any) -> bool:
    """Whether every element is the same number, or NaN in both."""
    same = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype in FLOATING else a == b
    return bool((same | ((a != a) & (b != b))).all())
