"""Blocks: the programs of a registered function after they are read, as steps that run in a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...cancellation import running
from ...context import state
from ...errors import TelegradError, TooLarge
from ...tensor.abstract import Meta
from .expressions import evaluate
from .limits import NAMES_PER_STEP, Budget

NO_ROOM = "what a registered function has made so far takes more memory than there is room for"


class CallContext:
    """The parameters and the budget of one call, which all its blocks share."""

    __slots__ = ("budget", "parameters")

    def __init__(self, parameters: Mapping[str, Any], budget: Budget) -> None:
        self.parameters = parameters
        self.budget = budget

    def scope(self, block: Block, tensors: Sequence[Any]) -> Scope:
        """Return the scope in which a program runs with these inputs."""
        some = [t for t in tensors if t is not None]
        frozen = [t._version_counter for t in some]
        return Scope(dict(zip(block.inputs, tensors, strict=True)), self, frozen, some[0]._apply)


class Scope(NamedTuple):
    """The tensors of a running block by name."""

    tensors: dict[str, Any]
    call: CallContext
    frozen: Sequence[Any]
    """The version counters of the function's own inputs, which its steps must not write to."""
    apply: Callable[..., Any]
    """The function that applies ops, as the class of the inputs defines it."""

    def value(self, x: Any) -> Any:
        """Return an input of a step: the tensor with this name, or the value of an expression."""
        if type(x) is str:
            return self.tensors[x]
        return tuple([self.value(v) for v in x]) if type(x) is tuple else self.number(x)

    def number(self, x: Any) -> Any:
        """Return an attribute of a step: the value of an expression, or a plain value."""
        return evaluate(x, self.tensors, self.call.parameters)


Run = Callable[[Scope], Sequence[Any]]
"""Runs a step. Returns one result per output."""


class BlockStep(NamedTuple):
    """One instruction."""

    op: str
    outputs: Sequence[str]
    path: str
    """Its position in the definition."""
    run: Run
    size: int
    """The number of instructions that it stands for, with those of its blocks and of the function that it applies."""
    writes: bool
    """Whether it changes a tensor in place."""

    def run_in(self, scope: Scope) -> None:
        """Run, and add the results to the scope. They count as memory of the session, if there is one."""
        memory = state.memory
        try:
            for name, tensor in zip(self.outputs, self.run(scope), strict=False):
                scope.tensors[name] = tensor
                if memory is not None and tensor._base is None and not self.writes and type(tensor) is not Meta:
                    memory.count(tensor._data)
                    if memory.room < 0:
                        raise TooLarge(NO_ROOM)
        except TelegradError as error:
            error.context.setdefault("where", {"path": self.path, "op": self.op})
            raise


class Block(NamedTuple):
    """Steps with the names of their inputs and of their outputs (None for an output that is null)."""

    inputs: Sequence[str]
    steps: Sequence[BlockStep]
    outputs: Sequence[Any]
    done: Sequence[Sequence[str]]
    """For each step, the names that are not needed after it."""
    around: Sequence[str]
    """The names from outside that it uses."""

    def run(self, scope: Scope) -> list[Any]:
        """Run in ``scope``, which already has the inputs. An error has the path of its step in the context."""
        scope.call.budget.spend(1 + len(self.steps))
        token, memory = running.token, state.memory
        for step, done in zip(self.steps, self.done, strict=True):
            if token is not None:
                token.check()
            step.run_in(scope)
            for name in done:
                scope.tensors.pop(name, None)
            if memory is not None:
                state.room = memory.room  # of which the next result may take all
        return [None if name is None else scope.value(name) for name in self.outputs]

    def run_inside(self, scope: Scope, given: Sequence[Any] = ()) -> list[Any]:
        """Run once inside another block, whose scope is ``scope``; the names that it defines are local."""
        scope.call.budget.spend((len(self.around) + len(given)) // NAMES_PER_STEP)
        tensors = {name: scope.tensors[name] for name in self.around}
        tensors.update(zip(self.inputs, given, strict=True))
        return self.run(Scope(tensors, scope.call, scope.frozen, scope.apply))
