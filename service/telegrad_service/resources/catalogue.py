"""``/v1/ops`` and ``/v1/devices``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from telegrad_engine.arrays import available
from telegrad_engine.optim.algorithms import INITIAL, OPTIMIZERS, REDUCED, SCALARS, Optimizer
from telegrad_engine.program import VERBS
from telegrad_engine.program.registered_functions import Applicable, Library
from telegrad_engine.schema.op import CATALOGUE, Op, unknown_op
from telegrad_engine.schema.signature import REQUIRED, Param, Signature

from ..process import usable_cores
from ..routing.dependencies import Host
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, Page, Paged

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=Route)
OpKind = Literal["op", "verb", "function"]


class OpParam(Answer):
    """A parameter of an op or verb."""

    name: str = Field(examples=["input"])
    description: str = Field(
        description="What it means; empty for a function that a client has registered.", examples=["The input tensor."]
    )
    kind: str = Field(description="Its type, in PyTorch's words.", examples=["Tensor"])
    source: Literal["input", "attr"] = Field(description="Whether it is passed in `inputs` or in `attrs`.")
    position: int = Field(description="Its position in the signature.", examples=[0])
    required: bool = Field(examples=[True])
    default: Any = Field(description="Null if it is required.", examples=[None])
    json_schema: dict[str, Any] = Field(description="The JSON schema of its values.", examples=[{"type": "string"}])


class Parameters(Answer):
    """The parameters of an op, a verb or a function, by where a request has them."""

    inputs: list[OpParam] = Field(description="Those that are passed in `inputs`, in this order.")
    attrs: list[OpParam] = Field(description="Those that are passed in `attrs`, by name.")
    params: list[OpParam] = Field(
        description="Deprecated: all of them in the order of the signature; use `inputs` and `attrs`.",
        json_schema_extra={"deprecated": True},
    )


def parameters_of(declared: Signature) -> dict[str, list[OpParam]]:
    """The members of :class:`Parameters` for a signature."""
    found = params_of(declared.params, declared.describe)
    by_source = {f"{source}s": [param for param in found if param.source == source] for source in ("input", "attr")}
    return {**by_source, "params": found}


def params_of(params: Iterable[Param], describe: Callable[[Param], str]) -> list[OpParam]:
    """The schemas of declared parameters, with their descriptions."""
    return [
        OpParam(
            name=param.name,
            description=describe(param),
            kind=param.kind.word,
            source="input" if param.kind.is_tensor else "attr",
            position=position,
            required=param.default is REQUIRED,
            default=None if param.default in (REQUIRED, None) else param.kind.encode(param.default),
            json_schema=param.kind.schema,
        )
        for position, param in enumerate(params)
    ]


class OpEntry(Parameters):
    """An op, a verb of programs, or a function that all sessions have."""

    key: str = Field(description="Names exactly this overload.", examples=["exp", "max.dim"])
    name: str = Field(description="Torch's name, which overloads share.", examples=["exp", "max"])
    kind: OpKind
    namespace: str = Field(
        description="Its place in torch; empty for verbs.", examples=["torch", "torch.nn.functional"]
    )
    aliases: list[str] = Field(description="Its other names.", examples=[[]])
    signature: str = Field(examples=["exp(Tensor input) -> Tensor"])
    doc: str = Field(examples=["e to the power of the input."])
    returns: str = Field(
        description="The shapes and dtypes of its results; empty for verbs and functions.",
        examples=["A tensor of the shape of ``input``. Its dtype is the promoted dtype."],
    )
    outputs: list[str] = Field(description="Names of its outputs; empty if their number varies.", examples=[["result"]])
    differentiable: bool = Field(examples=[True])
    inplace: bool = Field(description="Whether it has an in-place form: its name and a trailing _.", examples=[True])
    view: bool = Field(description="Whether its result shares memory with its input.", examples=[False])
    random: bool = Field(description="Whether it draws random numbers.", examples=[False])
    internal: bool = Field(description="Whether it serves other ops and is no function of torch.", examples=[False])


class OpDescription(Answer):
    """An op, verb or function."""

    name: str = Field(description="Torch's name, which its overloads share.", examples=["exp", "max"])
    kind: OpKind
    overloads: list[OpEntry] = Field(description="Ordered by key. A verb and a function have exactly one.")


class OpPage(Page[OpEntry]):
    """Ops, verbs and functions, ordered by key."""


class OptimizerState(Answer):
    """A state of an optimizer: a tensor for each parameter, which the client creates before the first step."""

    name: str = Field(examples=["exp_avg"])
    shape: str = Field(
        description="`parameter`: the parameter's; `scalar`: none; `row` and `column`: the parameter's with the size 1 "
        "in the last dimension, or in the one before it.",
        examples=["parameter"],
    )
    initial: Any = Field(description="Its number before the first step, or the setting that has it.", examples=[0.0])
    only_with: str | None = Field(description="The setting without which it is left out, if any.", examples=[None])


class OptimizerEntry(Answer):
    """An algorithm of the verb `optim_step`."""

    name: str = Field(description="`algorithm` of `optim_step`.", examples=["adam"])
    doc: str = Field(examples=["Adam: Kingma and Ba 2015, algorithm 1."])
    settings: list[OpParam] = Field(description="The members of `settings` of `optim_step`.")
    states: list[OptimizerState] = Field(description="The lists of `states` of `optim_step`, in this order.")


class OptimizerPage(Page[OptimizerEntry]):
    """Optimizers, ordered by name."""


class DeviceEntry(Answer):
    """A device that sessions can live on."""

    name: str = Field(examples=["cpu", "cuda:0"])
    kind: Literal["cpu", "gpu"] = Field(description="What computes.")
    backend: str = Field(description="The array library that computes on it.", examples=["numpy", "cupy"])
    description: str = Field(description="What its driver calls it; empty for the processor.", examples=["NVIDIA H100"])
    cores: int = Field(description="The cores of the host that the server may use.", examples=[8])
    total_bytes: int | None = Field(
        description="The memory of a GPU; null for a device with the host's memory.", examples=[85899345920]
    )
    used_bytes: int | None = Field(
        description="The part of it that arrays of this server's sessions take.", examples=[1048576]
    )


class DevicePage(Page[DeviceEntry]):
    """The devices of this server, ordered by name."""


@router.get("/ops", summary="List the ops and verbs")
@route_options(tagged="content")
async def list_ops(
    host: Host,
    page: Paged,
    prefix: Annotated[str | None, Query(description="Only those whose key starts with this.")] = None,
    q: Annotated[str | None, Query(description="Only those with this text in key, alias or documentation.")] = None,
    kind: Annotated[OpKind | None, Query(description="Only those of this kind.")] = None,
) -> OpPage:
    """Everything that an instruction of a program can be, ordered by key."""
    # On a thread, because the library of a cluster's worker may have to read the directory.
    matching = search(prefix, q, kind, host.library)
    found, following = await asyncio.to_thread(page.of, "ops", matching, attrgetter("key"))
    return OpPage(items=found, next_cursor=following)


@router.get("/ops/{op}", summary="Describe an op or verb")
@route_options(tagged="content")
async def get_op(
    host: Host, op: Annotated[str, Path(description="A name, an alias or a key.", examples=["max"])]
) -> OpDescription:
    """The op with all its overloads, or with the one that a key such as `max.dim` names."""
    overloads = await asyncio.to_thread(find, op, host.library)
    return OpDescription(name=overloads[0].name, kind=overloads[0].kind, overloads=overloads)


@router.get("/optimizers", summary="List the optimizers")
@route_options(tagged="content")
async def list_optimizers(page: Paged) -> OptimizerPage:
    """The algorithms of the verb `optim_step`, with their settings and states, ordered by name."""
    found, following = page.of("optimizers", sorted(OPTIMIZERS.values(), key=attrgetter("name")), attrgetter("name"))
    return OptimizerPage(items=[*map(optimizer_entry, found)], next_cursor=following)


SHAPES = dict.fromkeys(SCALARS, "scalar") | {name: ("column", "row")[dim] for name, dim in REDUCED.items()}


def optimizer_entry(declared: Optimizer) -> OptimizerEntry:
    """How the API describes an optimizer."""
    states = [
        OptimizerState(
            name=name, shape=SHAPES.get(name, "parameter"), initial=INITIAL.get(name, 0.0), only_with=setting
        )
        for name, setting in {**dict.fromkeys(declared.states), **declared.optional}.items()
    ]
    settings = params_of(declared.params, declared.describe)
    return OptimizerEntry(name=declared.name, doc=declared.doc, settings=settings, states=states)


@router.get("/devices", summary="List the devices")
async def list_devices(page: Paged) -> DevicePage:
    """The possible values of `device` of a new session, ordered by name; `cuda` is `cuda:0`, and `gpu` is any GPU."""
    devices = sorted(await asyncio.to_thread(available), key=attrgetter("name"))
    found, following = page.of("devices", devices, attrgetter("name"))
    return DevicePage(items=[DeviceEntry(**info.described(usable_cores())) for info in found], next_cursor=following)


@cache
def entries() -> tuple[OpEntry, ...]:
    """All ops and verbs."""
    ops = [_op(op) for op in CATALOGUE if not op.private]
    return (*ops, *(_entry(verb.name, "verb", verb, doc=verb.doc) for verb in VERBS.values()))


def with_functions(library: Library) -> list[OpEntry]:
    """All ops, verbs and functions of the server, ordered by key."""
    return sorted([*entries(), *map(_function, library.latest().values())], key=lambda entry: entry.key)


def find(name: str, library: Library) -> list[OpEntry]:
    """Find the overloads of a name, the one with a key, a verb, or a function. Raises UnknownOp."""
    known = with_functions(library)
    exact = [entry for entry in known if entry.key == name]
    overloads = [entry for entry in known if entry.name == name or name in entry.aliases]
    if not exact and not overloads:
        raise unknown_op(name, {entry.key: entry for entry in known})
    return exact if "." in name else overloads


def search(prefix: str | None, text: str | None, kind: str | None, library: Library) -> Iterator[OpEntry]:
    """Entries of a kind whose key starts with ``prefix``, with ``text`` in the key, an alias or the documentation."""
    for entry in with_functions(library):
        if prefix is not None and not entry.key.startswith(prefix):
            continue
        if text is not None and text.lower() not in " ".join([entry.key, *entry.aliases, entry.doc]).lower():
            continue
        if kind is None or entry.kind == kind:
            yield entry


def _op(op: Op) -> OpEntry:
    same = ("name", "namespace", "aliases", "differentiable", "inplace", "view", "random", "internal", "doc", "returns")
    facts = {name: getattr(op, name) for name in same}
    return _entry(op.key, "op", op, outputs=() if op.lists_outputs else op.outputs, **facts)


def _function(function: Applicable) -> OpEntry:
    facts = {"namespace": "telegrad.ops", "differentiable": True, "doc": function.doc}
    return _entry(function.name, "function", function.signature, **facts)


def _entry(key: str, kind: OpKind, declared: Signature, **facts: Any) -> OpEntry:
    """An entry with the parameters of ``declared``. Fields missing from ``facts`` are empty or false."""
    absent: dict[str, Any] = {"name": key, "namespace": "", "aliases": [], "returns": "", "outputs": []}
    absent |= dict.fromkeys(("differentiable", "inplace", "view", "random", "internal"), False)
    members = {**absent, **facts, **parameters_of(declared)}
    return OpEntry(key=key, kind=kind, signature=declared.signature, **members)
