"""Tensors as they travel."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ..media import JSON, NPY, SAFETENSORS
from ..schemas import Answer, Attrs, Data, DTypeName, Request, Tensor, TensorId


class CreateTensor(Request):
    """A tensor from ``data``, or from a ``factory`` such as zeros or randn."""

    id: TensorId | None = Field(default=None, description="its id; the server chooses one if there is none")
    data: Data = Field(default=None)
    factory: str | None = Field(
        default=None, description="an op without tensor inputs: zeros, ones, full, eye, arange, randn, …"
    )
    shape: list[int] | None = Field(default=None, description="the factory's `size`")
    attrs: Attrs = Field(default={})
    dtype: DTypeName | None = Field(default=None, description="inferred as torch does if there is none")
    requires_grad: bool = False

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if ("data" in self.model_fields_set) == (self.factory is not None):
            raise ValueError("give either data or factory")
        if self.factory is None and (self.shape is not None or self.attrs):
            raise ValueError("shape and attrs belong to a factory")
        return self


class UpdateTensor(Request):
    """What to change; what is absent stays."""

    requires_grad: bool | None = Field(default=None, description="for leaves of a floating dtype")
    retains_grad: Literal[True] | None = Field(
        default=None, description="have backward fill this non-leaf's gradient too"
    )
    data: Data = Field(default=None)

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give requires_grad, retains_grad or data")
        return self


class TensorPage(Answer):
    """Some of a session's tensors, ordered by id."""

    items: list[Tensor]
    next_cursor: str | None = Field(description="`cursor` of the next page; null after the last")


CREATE_EXAMPLES: dict[str, Any] = {
    "data": {"summary": "From data", "value": {"id": "x", "data": [1.0, 2.0], "requires_grad": True}},
    "factory": {"summary": "From a factory", "value": {"factory": "randn", "shape": [2, 3]}},
}

BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
BINARY_CONTENT = dict.fromkeys((SAFETENSORS, NPY), BINARY)
CREATE_TENSOR: dict[str, Any] = {"requestBody": {"required": True, "content": {JSON: {}, **BINARY_CONTENT}}}
