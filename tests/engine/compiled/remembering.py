"""Sessions that are sent each program by its digest, what is known of how it ran, and values for both libraries.

Internals: a server makes its sessions with these parts, for which there is no shorter name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np

import telegrad as tg
import telegrad_engine
from telegrad_engine.compile import Compiler
from telegrad_engine.compile.input_signature import Inputs
from telegrad_engine.compile.plan import Plan
from telegrad_engine.program import Instruction
from telegrad_engine.program.program import BoundProgram, ProgramCache
from telegrad_engine.program.result import Answer
from telegrad_engine.session.session import NotAtOnce, Session

from ..templates import bound


class Tampering(Compiler):
    """A compiler of plans that a test changes: ``make`` is called with the function that makes one."""

    def __init__(self, make: Callable[[Callable[[], Plan]], Plan], after: int = 2, choose: bool = True) -> None:
        super().__init__(after, choose=choose)
        self._tamper = make

    def plan(self, program: BoundProgram, inputs: Inputs) -> Plan:
        plan = super().plan
        return self._tamper(lambda: plan(program, inputs))


class Remembering(Session):
    """A session that is sent every program by its digest, as a server's is by a loop."""

    def __init__(self, compiler: Any, **options: Any) -> None:
        super().__init__(memory=ProgramCache(), compiler=compiler, **options)
        self.within: float | None = None
        """How many seconds its callers can wait; None for as long as it takes."""
        self.at_once = 0
        """How many programs ran at once."""

    def run(self, program: Sequence[Instruction], within: float | None = None) -> Answer:
        call = program if isinstance(program, BoundProgram) else bound(self.memory, program)
        if self.within is not None:
            with suppress(NotAtOnce):
                answer = deepcopy(super().run(call, self.within))  # as it is before the rest is done
                self.at_once += 1
                return answer  # the next program finishes what this one left
        return super().run(call)

    @property
    def reports(self) -> list[Any]:
        """How its programs ran."""
        return self.compiler.reports(self)  # type: ignore[return-value]


def connect(compiler: Any, **options: Any) -> Remembering:
    """Have the SDK work in such a session."""
    session = Remembering(compiler, **options)
    tg.connect("local://").recorder.transport.session = session  # type: ignore[attr-defined]
    return session


def last(session: Remembering) -> Any:
    """How the program ran that came last."""
    return session.reports[-1]


def runs_planned(session: Remembering, least: int = 1) -> bool:
    """Whether the program that ran most often did so as a plan, to the end."""
    report = max(session.reports, key=lambda r: r.runs)
    assert report.reason is None, report.reason
    return bool(report.planned_runs >= least)


def numbers(lib: Any, shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Any:
    return lib.tensor((np.random.default_rng(seed).standard_normal(shape) * 0.4).astype(dtype))


def array(tensor: Any) -> np.ndarray:
    """The values of either's tensor."""
    return np.array(tensor.detach().tolist())


def engine_tensor(values: list[float]) -> Any:
    """The engine's own tensor of float32."""
    return telegrad_engine.Tensor(np.float32(values))
