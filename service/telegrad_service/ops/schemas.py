"""One op as it travels."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..routing.schemas import INPUTS, Answer, Attrs, Input, Request, Tensor, TensorId


class OpArguments(Request):
    """The op's inputs and attributes, and ids for its outputs."""

    inputs: list[Input] = Field(default=[], description=INPUTS)
    attrs: Attrs = Field(default={})
    outputs: list[TensorId] | None = Field(
        default=None, description="Ids for the outputs; the server chooses them if this is absent."
    )


class OpResult(Answer):
    """The op's outputs; for an in-place op, the tensor that it changed."""

    outputs: list[Tensor] = Field(description="In the op's order.")


EXAMPLES: dict[str, Any] = {
    "mul": {"summary": "Multiply two tensors", "value": {"inputs": ["x", "w"], "outputs": ["y"]}},
    "max": {"summary": "An overload, by its attributes", "value": {"inputs": ["x"], "attrs": {"dim": 1}}},
}
