"""Backward and grad as they travel."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..pending.schemas import PendingCall
from ..routing.schemas import Answer, Request, Tensor, TensorId

Ids = Annotated[list[TensorId], Field(min_length=1)]
Gradients = Annotated[
    list[TensorId | None] | None,
    Field(description="The gradient that flows into each of them; null for a tensor of one element."),
]
PENDING = "What the client must evaluate first, with status 202; null when the pass is done."
RETAIN = "Keep the graph for another pass; as `create_graph` if absent."
RECORD = "Record the pass, so that the gradients can be differentiated."


class BackwardArguments(Request):
    """What to differentiate."""

    tensors: Ids = Field(description="The tensors to differentiate; the gradients of several are summed.")
    gradients: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description=RECORD)
    inputs: Ids | None = Field(default=None, description="Accumulate gradients into these tensors only.")


class BackwardResult(Answer):
    """Which tensors have a gradient now."""

    grads: list[TensorId] = Field(description="Ids of the session's tensors that have a gradient.", examples=[["x"]])
    pending: PendingCall | None = Field(description=PENDING, examples=[None])


class GradArguments(Request):
    """What to differentiate, and with respect to what."""

    outputs: Ids = Field(description="The tensors to differentiate.")
    inputs: Ids = Field(description="The tensors with respect to which they are differentiated.")
    grad_outputs: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description=RECORD)
    allow_unused: bool | None = Field(default=None, description="Return null for an unused input, instead of an error.")
    materialize_grads: bool = Field(default=False, description="Return zeros for an unused input, instead of null.")
    names: list[TensorId] | None = Field(
        default=None, description="Ids for the gradients; the server chooses them if this is absent."
    )


class GradResult(Answer):
    """The gradients."""

    grads: list[Tensor | None] = Field(description="One for each input; null for an unused input.")
    pending: PendingCall | None = Field(description=PENDING + " Until then, `grads` is empty.", examples=[None])


BACKWARD_EXAMPLES: dict[str, Any] = {"scalar": {"summary": "From a loss", "value": {"tensors": ["loss"]}}}
GRAD_EXAMPLES: dict[str, Any] = {
    "first": {"summary": "First order", "value": {"outputs": ["y"], "inputs": ["x"]}},
    "again": {
        "summary": "Second order: record the pass",
        "value": {"outputs": ["y"], "inputs": ["x"], "create_graph": True, "names": ["dy_dx"]},
    },
}
