"""One op as it travels."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..schemas import Answer, Attrs, Request, Tensor, TensorId


class RunOp(Request):
    """The op's inputs and attributes, and ids for its outputs."""

    inputs: list[Any] = Field(
        default=[], description="tensor ids, numbers, booleans, nulls, and lists of these, in the op's order"
    )
    attrs: Attrs = Field(default={})
    outputs: list[TensorId] | None = Field(
        default=None, description="ids of its outputs; the server chooses them if absent"
    )


class OpAnswer(Answer):
    """The op's outputs; for an in-place op the tensor that it changed."""

    outputs: list[Tensor]


EXAMPLES: dict[str, Any] = {
    "mul": {"summary": "Multiply two tensors", "value": {"inputs": ["x", "w"], "outputs": ["y"]}},
    "max": {"summary": "An overload, by its attributes", "value": {"inputs": ["x"], "attrs": {"dim": 1}}},
}
