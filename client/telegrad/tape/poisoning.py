"""Failures: names the user's line in the error, and finds the instructions that depend on the failed one.

No instruction after the failed one has run. Those that do not depend on it are sent again, in order; the others are
poisoned: they never run, and their effects on the shadow graph are undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from telegrad_engine.errors import ProgramNotRun, TelegradError, TooLarge
from telegrad_engine.memory_layout import memory_of
from telegrad_engine.program import Instruction
from telegrad_engine.program.instructions import names_in
from telegrad_engine.program.verbs import VERBS
from telegrad_engine.schema.op import CATALOGUE

from .segment import Recorded

ENDING = frozenset(name for name, verb in VERBS.items() if verb.ending)
"""The verbs that are not sent again: no one waits for the values any more, and the next message frees dead tensors."""
SETTING = frozenset({"set_grad", "zero_grad"})
"""The verbs that replace gradients, unless they have attributes."""


class FailedTensors(dict[str, TelegradError]):
    """The errors of tensors that were never created, by id. Using such a tensor raises its error; none is freed."""

    def refuse(self, names: Sequence[str], error: TelegradError) -> None:
        """Note that these tensors were never created, because of this error."""
        if names:
            self.update(dict.fromkeys(names, _copy(error)))

    def check(self, inputs: Sequence[Any], outputs: Sequence[str] = ()) -> None:
        """Raise the error of the first input that was never created; the outputs are not created either."""
        for x in inputs:
            if isinstance(x, str):
                if x in self:
                    self.refuse(outputs, self[x])
                    raise _copy(self[x])
            elif isinstance(x, tuple):
                self.check(x, outputs)


def explain(error: TelegradError, program: Sequence[Recorded]) -> int | None:
    """Add a note to the error with the line that recorded the failed instruction, and return the instruction's index.

    No instruction from that index on has run. Return None if the index is not known.
    """
    index = 0 if isinstance(error, ProgramNotRun) else error.context.get("instruction")
    if index is None and (isinstance(error, TooLarge) or error.context.get("quota") == "memory"):
        return 0  # the whole program was rejected
    if not isinstance(index, int) or index >= len(program):
        return None
    instruction, line, _ = program[index]
    if line is not None:
        error.add_note(f"recorded at {line} as {instruction!r:.200}; tg.debug(True) raises it there")
    return index


def _copy(error: TelegradError) -> TelegradError:
    """The error without its traceback, which would keep the user's frames and the tensors in them alive."""
    copied = type(error)(error.detail, **error.context)
    for note in getattr(error, "__notes__", ()):
        copied.add_note(note)
    return copied


class Sharing(dict[str, list[int]]):
    """The identity of the memory of each tensor that shares it with another, by id. It keeps no tensor alive."""

    def add(self, tensor: Any, source: Any) -> None:
        """Note a view or another tensor that shares the memory of ``source``."""
        memory = self[tensor._id] = memory_of(tensor)
        self.setdefault((source if tensor._base is None else tensor._base)._id, memory)


class FailureImpact(NamedTuple):
    """The instructions, from the failed one on, that never run and those that are sent again."""

    poisoned: list[Recorded]
    spared: list[Recorded]
    unfinished: list[Any]
    """The tensors whose gradients a failed pass may have left incomplete."""


def poisoned_by(sharing: Sharing, program: Sequence[Recorded], index: int, only: bool, dead: set[str]) -> FailureImpact:
    """Divide a recorder's program, from this failed instruction on, into poisoned and spared instructions.

    Unless ``only`` this instruction failed, all are poisoned. ``dead`` names tensors whose handles died.
    """
    failed, rest = program[index], [each for each in program[index:] if each.instruction.op not in ENDING]
    if not only:
        return FailureImpact(rest, [], [])
    spread = _Spread(sharing, dead, [each.instruction for each in program[:index]])
    poisoned = {i for i, each in enumerate(rest) if spread.takes(each, each is failed)}
    used: set[str] = set()
    for i in reversed([i for i in range(len(rest)) if i not in poisoned]):
        instruction = rest[i].instruction
        op, outputs = CATALOGUE.ops.get(instruction.op), instruction.outputs
        if op is not None and not op.random and dead.issuperset(outputs) and used.isdisjoint(outputs):
            poisoned.add(i)  # its results cannot be used: it could only raise a second error for a statement
        else:
            used.update(names_in(instruction.inputs))
    unfinished = [] if failed.effect is None else [tensor for tensor, had in failed.effect.receivers if not had]
    spared = [each for i, each in enumerate(rest) if i not in poisoned]
    return FailureImpact([rest[i] for i in sorted(poisoned)], spared, unfinished)


