"""The programs for requests about procedures, and the descriptions of procedures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.program.procedures import Procedure as Defined
from telegrad_engine.session.session import Session

from ..autograd.service import bound
from ..hosting import work
from ..hosting.commands import command, query
from ..routing.pages import PageRequest
from .schemas import Procedure, ProcedurePage

Entry = dict[str, Any]


@command("define_procedure")
def define(session: Session, name: str, program: Any) -> bytes:
    """Define a procedure and describe it."""
    session.run([Instruction("define", attrs={"name": name, "program": program})])
    return describe(session, name)


@command("undefine_procedure")
def undefine(session: Session, name: str) -> None:
    """Remove a procedure. Raises UnknownResource."""
    session.run([Instruction("undefine", attrs={"name": name})])


@query
def describe(session: Session, name: str) -> bytes:
    """Describe a procedure in JSON, with its definition. Raises UnknownResource."""
    found = session.procedures.find(name)
    return json_codec.dumps({**_entry(name, found), "program": found.definition})


@query
def page(session: Session, request: PageRequest) -> ProcedurePage:
    """A page of the procedures."""
    found, following = request.of("procedures", sorted(session.procedures.definitions()), str)
    items = [Procedure(**_entry(name, session.procedures.find(name))) for name in found]
    return ProcedurePage(items=items, next_cursor=following)


def _entry(name: str, procedure: Defined) -> Entry:
    return {
        "name": name,
        "inputs": procedure.inputs,
        "outputs": procedure.outputs,
        "instructions": len(procedure.definition["instructions"]),
    }


@command("apply_procedure")
def apply(
    session: Session,
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    """Run a procedure and describe its outputs."""
    instruction = Instruction("call", [tuple(inputs)], outputs, {"name": name})
    session.run([instruction])
    return work.outputs_json("outputs", bound(session, instruction.outputs, with_data), max_elements)
