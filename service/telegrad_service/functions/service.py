"""The programs for requests about functions, and the descriptions of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.program import Instruction
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.session.session import Session

from ..catalogue.schemas import parameters_of
from ..hosting import work
from ..hosting.commands import command, query
from ..routing.pages import PageRequest
from .schemas import FunctionEntry, FunctionPage

Entry = dict[str, Any]


@command("register_function")
def register(session: Session, definition: Mapping[str, Any], attrs: Mapping[str, Any]) -> Entry:
    """Register a function and describe it."""
    session.run([Instruction("register_function", attrs={"definition": definition, **attrs})])
    return describe(session, definition["name"])


@command("remove_function")
def remove(session: Session, name: str, scope: str) -> None:
    """Remove a function from a scope."""
    session.run([Instruction("remove_function", attrs={"name": name, "scope": scope})])


@query
def describe(session: Session, name: str) -> Entry:
    """Describe a function, with its definition. Raises UnknownFunction."""
    found = session.functions.find(name)
    return _entry(session, found, found.definition)


@query
def page(session: Session, request: PageRequest) -> FunctionPage:
    """A page of the functions."""
    functions = sorted(session.functions.latest().values(), key=lambda function: function.name)
    found, following = request.of("functions", functions, lambda function: function.name)
    items = [FunctionEntry(**_entry(session, function, None)) for function in found]
    return FunctionPage(items=items, next_cursor=following)


def _entry(session: Session, function: Applicable, definition: Any) -> Entry:
    return {
        "name": function.name,
        "scope": "session" if function.name in session.functions.own else "server",
        "signature": function.signature.signature,
        "doc": function.doc,
        "outputs": function.outputs,
        **{
            name: [param.model_dump() for param in params]
            for name, params in parameters_of(function.signature.params).items()
        },
        "definition": definition,
    }


@command("apply_function")
def apply(
    session: Session,
    name: str,
    inputs: Sequence[str],
    attrs: Mapping[str, Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    """Apply a function and describe its outputs."""
    instruction = Instruction("apply", [tuple(inputs)], outputs, {"function": name, "attrs": attrs})
    session.run([instruction])
    return work.outputs_json("outputs", session.read(instruction.outputs, with_data), max_elements)
