"""Calls as they travel; see docs/client-evaluated.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..routing.schemas import Answer, Request, Tensor, TensorId

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


class StoppedProgram(PendingCall):
    """Where a program stopped, and what it waits for."""

    instruction: int = Field(
        description="The index of the instruction that waits; the instructions after it did not run.", examples=[3]
    )


class PendingPage(Answer):
    """All calls that backward passes of the session wait for, oldest first."""

    items: list[PendingCall]


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


EXAMPLES: dict[str, Any] = {
    "gradients": {"summary": "Of two inputs, the second without", "value": {"gradients": ["gx", None]}},
    "hook": {"summary": "A hook that changed nothing", "value": {"gradients": []}},
}
