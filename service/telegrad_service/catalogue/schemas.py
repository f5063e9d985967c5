"""Ops and devices as they travel."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..schemas import Answer


class OpParam(Answer):
    """A parameter of an op or verb."""

    name: str
    kind: str = Field(description="in PyTorch's words", examples=["Tensor"])
    source: Literal["input", "attr"] = Field(description="whether it stands in `inputs` or in `attrs`")
    required: bool
    default: Any = Field(description="null if it is required")
    json_schema: dict[str, Any] = Field(description="JSON schema of its values")


class OpEntry(Answer):
    """An op, a verb of programs, or a function that all sessions have."""

    key: str = Field(description="names exactly this overload", examples=["max.dim"])
    name: str = Field(description="torch's name, shared by overloads", examples=["max"])
    kind: Literal["op", "verb", "function"]
    namespace: str = Field(description="where torch has it; empty for verbs", examples=["torch.nn.functional"])
    aliases: list[str]
    signature: str
    doc: str
    params: list[OpParam]
    outputs: list[str] = Field(description="names of its outputs; empty where their number varies")
    differentiable: bool
    inplace: bool = Field(description="whether it has an in-place form, its name with a trailing _")
    view: bool = Field(description="whether its result shares memory with its input")
    random: bool
    internal: bool = Field(description="whether it serves other ops, as indexing does, and is no function of torch")


class OpPage(Answer):
    """The ops and verbs that were asked for."""

    items: list[OpEntry]


class DeviceEntry(Answer):
    """A device that sessions can live on."""

    name: str = Field(examples=["cpu"])
    backend: str = Field(description="the array library behind it", examples=["numpy"])
    cores: int


class DevicePage(Answer):
    """The devices of this server."""

    items: list[DeviceEntry]
