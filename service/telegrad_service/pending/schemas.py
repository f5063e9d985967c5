"""Calls as they travel; see docs/client-evaluated.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..schemas import Answer, Request, Tensor, TensorId

Kind = Literal["backward", "hook", "post_accumulate_grad_hook", "node_prehook", "node_hook"]


class PendingCall(Answer):
    """What a backward pass waits for."""

    call: str = Field(description="its id, which resumes the pass", examples=["call1"])
    kind: Kind = Field(
        description="a function's backward, a tensor's hook, a leaf's that has its gradient, or a node's"
    )
    function: str | None = Field(description="name of the function whose backward it is", examples=["MyFunction"])
    ctx: str = Field(description="the id that the client gave that call of the function, or the hook")
    gradients: list[TensorId | None] = Field(
        description="the gradients that have arrived, tensors of the session from now on; null where none did"
    )
    outputs: list[TensorId] = Field(description="ids that the results get when the pass is done; empty for backward")


class StoppedProgram(PendingCall):
    """Where a program stopped, and what for."""

    instruction: int = Field(description="index of the instruction that waits; those behind it did not run")


class PendingPage(Answer):
    """All calls that passes of the session wait for, the first one first."""

    items: list[PendingCall]


class Resume(Request):
    """What the client computed."""

    gradients: Annotated[
        list[TensorId | None],
        Field(
            description="of a function's backward: one for each input, null for none. Of a hook: the gradient's "
            "replacement, if there is one. Of a node's hook: one for each that it may replace, or nothing"
        ),
    ] = []


class PassAnswer(Answer):
    """How far the pass came."""

    pending: PendingCall | None = Field(description="what it waits for now; null when it is done")
    outputs: list[Tensor | None] = Field(
        description="the results of a grad that is done; null for an input that was not used"
    )


EXAMPLES: dict[str, Any] = {
    "gradients": {"summary": "Of two inputs, the second without", "value": {"gradients": ["gx", None]}},
    "hook": {"summary": "A hook that changed nothing", "value": {"gradients": []}},
}
