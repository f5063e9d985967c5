"""The observer of a step of a training loop: it keeps what the step computed, and no tensor of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref

from ..errors import UnknownResource
from ..instrumentation import Observer, Run
from ..program.instructions import Instruction
from ..shapes import Spec
from .details import NodeFacts, describe, facts_of
from .record import NOWHERE, GraphRecord, Known, Names, Origin, add_leaf, add_operation, is_constant
from .statistics import Sample, number_of, sample_of

MAX_NODES = 10_000
"""The most operations that are kept; the others are counted."""
MAX_SAMPLED = 1500
"""The number of operations whose values and gradients are sampled."""
SAMPLE = 512
"""The most elements of a sample."""
NODE_BYTES = 512
"""The estimated bytes of a node without its samples."""
PASSES = frozenset({"backward", "grad", "resume"})
"""The verbs that run a backward pass."""
NO_NAMES = Names({})
OnInstruction = Callable[[Callable[[Instruction], None], Instruction], None]


class Step(NamedTuple):
    """What an observed step computed, in an object that nothing changes any more."""

    record: GraphRecord
    facts: Mapping[int, NodeFacts]
    values: Mapping[int, Sample]
    """Samples of operations' first outputs and of leaves, by position in the record."""
    grads: Mapping[int, Sample]
    """Samples of the gradients that reached operations and leaves, by position."""
    revision: int

    @property
    def nbytes(self) -> int:
        """The bytes that the step takes, estimated."""
        samples = sum([sample.nbytes for kept in (self.values, self.grads) for sample in kept.values()])
        return NODE_BYTES * len(self.record) + samples

    def describe(self, name: str) -> dict[str, Any]:
        """The details of a node as JSON data. Raises UnknownResource if there is none of this id."""
        for position in range(len(self.record)):
            if self.record.id_of(position) == name:
                found = position, self.facts.get(position), self.values.get(position), self.grads.get(position)
                return describe(self.record, *found)
        raise UnknownResource(f"no node {name!r:.60} in the observed step; a later step may have replaced it")