def undo(outcome: FailureImpact) -> None:
    """Restore the shadow graph to the state that it would have without the poisoned instructions."""
    had: dict[str, bool] = {}
    leaves: dict[str, Any] = {}
    for _, _, effect in reversed(outcome.poisoned):
        if effect is not None:
            effect.undo()
            for tensor, before in effect.receivers:
                leaves[tensor._id], had[tensor._id] = tensor, before
    for instruction, _, effect in outcome.spared:
        if effect is not None:
            had.update((tensor._id, True) for tensor, _ in effect.receivers if tensor._id in had)
        elif instruction.op in SETTING and not instruction.attrs:
            given = instruction.op == "set_grad" and instruction.inputs[1] is not None
            had.update((name, given) for name in names_in(instruction.inputs) if name in had)
    lost = {name for instruction, _, _ in outcome.poisoned for name in instruction.outputs}
    for name, tensor in leaves.items():
        if not had[name] or (tensor._grad is not None and tensor._grad._id in lost):
            tensor._grad, tensor._has_grad, tensor._grad_history = None, had[name], None


class _Spread:
    """The tensors, memory and gradients that are poisoned so far."""

    def __init__(self, sharing: Sharing, dead: set[str], before: Sequence[Instruction]) -> None:
        self._shared, self._dead = sharing, dead
        self._lost: set[str] = set()
        """Tensors that were never created."""
        self._memory: set[object] = set()
        """Memory that poisoned instructions were to change; None stands for that of a tensor whose handle died."""
        self._gradients: set[str] | None = set()
        """Tensors whose gradients poisoned passes were to compute; None stands for all tensors."""
        self._all = False
        self._owners: dict[str, str] = {}
        """The tensor that owns each tensor's memory, for the tensors that the program creates."""
        for instruction in before:
            self._note(instruction)

    def takes(self, recorded: Recorded, failed: bool) -> bool:
        """Note an instruction that failed, or was to run after that. Return whether it is poisoned."""
        instruction, _, effect = recorded
        poisoned = failed or self._reaches(instruction)
        self._note(instruction)
        op, inputs = instruction.op, instruction.inputs
        if not poisoned:
            if op in SETTING and self._gradients:
                self._gradients.difference_update(names_in(inputs))
            return False
        self._lost.update(instruction.outputs)
        if _is_in_place(op):
            self._memory.add(self._owner(inputs[0]))
        elif op == "optim_step":
            self._memory.update(map(self._owner, names_in(inputs)))
        elif op == "backward":
            if effect is None:
                self._gradients = None
            elif self._gradients is not None:
                self._gradients.update(tensor._id for tensor, _ in effect.receivers)
        return True

    def _reaches(self, instruction: Instruction) -> bool:
        """Whether an instruction depends on anything poisoned."""
        op, verb = instruction.op, VERBS.get(instruction.op)
        local = op in CATALOGUE.ops or _is_in_place(op) if verb is None else verb.local
        if self._all or not local:
            self._all = True
            return True
        names = [*names_in(instruction.inputs)]
        reads_gradients = op in ("grad_of", "optim_step") or (op in SETTING and bool(instruction.attrs))
        if reads_gradients and (self._gradients is None or not self._gradients.isdisjoint(names)):
            return True
        if op in SETTING:
            names = names[1:] if op == "set_grad" else []  # only the new gradient's value is needed
        return any(map(self._is_poisoned, names))

    def _note(self, instruction: Instruction) -> None:
        op, verb = CATALOGUE.ops.get(instruction.op), VERBS.get(instruction.op)
        shared = verb.aliases if verb is not None else op is not None and op.view
        for name in instruction.outputs:
            self._owners[name] = self._owners.get(instruction.inputs[0], instruction.inputs[0]) if shared else name

    def _owner(self, name: str) -> object:
        """The object that stands for a tensor's memory; None if it is not known which tensors share it."""
        source = self._owners.get(name, name)
        if source in self._owners:
            return source
        shared = self._shared.get(name) or self._shared.get(source)
        return id(shared) if shared is not None else None if source in self._dead else source

    def _is_poisoned(self, name: str) -> bool:
        if name in self._lost:
            return True
        return bool(self._memory) and (None in self._memory or self._owner(name) in {*self._memory, None})


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and name[:-1] in CATALOGUE.ops
