"""Blocks: the program of a registered function once it is read, as steps that run in a scope.

How a kind of step is read and run stands in :mod:`.steps` and :mod:`.control`; nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...cancellation import running
from ...errors import TelegradError
from .budget import Budget
from .expressions import evaluate
from .limits import NAMES_PER_STEP


class Scope:
    """The tensors of a running block by name, and what holds for the whole call."""

    __slots__ = ("apply", "budget", "frozen", "parameters", "tensors")

    def __init__(self, tensors: dict[str, Any], parameters: Mapping[str, Any], budget: Budget) -> None:
        self.tensors = tensors
        self.parameters = parameters
        self.budget = budget
        self.frozen = [t._version_counter for t in tensors.values() if t is not None]
        """The version counters of the function's own inputs, which its steps must not write to."""
        self.apply = next(t for t in tensors.values() if t is not None)._apply
        """How ops are applied here: as the tensors that are here have it."""

    def inner(self, names: Sequence[str], more: Mapping[str, Any]) -> Scope:
        """The scope of a block inside this one: it sees ``names`` of this one, and keeps its own to itself."""
        scope = object.__new__(Scope)
        scope.tensors = {**{name: self.tensors[name] for name in names}, **more}
        scope.parameters, scope.budget = self.parameters, self.budget
        scope.frozen, scope.apply = self.frozen, self.apply
        return scope

    def value(self, x: Any) -> Any:
        """An input of a step: the tensor of a name, or the value of an expression."""
        if type(x) is str:
            return self.tensors[x]
        return tuple([self.value(v) for v in x]) if type(x) is tuple else self.number(x)

    def number(self, x: Any) -> Any:
        """An attribute of a step: an expression's value, or what is written there."""
        return evaluate(x, self.tensors, self.parameters)


class Step:
    """One instruction. ``path`` says where it stands in the definition; ``size`` counts what it expands to."""

    __slots__ = ("op", "outputs", "path", "reads", "size")
    writes = False
    """Whether it changes a tensor in place."""

    def __init__(self, op: str, outputs: Sequence[str], path: str) -> None:
        self.op = op
        self.outputs = outputs
        self.path = path
        self.size = 1

    def run(self, scope: Scope) -> Sequence[Any]:
        """Execute; one result an output."""
        raise NotImplementedError


class Block:
    """Steps, the names they start from and the names that they end with (None where an output is null)."""

    __slots__ = ("around", "done", "inputs", "outputs", "size", "steps")

    def __init__(
        self,
        inputs: Sequence[str],
        steps: Sequence[Step],
        outputs: Sequence[Any],
        done: Sequence[Sequence[str]],
        around: Sequence[str],
    ) -> None:
        self.inputs = tuple(inputs)
        self.steps = tuple(steps)
        self.done = tuple(done)
        """For each step, the names that nothing needs after it."""
        self.around = tuple(around)
        """The names from outside that it mentions."""
        self.outputs = tuple(outputs)
        self.size = sum(step.size for step in steps)

    def run(self, scope: Scope) -> list[Any]:
        """Run in ``scope``, which has the inputs already. An error says at which step it happened.

        What the steps make counts against the room that a result has, for as long as it lives.
        """
        scope.budget.spend(1 + len(self.steps))
        token = running.token
        for step, done in zip(self.steps, self.done, strict=True):
            if token is not None:
                token.check()
            self._step(step, scope)
            for name in done:
                scope.tensors.pop(name, None)
        return [None if name is None else scope.value(name) for name in self.outputs]

    def run_inside(self, scope: Scope, given: Sequence[Any] = ()) -> list[Any]:
        """Run within another block, whose scope this is, once."""
        scope.budget.spend((len(self.around) + len(given)) // NAMES_PER_STEP)
        return self.run(scope.inner(self.around, dict(zip(self.inputs, given, strict=True))))

    def _step(self, step: Step, scope: Scope) -> None:
        try:
            results = step.run(scope)
            for name, tensor in zip(step.outputs, results, strict=False):
                scope.tensors[name] = tensor
                if tensor._base is None and not step.writes:
                    scope.budget.hold(tensor._data)
        except TelegradError as error:
            error.context.setdefault("where", {"path": step.path, "op": step.op})
            raise
