"""Procedures: programs that a session keeps under a name, and runs on other tensors with a single instruction.

What a procedure is made of is checked when it is defined, so a call only runs it: on names of its own, which are gone
when it ends or fails. Everything else goes on as for any instruction: memory is counted, profiles see the ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, InvalidValue, LimitExceeded, NotSupported, TelegradError, UnknownResource
from ..overloads import find_op
from ..suspension.waiting import Suspended
from . import json_codec
from .instructions import Instruction, check_id, parse_program
from .remembered import checked_step
from .template import digest
from .verbs import VERBS

if TYPE_CHECKING:
    from ..session import Session

MOST_PROCEDURES, MOST_BYTES, MOST_INSTRUCTIONS = 256, 8 * 2**20, 10_000
"""How many procedures a session keeps, how long their definitions are together, and how long each of them may be."""
STEP = "optim_step"
TAKEN = frozenset(
    (
        "tensor",
        "alias",
        "refresh",
        "detach",
        "detach_",
        "requires_grad_",
        "retain_grad",
        "share_data",
        "free",
        "backward",
        "grad",
        "grad_of",
        "set_grad",
        "zero_grad",
        "optim_step",
        "apply",
        "manual_seed",
        "get_rng_state",
        "set_rng_state",
    )
)
"""The verbs that may be part of a procedure: those that are about tensors, and about nothing outside of the session."""
NO_CLIENT = "a procedure cannot differentiate what the client evaluates"


class Procedure:
    """A program with names for what it is given and what it gives back.

    ``definition`` is ``{"in": [name, …], "instructions": […], "out": [name, …]}``. Raises MalformedRequest,
    InvalidValue, InvalidArgument, UnknownOp or LimitExceeded, naming the ``step``, for what is no procedure.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        if definition.keys() != {"in", "instructions", "out"}:
            raise InvalidValue('a procedure is {"in": [name, …], "instructions": [{"op": …}, …], "out": [name, …]}')
        text = json_codec.dumps(definition).decode()
        self.size, self.digest = len(text), digest(text)
        self.inputs, self.outputs = _ids(definition["in"], "in"), _ids(definition["out"], "out")
        if len(set(self.inputs)) < len(self.inputs):
            raise InvalidValue("two inputs of a procedure have the same name")
        instructions = parse_program(definition["instructions"])
        if len(instructions) > MOST_INSTRUCTIONS:
            raise LimitExceeded(f"a procedure has at most {MOST_INSTRUCTIONS} instructions, not {len(instructions)}")
        self.steps = self._check(instructions)
        self._settings = self._numbers()
        self._unused = self._last_uses()

    @cached_property
    def makes_its_outputs(self) -> bool:
        """Whether each output is a tensor of its own, made by the procedure."""
        made = {name for step in self.steps for name in step.outputs}
        return len(set(self.outputs)) == len(self.outputs) and made.issuperset(self.outputs)

    def _check(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The instructions as they will run: known, with attributes that fit, and on names that are there."""
        there, made = set(self.inputs), set(self.inputs)
        steps = []
        for index, instruction in enumerate(instructions):
            try:
                used = list(_names(instruction.inputs))
                _check_known(instruction)
                for name in used:
                    if name not in there:
                        raise InvalidValue(f"{name!r:.140} is used before anything in the procedure makes it")
                if instruction.op == "free":
                    there -= set(used)  # nothing to do: what is not used any more is not kept
                    continue
                for name in instruction.outputs:
                    if name in made:
                        raise InvalidValue(
                            f"{name!r:.140} is there already, or was before; each name stands for one tensor"
                        )
                    made.add(name)
                    there.add(name)
            except TelegradError as error:
                error.context |= {"step": index, "step_op": instruction.op}
                raise
            step = checked_step(instruction)
            step.instruction.call = step.call
            steps.append(step.instruction)
        for name in self.outputs:
            if name not in there:
                raise InvalidValue(f"the output {name!r:.140} is never made, or freed")
        return steps

    def _numbers(self) -> dict[int, list[str]]:
        """Which settings of optimizer steps are the names of inputs, so that a call gives the numbers."""
        found = {}
        for index, step in enumerate(self.steps):
            if step.op == STEP:
                names = _named_settings(step)
                for key in names:
                    if step.attrs["settings"][key] not in self.inputs:
                        raise InvalidValue(
                            f"{key} is {step.attrs['settings'][key]!r:.140}, which is no input",
                            step=index,
                            step_op=STEP,
                        )
                if names:
                    found[index] = names
        return found

    def _last_uses(self) -> list[list[str]]:
        """After each step, the names that no later one takes."""
        later = set(self.outputs)
        unused = []
        for step in reversed(self.steps):
            used = {*_names(step.inputs), *step.outputs} - later
            unused.append(list(used))
            later |= used
        return unused[::-1]

    def run(self, session: Session, values: Sequence[Any]) -> list[Any]:
        """Run it in a session on tensors and numbers: its outputs, None for a gradient that was not to be had."""
        if len(values) != len(self.inputs):
            raise InvalidArgument(f"the procedure takes {len(self.inputs)} inputs, but {len(values)} were given")
        names: dict[str, Any] = dict(zip(self.inputs, values, strict=True))
        settings = self._settings
        with session.checkpoints.elsewhere(names):
            execute = session._execute
            for index, step in enumerate(self.steps):
                session.instructions += 1
                try:
                    execute(self.with_numbers(step, names) if index in settings else step)
                except Suspended as stop:
                    session.suspensions.cancel(session, stop.pending["call"])
                    raise NotSupported(NO_CLIENT, step=index, step_op=step.op) from None
                except TelegradError as error:
                    error.context |= {"step": index, "step_op": step.op}
                    raise
                except Exception as error:
                    found = session.explained(error, step)
                    found.context |= {"step": index, "step_op": step.op}
                    raise found from error
                for name in self._unused[index]:
                    names.pop(name, None)
        return [names.get(name) for name in self.outputs]

    @staticmethod
    def with_numbers(step: Instruction, names: Mapping[str, Any]) -> Instruction:
        """An instruction; an optimizer's step with the numbers of this call among its settings."""
        keys = _named_settings(step)
        if not keys:
            return step
        settings = dict(step.attrs["settings"])
        for key in keys:
            settings[key] = names[settings[key]]
            if not isinstance(settings[key], (bool, int, float)):
                raise InvalidArgument(f"{key} is a number, not a tensor")
        attrs = {**step.attrs, "settings": settings}
        return Instruction(step.op, step.inputs, step.outputs, attrs, step.grad_mode, step.checked)


class Procedures:
    """The procedures of one session, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Procedure] = {}
        self._bytes = 0

    def define(self, name: str, definition: Mapping[str, Any]) -> None:
        """Keep a procedure. Raises InvalidValue if there is one of the name, LimitExceeded if there are too many."""
        if check_id(name) in self._known:
            raise InvalidValue(f"there is a procedure {name!r} already; undefine it first")
        if len(self._known) >= MOST_PROCEDURES:
            raise LimitExceeded(f"a session keeps at most {MOST_PROCEDURES} procedures; undefine some")
        procedure = Procedure(definition)
        if self._bytes + procedure.size > MOST_BYTES:
            raise LimitExceeded(
                f"the procedures of a session take at most {MOST_BYTES} bytes; {procedure.size} more are too many"
            )
        self._known[name] = procedure
        self._bytes += procedure.size

    def undefine(self, name: str) -> None:
        """Forget a procedure. Raises UnknownResource."""
        self._bytes -= self.find(name).size
        del self._known[name]

    def get(self, name: Any) -> Procedure | None:
        """The procedure of this name, if there is one."""
        return self._known.get(name) if isinstance(name, str) else None

    def find(self, name: str) -> Procedure:
        """The procedure of this name. Raises UnknownResource."""
        try:
            return self._known[name]
        except KeyError:
            raise UnknownResource(f"no procedure {name!r:.140} in this session; define it first") from None


def _ids(data: Any, where: str) -> list[str]:
    if not isinstance(data, list):
        raise InvalidValue(f"a procedure's {where!r} is a list of names")
    return [check_id(name) for name in data]


def _check_known(instruction: Instruction) -> None:
    """Raise unless there is such an op, it may be part of a procedure, and it takes these attributes."""
    verb = VERBS.get(instruction.op)
    if verb is not None:
        if instruction.op not in TAKEN:
            raise InvalidValue(f"{instruction.op} cannot be part of a procedure")
        verb.check_attrs(instruction.attrs)
        return
    op, _ = find_op(instruction.op, len(instruction.inputs), instruction.attrs)
    op.check_attrs(instruction.attrs)


def _named_settings(step: Instruction) -> list[str]:
    """Which settings of an optimizer's step are names."""
    if step.op != STEP:
        return []
    return [key for key, value in step.attrs.get("settings", {}).items() if isinstance(value, str)]


def _names(values: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for x in values:
        if isinstance(x, str):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found += _names(x)
    return found
