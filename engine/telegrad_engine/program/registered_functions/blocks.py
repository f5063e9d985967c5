"""Blocks: the programs of a registered function after they are read, as steps that run in a scope.

The kinds of steps are defined in :mod:`.steps` and :mod:`.control`; this module does not depend on them.
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
    """The tensors of a running block by name, and the parameters and the budget of the whole call."""

    __slots__ = ("apply", "budget", "frozen", "parameters", "tensors")

    def __init__(self, tensors: dict[str, Any], parameters: Mapping[str, Any], budget: Budget) -> None:
        self.tensors = tensors
        self.parameters = parameters
        self.budget = budget
        self.frozen = [t._version_counter for t in tensors.values() if t is not None]
        """The version counters of the function's own inputs, which its steps must not write to."""
        self.apply = next(t for t in tensors.values() if t is not None)._apply
        """The function that applies ops, as the class of the inputs defines it."""

    def inner(self, names: Sequence[str], more: Mapping[str, Any]) -> Scope:
        """Return the scope of a nested block, which has ``names`` of this one and ``more``; its own names are local."""
        scope = object.__new__(Scope)
        scope.tensors = {**{name: self.tensors[name] for name in names}, **more}
        scope.parameters, scope.budget = self.parameters, self.budget
        scope.frozen, scope.apply = self.frozen, self.apply
        return scope

    def value(self, x: Any) -> Any:
        """Return an input of a step: the tensor with this name, or the value of an expression."""
        if type(x) is str:
            return self.tensors[x]
        return tuple([self.value(v) for v in x]) if type(x) is tuple else self.number(x)

    def number(self, x: Any) -> Any:
        """Return an attribute of a step: the value of an expression, or a plain value."""
        return evaluate(x, self.tensors, self.parameters)


class Step:
    """One instruction. ``path`` is its position in the definition; ``size`` is the instructions that it expands to."""

    __slots__ = ("op", "outputs", "path", "reads", "size")
    writes = False
    """Whether it changes a tensor in place."""

    def __init__(self, op: str, outputs: Sequence[str], path: str) -> None:
        self.op = op
        self.outputs = outputs
        self.path = path
        self.size = 1

    def run(self, scope: Scope) -> Sequence[Any]:
        """Run the step. Return one result per output."""
        raise NotImplementedError


class Block:
    """Steps with the names of their inputs and of their outputs (None for an output that is null)."""

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
        """For each step, the names that are not needed after it."""
        self.around = tuple(around)
        """The names from outside that it uses."""
        self.outputs = tuple(outputs)
        self.size = sum(step.size for step in steps)

    def run(self, scope: Scope) -> list[Any]:
        """Run in ``scope``, which already has the inputs. An error has the path of its step in the context.

        The tensors that the steps make count against the room for results while they are alive.
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
        """Run once inside another block, whose scope is ``scope``."""
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
