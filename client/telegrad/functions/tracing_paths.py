"""Follows both answers to every question that traced code asks about values, and joins the paths with ``cond``.

The code runs once for each path. Two runs agree up to the question that they answer differently, including the names
of their tensors. So the instructions before the question appear once in the program, and those after it in its
branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from telegrad_engine.errors import InvalidOperation, LimitExceeded
from telegrad_engine.tensor.abstract import Meta

from .tracing_recorder import Data, Tracer, tracing

MAX_PATHS = 64


class Result(NamedTuple):
    """The result of one run: names of tensors, and data that must be the same on all paths."""

    tensors: tuple[str, ...]
    rest: Any


class Program(NamedTuple):
    """The instructions of all paths and their joined result."""

    instructions: list[Data]
    result: Result
    guards: dict[str, Any]
    metas: dict[str, Meta]


class _Run(NamedTuple):
    tracer: Tracer
    result: Result


class Explorer:
    """Runs traced code along all its paths. ``code`` computes on tensors of the tracer passed to it."""

    def __init__(self, prefix: str, code: Callable[[Tracer], Result]) -> None:
        self._prefix = prefix
        self._code = code
        self._paths = 0
        self._joins = 0
        self._guards: dict[str, Any] = {}
        self._metas: dict[str, Meta] = {}

    def program(self) -> Program:
        """Return the program of all paths. Raises LimitExceeded, naming the line, for more than 64 paths."""
        instructions, result = self._join([], self._run([]))
        return Program(instructions, result, self._guards, self._metas)

    def _run(self, decisions: Sequence[bool]) -> _Run:
        tracer = Tracer(self._prefix, decisions)
        with tracing(tracer):
            result = self._code(tracer)
        self._guards |= tracer.guards
        self._metas = {**tracer.metas, **self._metas}
        return _Run(tracer, result)

    def _join(self, taken: list[bool], run: _Run) -> tuple[list[Data], Result]:
        """The instructions after the last of the decisions ``taken``, and their result."""
        tracer = run.tracer
        before = tracer.segments[len(taken)]
        if len(tracer.asked) == len(taken):
            self._paths += 1
            return before, run.result
        predicate, line = tracer.asked[len(taken)]
        if self._paths >= MAX_PATHS:
            raise LimitExceeded(
                f"{line}: the code branches on values in more than {MAX_PATHS} ways; use tg.where, or tg.while_loop "
                "for a loop that depends on values"
            )
        then, result = self._join([*taken, True], run)
        other, otherwise = self._join([*taken, False], self._run([*taken, False]))
        if result.rest != otherwise.rest or len(result.tensors) != len(otherwise.tensors):
            raise InvalidOperation(
                f"{line}: what is returned, or kept on ctx besides tensors, differs between the answers to this "
                f"question: {result.rest} and {otherwise.rest}"
            )
        made = {name for instruction in [*then, *other] for name in instruction.get("outputs", ())}
        pairs = list(zip(result.tensors, otherwise.tensors, strict=True))
        # A tensor made before the question that is the result of both paths needs no join.
        joined = tuple([a if a == b and a not in made else self._name() for a, b in pairs])
        self._metas |= {j: self._metas[t] for j, t in zip(joined, result.tensors, strict=True) if t in self._metas}
        leaving = [(j, a, b) for j, (a, b) in zip(joined, pairs, strict=True) if j != a]
        cond: Data = {
            "op": "cond",
            "inputs": [predicate],
            "outputs": [j for j, _, _ in leaving],
            "attrs": {
                "then": {"instructions": then, "outputs": [a for _, a, _ in leaving]},
                "else": {"instructions": other, "outputs": [b for _, _, b in leaving]},
            },
        }
        return [*before, cond], Result(joined, result.rest)

    def _name(self) -> str:
        self._joins += 1
        return f"{self._prefix}_{self._joins}"
