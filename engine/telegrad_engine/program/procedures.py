"""Procedures: programs that a session stores under a name, and runs on other tensors with a single instruction.

A definition is checked when it is stored. A call finds its program in the cache, by the definition and by which of its
inputs are numbers: these are operands. So it is planned like any other cached program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any

from ..context import state
from ..errors import (
    InvalidArgument,
    InvalidValue,
    LimitExceeded,
    NotSupported,
    ProcedureExists,
    TelegradError,
    UnknownResource,
)
from ..schema.parameters import Str
from . import json_codec
from .instructions import (
    Instruction,
    Members,
    OperandRef,
    check_id,
    last_uses,
    names_in,
    parse_program,
    read_refs,
    refs_in,
)
from .overloads import find_op
from .program import Program, renamed, step_with_refs
from .template import digest, stand_ins
from .verb_params import Settings, Values
from .verbs import VERBS, verb

MAX_PROCEDURES, MAX_BYTES, MAX_INSTRUCTIONS = 256, 8 * 2**20, 10_000
"""The maximum number of procedures in a session, the total bytes of their definitions, and the instructions in one."""
PROCEDURE = Members("a procedure", ("inputs", "instructions", "outputs"))
STEP = "optim_step"
TAKEN = frozenset({"tensor", "share_data", "manual_seed", "get_rng_state", "set_rng_state"})
"""The verbs that a procedure may contain besides those that only compute with tensors."""
NO_CLIENT = "a procedure cannot differentiate what the client evaluates"


class Procedure:
    """A program with names for its inputs and outputs.

    ``definition`` is ``{"inputs": [name, …], "instructions": […], "outputs": [name, …]}``. An invalid one raises
    MalformedRequest, InvalidValue, InvalidArgument, UnknownOp or LimitExceeded, with the ``step`` in the context.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.definition = definition
        members = PROCEDURE.of(definition, InvalidValue)
        if missing := [name for name in PROCEDURE.names if name not in members]:
            raise InvalidValue(f"a procedure needs {', '.join(PROCEDURE.names)}; {missing[0]!r} is missing")
        text = json_codec.dumps(definition)
        self.size = len(text)
        """The length of the definition in bytes."""
        self._text = text.decode()
        self._digest = digest(self._text)
        self.inputs, self.outputs = [_ids(members[name], name) for name in ("inputs", "outputs")]
        if len(set(self.inputs)) < len(self.inputs):
            raise InvalidValue("two inputs of a procedure have the same name")
        instructions = parse_program(members["instructions"])
        if len(instructions) > MAX_INSTRUCTIONS:
            raise LimitExceeded(f"a procedure has at most {MAX_INSTRUCTIONS} instructions, not {len(instructions)}")
        self._names = self._check(instructions)
        """All names, in slot order."""
        self._steps = self._with_frees(instructions)
        """The instructions of its programs, each with its index in the definition."""
        self._used = {name for _, i in self._steps for name in (*names_in(i.inputs), *_named_settings(i).values())}
        self._used.update(self.outputs)

    def _check(self, instructions: Sequence[Instruction]) -> list[str]:
        """Return all names, after checking that ops exist, attributes are valid and names are defined before use."""
        exists = dict.fromkeys(self.inputs, True)
        for index, instruction in enumerate(instructions):
            try:
                _check_known(instruction)
                for name in dict.fromkeys(names_in(instruction.inputs)):
                    if not exists.get(name):
                        raise InvalidValue(f"{name!r:.140} is used before anything in the procedure makes it")
                    exists[name] = instruction.op != "free"
                for key, name in _named_settings(instruction).items():
                    if name not in self.inputs:
                        raise InvalidValue(f"{key} is {name!r:.140}, which is no input")
                for name in instruction.outputs:
                    if name in exists:
                        raise InvalidValue(
                            f"{name!r:.140} is there already, or was before; each name stands for one tensor"
                        )
                    exists[name] = True
            except TelegradError as error:
                error.context |= {"step": index, "step_op": instruction.op}
                raise
        for name in self.outputs:
            if not exists.get(name):
                raise InvalidValue(f"the output {name!r:.140} is never made, or freed")
        return [*exists]

    def _with_frees(self, instructions: Sequence[Instruction]) -> list[tuple[int, Instruction]]:
        """Return the instructions, each followed by one that frees the names that are not used later.

        An output of a verb may be None, for a missing gradient, so it is freed only after an instruction that uses it.
        """
        kept = [(index, i) for index, i in enumerate(instructions) if i.op != "free"]
        steps = []
        for (index, i), names in zip(kept, last_uses([i.names for _, i in kept]), strict=True):
            steps.append((index, i))
            if unused := names.difference(self.inputs, self.outputs, i.outputs if i.op in VERBS else ()):
                steps.append((index, Instruction("free", [tuple(sorted(unused))])))
        return steps

    def run(self, session: Any, values: Sequence[Any]) -> list[Any]:
        """Run it in a session on tensors and numbers. Return its outputs, with None for a gradient that is None."""
        if len(values) != len(self.inputs):
            raise InvalidArgument(f"the procedure takes {len(self.inputs)} inputs, but {len(values)} were given")
        names: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        for name, x in zip(self.inputs, values, strict=True):
            (numbers if isinstance(x, (int, float)) else names)[name] = x
        kinds = tuple([(name, x if type(x) is bool else None) for name, x in numbers.items() if name in self._used])
        operands = [numbers[name] for name, kind in kinds if kind is None]
        call = kinds, None if state.grad_enabled else "no_grad"
        program = session.memory.find((self._digest, *call), partial(self._program, *call))
        try:
            pending = session.run_nested(program.bind(self._names, {}, operands), names).pending
        except TelegradError as error:
            if "instruction" in error.context:
                error.context |= self._place(error.context["instruction"])
                error.context.pop("ids", None)  # the caller does not know the procedure's own names
            raise
        if pending is not None:
            session.suspensions.cancel(session, pending["call"])
            raise NotSupported(NO_CLIENT, **self._place(pending["instruction"]))
        return [names.get(name) for name in self.outputs]

    def _place(self, index: int) -> dict[str, Any]:
        """Return the context for an error in an instruction of a program."""
        step, instruction = self._steps[index]
        return {"step": step, "step_op": instruction.op}

    def _program(self, kinds: Sequence[tuple[str, bool | None]], grad_mode: str | None, tenant: str) -> Program:
        """Make the program for calls in which the inputs ``kinds`` are numbers: a bool itself, None for any other.

        Raises InvalidArgument if an optimizer setting is a tensor, or an output is a number.
        """
        refs = map(OperandRef, count(), repeat(0))
        numbers = {name: next(refs) if kind is None else kind for name, kind in kinds}
        for name in self.outputs:
            if name in numbers:
                raise InvalidArgument(f"the output {name!r:.140} is a number, not a tensor")
        names = {**dict(zip(self._names, stand_ins(len(self._names)), strict=False)), **numbers}
        steps = []
        for index, (_, i) in enumerate(self._steps):
            attrs = i.attrs
            for key, name in _named_settings(i).items():
                if name not in numbers:
                    raise InvalidArgument(f"{key} is a number, not a tensor", **self._place(index))
                attrs = {**attrs, "settings": {**attrs["settings"], key: numbers[name]}}
            inputs, outputs = renamed(i.inputs, names), renamed(i.outputs, names)
            steps.append(step_with_refs(Instruction(i.op, inputs, outputs, attrs, i.grad_mode or grad_mode)))
        return Program(steps, self._text, digest(f"{self._digest} {kinds} {grad_mode}"), tenant)


