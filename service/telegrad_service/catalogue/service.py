"""The catalogue as it travels: all of it comes from the declarations of ops and verbs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from telegrad_engine.errors import UnknownOp
from telegrad_engine.program import VERBS
from telegrad_engine.program.registered_functions import Applicable, Library
from telegrad_engine.program.verbs import Verb
from telegrad_engine.schema.op import CATALOGUE, Op, unknown_op
from telegrad_engine.schema.signature import REQUIRED, Param

from .schemas import OpEntry, OpParam


@cache
def entries() -> tuple[OpEntry, ...]:
    """All ops and verbs, by key."""
    found = [*(_op(op) for op in CATALOGUE if not op.private), *map(_verb, VERBS.values())]
    return tuple(sorted(found, key=lambda entry: entry.key))


def with_functions(library: Library) -> list[OpEntry]:
    """All ops and verbs, and the functions that every session of the server has, by key."""
    return sorted([*entries(), *map(_function, library.all().values())], key=lambda entry: entry.key)


def find(name: str, library: Library) -> list[OpEntry]:
    """The overloads of a name, the one of a key, a verb, or a function. Raises UnknownOp."""
    known = with_functions(library)
    exact = [entry for entry in known if entry.key == name]
    overloads = [entry for entry in known if entry.name == name or name in entry.aliases]
    if not exact and not overloads:
        raise unknown_op(name, {entry.key: entry for entry in known})
    return exact if "." in name else overloads


def search(prefix: str | None, text: str | None, kind: str | None, library: Library) -> Iterator[OpEntry]:
    """Entries of a kind whose key starts with ``prefix`` and that say ``text`` in key, alias or doc."""
    for entry in with_functions(library):
        if prefix is not None and not entry.key.startswith(prefix):
            continue
        if text is not None and text.lower() not in " ".join([entry.key, *entry.aliases, entry.doc]).lower():
            continue
        if kind is None or entry.kind == kind:
            yield entry


def _op(op: Op) -> OpEntry:
    return OpEntry(
        key=op.key,
        name=op.name,
        kind="op",
        namespace=op.namespace,
        aliases=list(op.aliases),
        signature=op.signature,
        doc=op.doc,
        params=list(params_of(op.params)),
        outputs=[] if op.lists_outputs else list(op.outputs),
        differentiable=op.differentiable,
        inplace=op.inplace,
        view=op.view,
        random=op.random,
        internal=op.internal,
    )


def _verb(verb: Verb) -> OpEntry:
    return OpEntry(
        key=verb.name,
        name=verb.name,
        kind="verb",
        namespace="",
        aliases=[],
        signature=verb.signature,
        doc=verb.doc,
        params=list(params_of(verb.params)),
        outputs=[],
        differentiable=False,
        inplace=False,
        view=False,
        random=False,
        internal=False,
    )


def _function(function: Applicable) -> OpEntry:
    return OpEntry(
        key=function.name,
        name=function.name,
        kind="function",
        namespace="telegrad.ops",
        aliases=[],
        signature=function.signature.signature,
        doc=function.doc,
        params=list(params_of(function.signature.params)),
        outputs=[],
        differentiable=True,
        inplace=False,
        view=False,
        random=False,
        internal=False,
    )


def params_of(params: Iterable[Param]) -> Iterator[OpParam]:
    """Declared parameters as they travel."""
    for param in params:
        required = param.default is REQUIRED
        default = None if required or param.default is None else param.kind.encode(param.default)
        yield OpParam(
            name=param.name,
            kind=param.kind.word,
            source="input" if param.kind.is_tensor else "attr",
            required=required,
            default=default,
            json_schema=param.kind.schema,
        )


__all__ = ["UnknownOp", "entries", "find", "search"]
