"""Schemas of ops and devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from telegrad_engine.schema.signature import REQUIRED, Param

from ..routing.pages import Page
from ..routing.schemas import Answer

OpKind = Literal["op", "verb", "function"]


class OpParam(Answer):
    """A parameter of an op or verb."""

    name: str = Field(examples=["input"])
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


def parameters_of(params: Iterable[Param]) -> dict[str, list[OpParam]]:
    """The members of :class:`Parameters` for declared parameters."""
    found = params_of(params)
    by_source = {f"{source}s": [param for param in found if param.source == source] for source in ("input", "attr")}
    return {**by_source, "params": found}


def params_of(params: Iterable[Param]) -> list[OpParam]:
    """The schemas of declared parameters."""
    return [
        OpParam(
            name=param.name,
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