class Procedures(dict[str, Procedure]):
    """The procedures of one session, by name."""

    def define(self, name: str, definition: Mapping[str, Any]) -> None:
        """Store a procedure. Raises ProcedureExists if the name is taken, LimitExceeded if there are too many."""
        if check_id(name) in self:
            raise ProcedureExists(f"there is a procedure {name!r} already; undefine it first")
        if len(self) >= MAX_PROCEDURES:
            raise LimitExceeded(f"a session keeps at most {MAX_PROCEDURES} procedures; undefine some")
        procedure = Procedure(definition)
        if sum([each.size for each in self.values()]) + procedure.size > MAX_BYTES:
            raise LimitExceeded(
                f"the procedures of a session take at most {MAX_BYTES} bytes; {procedure.size} more are too many"
            )
        self[name] = procedure

    def find(self, name: str) -> Procedure:
        """Return the procedure of this name. Raises UnknownResource."""
        try:
            return self[name]
        except KeyError:
            raise UnknownResource(f"no procedure {name!r:.140} in this session; define it first") from None


def _ids(data: Any, where: str) -> list[str]:
    if not isinstance(data, list):
        raise InvalidValue(f"a procedure's {where!r} is a list of names")
    return [check_id(name) for name in data]


def _check_known(instruction: Instruction) -> None:
    """Raise unless the op exists, a procedure may contain it, and it takes these attributes."""
    if refs_in(read_refs(instruction.attrs)):
        raise InvalidValue('an attribute has {"operand": …}, but a call decides which numbers are operands')
    verb = VERBS.get(instruction.op)
    if verb is not None and not verb.repeatable and verb.name not in TAKEN:
        raise InvalidValue(f"{instruction.op} cannot be part of a procedure")
    signature = verb or find_op(instruction.op, len(instruction.inputs), instruction.attrs)[0]
    signature.check_attrs(instruction.attrs)


def _named_settings(instruction: Instruction) -> Mapping[str, str]:
    """Return the settings of an ``optim_step`` that are names of inputs."""
    if instruction.op != STEP:
        return {}
    return {key: name for key, name in instruction.attrs.get("settings", {}).items() if isinstance(name, str)}


@verb
def define(session: Any, out: Sequence[str], *, name: Str, program: Settings) -> None:
    """Store a program under a name, so that ``call`` can run it on other tensors.

    ``program`` is ``{"inputs": [name, …], "instructions": […], "outputs": [name, …]}``; its names are local to it.
    A setting of an ``optim_step`` may be the name of an input that is a number.
    """
    session.procedures.define(name, program)


@verb
def call(session: Any, out: Sequence[str], inputs: Values = (), *, name: Str) -> Sequence[Any]:
    """Run a procedure on tensors and numbers. ``step`` and ``step_op`` of an error name the instruction that failed.

    The effects of the instructions before it remain, as in a program. Tensors that are not outputs are freed.
    """
    try:
        found: Sequence[Any] = session.procedures.find(name).run(session, inputs)
    except TelegradError as error:
        error.context["procedure"] = name
        raise
    return found


@verb
def undefine(session: Any, out: Sequence[str], *, name: Str) -> None:
    """Remove a procedure."""
    session.procedures.find(name)
    del session.procedures[name]
