"""What requests and answers have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from telegrad_engine import dtypes
from telegrad_engine.program.instructions import ID_PATTERN

DTypeName = Annotated[str, Field(json_schema_extra={"enum": [d.name for d in dtypes.ALL]})]
TensorId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Data = Annotated[
    Any,
    Field(description='a number, or nested lists of numbers; "NaN", "Infinity" and "-Infinity" are strings'),
]
Attrs = Annotated[dict[str, Any], Field(description="attributes by name, as `GET /v1/ops/{op}` describes them")]


class Request(BaseModel):
    """A request's body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """An answer: every field is always there."""

    model_config = ConfigDict(extra="forbid")


class Tensor(Answer):
    """A tensor: what it is, and its value where that was asked for."""

    id: TensorId = Field(examples=["x"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DTypeName = Field(examples=["float32"])
    device: str = Field(examples=["cpu"])
    requires_grad: bool
    is_leaf: bool
    grad_fn: str | None = Field(description="the operation that made it", examples=["MulBackward0"])
    version: int = Field(description="how often its memory was modified in place")
    data: Data | None = Field(description="its value; null where it was not asked for", examples=[[1.0, 2.0]])
