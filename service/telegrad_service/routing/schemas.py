"""Schemas shared by requests and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, WrapValidator
from typing_extensions import TypeAliasType

from telegrad_engine import dtypes
from telegrad_engine.program.instructions import ID_PATTERN

# A type alias becomes a named component of the OpenAPI document, so generated clients have one enumeration for all
# uses. In Go, its values are package-level constants, so no two such enumerations may share a value.
DType = TypeAliasType(
    "DType",
    Annotated[
        str, Field(description="A dtype, by torch's name.", json_schema_extra={"enum": [d.name for d in dtypes.ALL]})
    ],
)
TensorId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
# Any JSON except an object. With a union of the possible types, generated clients would wrap every number.
NOT_AN_OBJECT: dict[str, Any] = {"not": {"type": "object"}}
Data = Annotated[
    Any,
    Field(
        description='A number or a boolean, or nested lists of them; "NaN", "Infinity" and "-Infinity" are strings.',
        json_schema_extra=NOT_AN_OBJECT,
    ),
]
LITERAL: dict[str, Any] = {"not": {"type": ["object", "array"]}}
Input = Annotated[Any, Field(json_schema_extra={**NOT_AN_OBJECT, "items": {**NOT_AN_OBJECT, "items": LITERAL}})]
SESSION_ID = "The session's id."
INPUTS = "Tensor ids, numbers, booleans, nulls, and lists of these, at most two deep, in the op's order."
Attrs = Annotated[dict[str, Any], Field(description="Attributes by name, as `GET /v1/ops/{op}` describes them.")]
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
"""The content of a request or a response in a binary media type."""
OutputIds = Annotated[
    list[TensorId] | None, Field(description="Ids for the outputs; the server chooses them if this is absent.")
]
# For values that a model documents and the engine validates: they are passed on unchanged.
Unchecked = WrapValidator(lambda value, _: value)
also = AliasChoices
"""The validation alias of a member: its name, and a deprecated one that requests may have instead."""


class Request(BaseModel):
    """A request's body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """An answer: every field is always there."""

    model_config = ConfigDict(extra="forbid")


class Tensor(Answer):
    """A tensor's description, and its value where the request asks for it."""

    id: TensorId = Field(description="The tensor's id.", examples=["x"])
    shape: list[int] = Field(description="The size of each dimension; empty for a scalar.", examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    device: str = Field(description="Where the tensor lives.", examples=["cpu"])
    requires_grad: bool = Field(description="Whether operations on it are recorded.", examples=[True])
    is_leaf: bool = Field(description="Whether no recorded operation made it.", examples=[True])
    grad_fn: str | None = Field(
        description="The operation that made it; null for a leaf.", examples=[None, "MulBackward0"]
    )
    version: int = Field(description="How often its memory was modified in place.", examples=[0])
    data: Data | None = Field(description="Its value; null if the request does not ask for it.", examples=[[1.0, 2.0]])
