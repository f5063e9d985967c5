"""Schemas of backward, grad and the calls that passes wait for; docs/client-evaluated.md describes the calls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..routing.pages import Page
from ..routing.schemas import Answer, Request, Tensor, TensorId

Ids = Annotated[list[TensorId], Field(min_length=1)]
Gradients = Annotated[
    list[TensorId | None] | None,
    Field(description="The gradient that flows into each of them; null for a tensor of one element."),
]
PENDING = "What the client must evaluate first, with status 202; null when the pass is done."
RETAIN = "Keep the graph for another pass; as `create_graph` if absent."
RECORD = "Record the pass, so that the gradients can be differentiated."
Kind = Literal["backward", "hook", "post_accumulate_grad_hook", "node_prehook", "node_hook"]


class PendingCall(Answer):
    """What a backward pass waits for."""

    call: str = Field(description="The call's id, which resumes the pass.", examples=["call1"])
    kind: Kind = Field(description="The backward of a client-evaluated function, or the kind of hook.")
    function: str | None = Field(
        description="The name of the function whose backward it is; null for a hook.", examples=["MyFunction"]
    )
    ctx: str = Field(description="The id that the client chose for this call, or for the hook.", examples=["ctx1"])
    gradients: list[TensorId | None] = Field(
        description="The gradients so far, which are tensors of the session from now on; null where there is none.",
        examples=[["g1"]],
    )
    outputs: list[TensorId] = Field(
        description="The ids of the results when the pass is done; empty for backward.", examples=[["dy_dx"]]
    )


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


class StoppedProgram(PendingCall):
    """Where a program stopped, and what it waits for."""

    instruction: int = Field(
        description="The index of the instruction that waits; the instructions after it did not run.", examples=[3]
    )


class PendingPage(Page[PendingCall]):
    """Calls that backward passes of the session wait for, oldest first."""


class ResumeArguments(Request):
    """What the client computed."""

    gradients: Annotated[
        list[TensorId | None],
        Field(
            description="For a function's backward: one for each input, null for none. For a tensor's hook: the "
            "gradient's replacement, if there is one. For a node's hook: one for each gradient, or an empty list."
        ),
    ] = []


class ResumeResult(Answer):
    """The progress of the pass."""

    pending: PendingCall | None = Field(description="What it waits for now; null when it is done.", examples=[None])
    outputs: list[Tensor | None] = Field(
        description="The results, if the pass is a grad and is done; null for an unused input."
    )
