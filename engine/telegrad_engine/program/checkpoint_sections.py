"""Checkpoints of a session: the checkpointed function runs at the client, and its instructions run here.

The client marks where the function begins and where it ends. The instructions in between run as usual and are recorded,
but the tensors that their nodes would save are only numbered. When backward needs these tensors, the instructions run
again, under names of their own. So recomputation needs no message, whatever the client's code does in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ..autograd.checkpoint import CheckpointedCall, Frame
from ..context import state
from ..errors import InvalidOperation, NotSupported
from ..graph.node import Node, record
from ..schema.op import Op
from ..schema.parameters import Arrays, Bool, Str
from ..tensor.abstract import unwrap
from ..transforms.saved_tensor_hooks import Packed, saved_tensors_hooks
from .client_evaluation import Suspended
from .instructions import Instruction, check_id, last_uses, names_in
from .overloads import find_op
from .verbs import VERBS, verb

MAX_STEPS, MAX_OPEN = 100_000, 100
"""The maximum number of instructions in a checkpoint, and of checkpoints that are open inside each other."""
ONCE = frozenset({"fetch", "free", "client_hook", "client_node_hook", "remove_client_hook", "register_function"})
"""The instructions that are not part of the function and are not run again."""
SAVE = "save_results"
MUTATED = "Tensor cached during selective activation checkpoint has been mutated"


class Section:
    """The function of one checkpoint: its instructions, and the tensors from outside that they use.

    The frame refers to the section, but not the reverse, so both are freed with the last node that needs them.
    """

    def __init__(self, sections: Sections, inputs: Sequence[Any], selective: bool) -> None:
        self._sections = sections
        self.selective = selective
        """Whether the client may ask to save the results of some instructions."""
        self._inputs: Sequence[Any] = inputs
        """The function's arguments, until it ends; only the frame keeps them after that."""
        self._arguments: dict[str, int] = {}
        """The names of outside tensors that are arguments, with the arguments' positions."""
        self._outside: dict[str, Any] = {}
        """The other outside tensors by name."""
        self._made: set[str] = set()
        self._steps: list[Instruction] = []
        self._last_uses: list[set[str]] = []
        """For each step, the names that no later step uses."""
        self._saved: dict[int, SavedResults] = {}
        """The results of steps that are not recomputed, by the step's position."""

    def keep(self, instruction: Instruction, tensors: dict[str, Any]) -> None:
        """Record an instruction that has just run."""
        if instruction.op in ONCE:
            return
        if len(self._steps) == MAX_STEPS:
            raise InvalidOperation(f"a checkpoint has at most {MAX_STEPS} instructions")
        for name in names_in(instruction.inputs):
            if name not in self._made and name not in self._arguments and name not in self._outside:
                place = next((place for place, x in enumerate(self._inputs) if x is tensors[name]), None)
                if place is None:
                    self._outside[name] = tensors[name]
                else:
                    self._arguments[name] = place
        self._made.update(instruction.outputs or ())
        self._steps.append(instruction)

    def save_results(self, tensors: Sequence[Any], packed: dict[int, Any], allow_mutation: bool) -> None:
        """Save the outputs of the last step, if it is an op whose results can be saved."""
        instruction = self._steps[-1] if self._steps else None
        if instruction is None or instruction.op in VERBS or not tensors:
            return
        op, in_place = find_op(instruction.op)
        if not in_place and can_save(op) and len(tensors) == len(instruction.outputs or ()):
            self._saved[len(self._steps) - 1] = SavedResults(op, tensors, packed, allow_mutation)

    def close(self) -> None:
        """Release the arguments, and find the last use of each tensor now that all instructions are known."""
        self._inputs = ()
        self._last_uses = [names & self._made for names in last_uses([step.names for step in self._steps])]

    def run(self, *inputs: Any) -> None:
        """Run the instructions again."""
        names = {**self._outside, **{name: inputs[place] for name, place in self._arguments.items()}}
        unused_after = self._last_uses or [set()] * len(self._steps)
        with self._sections.elsewhere(names) as session:
            for step, (instruction, unused) in enumerate(zip(self._steps, unused_after, strict=True)):
                saved = self._saved.get(step)
                try:
                    session.execute_instruction(instruction if saved is None else saved.replayed(instruction))
                except Suspended:
                    raise NotSupported(
                        "a checkpoint whose function differentiates what the client evaluates cannot be recomputed"
                    ) from None
                for name in unused:
                    names.pop(name, None)


