"""Schemas of tensors."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from ..http.media import JSON, NPY, SAFETENSORS
from ..routing.pages import Page
from ..routing.schemas import Attrs, Data, DType, Request, Tensor, TensorId


class _NewTensor(Request):
    id: TensorId | None = Field(default=None, description="The tensor's id; the server chooses one if this is absent.")
    dtype: DType | None = Field(default=None, description="Inferred as torch does if this is absent.")
    requires_grad: bool = Field(default=False, description="Whether operations on it are recorded.")


class TensorFromData(_NewTensor):
    """A tensor from its values."""

    data: Data

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        if "shape" in body or "attrs" in body:
            raise ValueError("shape and attrs belong to a factory")
        return body


class TensorFromFactory(_NewTensor):
    """A tensor from an op that takes no tensors, such as zeros or randn."""

    factory: str = Field(description="The op: zeros, ones, full, eye, arange, randn, …")
    shape: list[int] | None = Field(default=None, description="The factory's `size`.")
    attrs: Attrs = Field(default={})


def _source(body: Any) -> str | None:
    """The field, ``data`` or ``factory``, that selects the model of a body; None if it has both or neither."""
    found = body.keys() & {"data", "factory"} if isinstance(body, dict) else set()
    return found.pop() if len(found) == 1 else None


TensorCreate = TypeAliasType(
    "TensorCreate",
    Annotated[
        Annotated[TensorFromData, Tag("data")] | Annotated[TensorFromFactory, Tag("factory")],
        Discriminator(_source, custom_error_type="tensor_source", custom_error_message="give either data or factory"),
        Field(description="A tensor from `data`, or from a `factory` such as zeros or randn."),
    ],
)


class TensorUpdate(Request):
    """What to change; absent fields stay as they are."""

    requires_grad: bool | None = Field(default=None, description="For leaves of a floating-point dtype.")
    retains_grad: bool | None = Field(
        default=None,
        description="True has backward fill the gradient of a tensor that is no leaf; it cannot be undone.",
        json_schema_extra={"not": {"enum": [False]}},
    )
    data: Data = Field(default=None)

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give requires_grad, retains_grad or data")
        if self.retains_grad is False:
            raise ValueError("retains_grad cannot be undone; give true, or leave it out")
        return self


class TensorPage(Page[Tensor]):
    """A session's tensors, ordered by id."""


BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
BINARY_CONTENT = dict.fromkeys((SAFETENSORS, NPY), BINARY)
CREATE_TENSOR: dict[str, Any] = {"requestBody": {"required": True, "content": {JSON: {}, **BINARY_CONTENT}}}
