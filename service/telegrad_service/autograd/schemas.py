"""Backward and grad as they travel."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..pending.schemas import PendingCall
from ..schemas import Answer, Request, Tensor, TensorId

Ids = Annotated[list[TensorId], Field(min_length=1)]
Gradients = Annotated[
    list[TensorId | None] | None,
    Field(description="the gradient that flows into each of them; null for a tensor of one element"),
]
PENDING = "what the client must evaluate first, with status 202; null when the pass is done"
RETAIN = "keep the graph for another pass; `create_graph` if absent"


class Backward(Request):
    """What to differentiate."""

    tensors: Ids = Field(description="the tensors whose sum of gradients is accumulated")
    gradients: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description="record the pass, so that gradients can be differentiated")
    inputs: Ids | None = Field(default=None, description="accumulate into these alone")


class BackwardAnswer(Answer):
    """Where gradients are now."""

    grads: list[TensorId] = Field(description="ids of the session's tensors that have a gradient", examples=[["x"]])
    pending: PendingCall | None = Field(description=PENDING)


class Grad(Request):
    """What to differentiate, and with respect to what."""

    outputs: Ids
    inputs: Ids
    grad_outputs: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description="record the pass, so that gradients can be differentiated")
    allow_unused: bool | None = Field(
        default=None, description="null instead of an error for inputs that were not used"
    )
    materialize_grads: bool = Field(default=False, description="zeros instead of null for inputs that were not used")
    names: list[TensorId] | None = Field(
        default=None, description="ids for the gradients; the server chooses them if absent"
    )


class GradAnswer(Answer):
    """One gradient an input; null for one that was not used."""

    grads: list[Tensor | None]
    pending: PendingCall | None = Field(description=PENDING + "; then there are no gradients yet")


BACKWARD_EXAMPLES: dict[str, Any] = {"scalar": {"summary": "Of a loss", "value": {"tensors": ["loss"]}}}
GRAD_EXAMPLES: dict[str, Any] = {
    "first": {"summary": "First order", "value": {"outputs": ["y"], "inputs": ["x"]}},
    "again": {
        "summary": "To be differentiated again",
        "value": {"outputs": ["y"], "inputs": ["x"], "create_graph": True, "names": ["dy_dx"]},
    },
}