class SavedResults:
    """The results of one instruction: its outputs, and the hidden outputs that its derivative needs."""

    def __init__(self, op: Op, outputs: Sequence[Any], packed: Mapping[int, Any], allow_mutation: bool) -> None:
        self._op = op
        self._outputs = [tensor.detach() for tensor in outputs]
        self._versions = [tensor._version for tensor in outputs]
        self._hidden = _hidden_values(op, outputs[0]._node, packed)
        self._allow_mutation = allow_mutation

    def replayed(self, instruction: Instruction) -> Instruction:
        """Return the instruction with these results in place of its computation.

        If they were modified in place, return the instruction itself if that is allowed, else raise InvalidOperation.
        """
        if any(t._version != before for t, before in zip(self._outputs, self._versions, strict=True)):
            if self._allow_mutation:
                return instruction
            raise InvalidOperation(MUTATED)
        parts = instruction.op, instruction.inputs, instruction.outputs, instruction.attrs, instruction.grad_mode
        replayed = Instruction(*parts, checked=True)
        replayed.call = lambda *inputs: self._record(inputs, instruction.attrs)
        return replayed

    def _record(self, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs, recorded in the graph as if the op had just computed them."""
        arguments = self._op.check_inputs(inputs)
        outputs = [tensor._new_like(tensor._data) for tensor in self._outputs]
        if state.grad_enabled and unwrap(arguments)[1] and self._op.differentiable:
            record(self._op, attrs, arguments, outputs, self._hidden)
        return outputs


def can_save(op: Op) -> bool:
    """Return whether an op's results can be saved: a view has none, and a random op must advance the generator."""
    return not (op.composite or op.view or op.random)


def _hidden_values(op: Op, node: Node | None, packed: Mapping[int, Any]) -> list[Any]:
    """Return the hidden outputs that the node saved, else None; ``packed`` has its saved values by number."""
    values: list[Any] = [None] * len(op.hidden)
    for value, save in zip(node.saved, node.plan.saves, strict=True) if node is not None else ():
        if save.source == "hidden":
            values[save.key] = packed[value.kept] if isinstance(value, Packed) else value
    return values


class Open(NamedTuple):
    """An open checkpoint."""

    name: str
    section: Section
    frame: Frame


class Sections:
    """The open checkpoints of one session, innermost last.

    While there are any, the session executes its instructions through :meth:`execute`.
    """

    def __init__(self, session: Any) -> None:
        self._session = weakref.ref(session)
        self.open: list[Open] = []
        self.packed: dict[int, Any] = {}
        """The values that the last instruction's node saved, by number, if a checkpoint is selective."""
        self.outer: list[tuple[dict[str, Any], list[Open]]] = []
        """The names and the open checkpoints of the programs around the running one."""

    def end(self, name: str) -> None:
        """End a checkpoint and those inside it. Does nothing if it has ended; a failing instruction ends all."""
        if any(name == other.name for other in self.open):
            while self._close() != name:
                pass

    def _numbering(self) -> AbstractContextManager[None]:
        """Return a context in which the innermost checkpoint numbers saved tensors instead of keeping them.

        If a checkpoint is selective, ``packed`` has their values until the next instruction.
        """
        frame = self.open[-1].frame
        if not any(entered.section.selective for entered in self.open):
            return frame.numbering()
        packed = self.packed = {}

        def number(tensor: Any) -> int:
            found = frame._number(tensor)
            packed[found] = tensor._data
            return found

        return saved_tensors_hooks(number, frame._recall)

    def _close(self) -> str:
        ended = self.open.pop()
        ended.section.close()
        if not self.open:
            self.packed = {}
        return ended.name

    def execute(self, instruction: Instruction) -> None:
        """Execute an instruction in the session, and record it in all open checkpoints."""
        session, before = self._owner(), list(self.open)
        try:
            with nullcontext() if instruction.op == SAVE else self._numbering():
                session._execute(instruction)
            for entered in before[: len(self.open)]:  # begin and end are not part of their own checkpoint
                if instruction.op == SAVE and instruction.attrs["checkpoint"] == entered.name:
                    break  # done for this checkpoint; the outer ones run it again
                entered.section.keep(instruction, session.tensors)
        except BaseException:
            while self.open:
                self._close()
            raise

    @contextmanager
    def elsewhere(self, names: dict[str, Any]) -> Iterator[Any]:
        """Enter a context in which the session has other names and none of these checkpoints is open."""
        session = self._owner()
        tensors, sections = session.tensors, self.open
        session.tensors, self.open = names, []
        self.outer.append((tensors, sections))
        try:
            yield session
        finally:
            self.outer.pop()
            session.tensors, self.open = tensors, sections

    def _owner(self) -> Any:
        session = self._session()
        assert session is not None, "a session's graph is differentiated in it"
        return session


# Verbs ----------------------------------------------------------------------------------------------


@verb
def checkpoint(
    session: Any,
    out: Sequence[str],
    inputs: Arrays = (),
    *,
    checkpoint: Str,
    preserve_rng_state: Bool = True,
    determinism_check: Bool = True,
    early_stop: Bool = True,
    selective: Bool = False,
) -> None:
    """Save no tensors for backward in the instructions up to ``end_checkpoint``; backward runs them again instead.

    ``checkpoint`` is the client's id for it; an open checkpoint with this id is ended first. ``inputs`` must not be
    modified in place before backward; other tensors may. With ``preserve_rng_state`` the second run draws the same
    random numbers as the first. With ``early_stop`` it ends as soon as all saved tensors are recomputed. With
    ``determinism_check`` it raises CheckpointError if shapes or dtypes differ. A ``selective`` checkpoint accepts
    ``save_results``.
    """
    sections = session.checkpoints
    sections.end(checkpoint)  # its end was in a program that failed
    if len(sections.open) == MAX_OPEN:
        raise InvalidOperation(f"at most {MAX_OPEN} checkpoints can be open inside each other")
    section = Section(sections, inputs, selective)
    options = preserve_rng_state, determinism_check, early_stop
    frame = Frame(CheckpointedCall(section.run, tuple(inputs), {}, nullcontext(), *options))
    sections.open.append(Open(check_id(checkpoint), section, frame))


@verb
def save_results(
    session: Any, out: Sequence[str], tensors: Arrays, *, checkpoint: Str, allow_mutation: Bool = False
) -> None:
    """Save ``tensors``, all outputs of the last instruction, in a selective checkpoint instead of recomputing them.

    If they are modified in place, backward raises an error, or with ``allow_mutation`` recomputes them. Views and
    random draws are always recomputed. Does nothing if the checkpoint has ended.
    """
    for entered in session.checkpoints.open:
        if entered.name == checkpoint:
            entered.section.save_results(tensors, session.checkpoints.packed, allow_mutation)


@verb
def end_checkpoint(session: Any, out: Sequence[str], *, checkpoint: Str) -> None:
    """End a checkpoint and those inside it. Does nothing if it has ended; a failing instruction ends all."""
    session.checkpoints.end(checkpoint)