class StepObserver(Observer):
    """Keeps the nodes that programs record, and the gradients of the backward pass over them.

    Programs may have several steps. The first pass over nodes that were recorded meanwhile completes the step.
    """

    def __init__(self, known: Known) -> None:
        """``known`` gets the origins and the constants of nodes."""
        self.programs = 0
        """The number of programs of the step that have ended."""
        self.spent_s = 0.0
        """The seconds that observing took since the owner set this to 0."""
        self._known = known
        self._lines: Sequence[Origin] = ()
        self._index, self._depth = -1, 0
        """The index of the instruction that runs, and the number of instructions around the one that runs."""
        self._reset()

    def _reset(self) -> None:
        """Forget all nodes."""
        self.record = GraphRecord()
        self.is_complete = False
        """Whether a pass over recorded nodes has ended, so that nothing more is kept."""
        self._has_nodes = self._has_pass = False
        """Whether nodes were recorded, and whether a pass has ended."""
        self._has_history = True
        """Whether nodes from before the step are kept, too; not if they are too many."""
        self._facts: dict[int, NodeFacts] = {}
        self._values: dict[int, Sample] = {}
        self._grads: dict[int, Sample] = {}
        self._operations: dict[int, int] = {}
        """The positions of operations by sequence number."""
        self._leaves: dict[Any, int] = {}
        self._constants: dict[ref[Any], int] = {}
        """The positions of tensors that need no gradient."""

    def begin(self, lines: Sequence[Origin], outer: OnInstruction | None) -> OnInstruction:
        """Begin a program whose instructions have these origins. Return what is called around each instruction."""
        self._lines, self._index, self._depth = lines, -1, 0
        return partial(self._around, outer)

    def _around(
        self, outer: OnInstruction | None, execute: Callable[[Instruction], None], instruction: Instruction
    ) -> None:
        self._index += not self._depth  # the instructions of a function count as the one that applies it
        self._depth += 1
        try:
            if outer is None:
                execute(instruction)
            else:
                outer(execute, instruction)
        finally:
            self._depth -= 1
            if instruction.op in PASSES and len(self.record):
                self._has_pass, self.is_complete = True, self._has_nodes

    # What programs do ----------------------------------------------------------------------------

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Keep a node that was recorded, and a sample of its output."""
        super().node(node, inputs, outputs)
        if self.is_complete:
            return
        begun = perf_counter()
        if self._has_pass and not self._has_nodes:
            self._reset()  # that was the pass of an earlier step
        self._has_nodes = True
        self._known.constants[node] = _constants_among(inputs)
        position = self._position_of(node)
        if position is not None:
            if 0 <= self._index < len(self._lines) and (origin := self._lines[self._index]) is not NOWHERE:
                self.record.origins[position] = self._known.origins[node] = origin
            value = getattr(outputs[0], "_data", None)  # None for a Function's output that is no tensor
            if position < MAX_SAMPLED and not isinstance(value, Spec | None):  # the history of a view has no values
                self._keep_value(position, value)
        self.spent_s += perf_counter() - begun

    def backward(self, values: Any, accumulate: Run) -> tuple[Any, Run]:
        """Keep samples of the gradients of a pass."""
        if self.is_complete:
            return super().backward(values, accumulate)
        kind: Any = type(values)
        observed = copy(values)
        observed.__class__ = _observed_class(kind)
        observed.observer = self

        def store(tensor: Any, grad: Any, may_mutate: bool) -> None:
            self.gradient_of_leaf(tensor, values.data(grad))
            accumulate(tensor, grad, may_mutate)

        return super().backward(observed, store)

    def gradient(self, node: Any, grad: Any) -> None:
        """Keep a sample of a gradient that has reached an operation."""
        begun = perf_counter()
        position = self._position_of(node)
        if position is not None:
            self._keep_gradient(position, grad)
        self.spent_s += perf_counter() - begun

    def gradient_of_leaf(self, leaf: Any, grad: Any) -> None:
        """Keep a sample of a leaf's gradient."""
        begun = perf_counter()
        position = self._leaves.get(leaf)
        if position is not None:
            self._keep_gradient(position, grad)
        self.spent_s += perf_counter() - begun

    def _keep_gradient(self, position: int, grad: Any) -> None:
        if position < MAX_SAMPLED:
            sample = self._grads[position] = sample_of(grad, SAMPLE)
            self.record.grad_norms[position] = sample.norm()

    def _position_of(self, node: Any) -> int | None:
        """The position of an operation, which is added with those that it depends on; None if there is no room."""
        known = self._operations.get(node.sequence)
        if known is not None:
            return known
        if len(self.record) >= MAX_NODES:
            self.record.omitted += 1
            return None
        if not self._add_with_history(node):
            self._has_history = False
            self._add(node)
        return self._operations[node.sequence]

    def _add_with_history(self, node: Any) -> bool:
        """Add an operation after all that it depends on. Return whether there was room for that."""
        waiting = [node] if self._has_history else []
        while waiting:
            last = waiting[-1]
            missing = [
                target
                for target in last.next_edges
                if target is not None and target.leaf is None and target.sequence not in self._operations
            ]
            if len(self.record) + len(waiting) + len(missing) > MAX_NODES:
                return False
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if last.sequence not in self._operations:
                self._add(last)
        return self._has_history

    def _add(self, node: Any) -> None:
        found = [self._input(target, node) for target in node.next_edges if target is not None]
        inputs = [position for position in found if position is not None]
        inputs += [self._constant(each, node) for each in self._known.constants.get(node, ()) if each() is not None]
        position = self._operations[node.sequence] = len(self.record)
        add_operation(self.record, node, inputs)
        if position < MAX_SAMPLED:
            self._facts[position] = facts_of(node)

    def _input(self, target: Any, user: Any) -> int | None:
        if target.leaf is None:
            return self._operations.get(target.sequence)
        position = self._leaves.get(target.leaf)
        if position is None:
            position = self._leaves[target.leaf] = add_leaf(self.record, target.leaf, 2 * user.sequence, NO_NAMES)
            self.record.grad_norms.pop(position, None)  # that of an earlier pass
            if position < MAX_SAMPLED:
                self._keep_value(position, target.leaf._data)
        return position

    def _constant(self, constant: ref[Any], user: Any) -> int:
        position = self._constants.get(constant)
        if position is None:
            tensor = constant()
            position = self._constants[constant] = add_leaf(self.record, tensor, 2 * user.sequence, NO_NAMES)
            if position < MAX_SAMPLED:
                self._keep_value(position, tensor._data)  # type: ignore[union-attr]
        return position

    def _keep_value(self, position: int, value: Any) -> None:
        self._values[position] = sample_of(value, SAMPLE)
        if value.size == 1:
            self.record.numbers[position] = number_of(value)

    # The step --------------------------------------------------------------------------------------

    def step_of(self, tensors: Mapping[str, Any], revision: int) -> Step:
        """The step so far; ``tensors`` are those of the session by id."""
        record = self.record.copied()
        for name, tensor in tensors.items():
            node = tensor._last_grad_fn
            if node is None:
                position = self._leaves.get(tensor, self._constants.get(ref(tensor)))
            else:
                position = self._operations.get(node.sequence)
            if position is not None:
                record.tensors[position] = [*record.tensors.get(position, ()), name]
        return Step(record, dict(self._facts), dict(self._values), dict(self._grads), revision)


def _constants_among(inputs: Sequence[Any]) -> Sequence[ref[Any]]:
    """The inputs of an operation that need no gradient, some of which may be lists."""
    given = [x for each in inputs for x in (each if isinstance(each, (tuple, list)) else (each,))]
    # Two references to one tensor are one object, so they can be compared though tensors compare by their elements.
    return [*dict.fromkeys(ref(x) for x in given if is_constant(x) and not isinstance(x._data, Spec | None))]


@cache
def _observed_class(kind: Callable[..., Any]) -> Any:
    """A subclass of the Values class ``kind`` whose pass reports each gradient to the observer."""

    class Observed(kind):  # type: ignore[misc,valid-type]
        observer: StepObserver

        @property
        def Pass(self) -> Any:
            return _observed_pass(super().Pass)

    return Observed


@cache
def _observed_pass(kind: Any) -> Any:
    """A subclass of the pass class ``kind`` that reports the gradient of each node."""

    class Observed(kind):  # type: ignore[misc]
        def visit(self, node: Any, grad: Any) -> None:
            if grad is not None:
                parts = [part for part in (grad if node.many else [grad]) if part is not None]
                if parts:
                    self.values.observer.gradient(node, self.values.data(parts[0]))
            super().visit(node, grad)

    return Observed
