"""Schemas of the messages of a stream, for the documentation only: the stream writes and the engine reads them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from telegrad_engine.program.wire import MAX_CALLS, TEXT

from ..autograd.schemas import StoppedProgram
from ..problems import Problem
from ..routing.schemas import Answer, DType, Request, TensorId

NUMBER = r"^[0-9]{1,18}$"
"""Sequence numbers are strings in the metadata of containers."""


def _json(model: str, many: bool = False) -> dict[str, Any]:
    """The schema of a string that is JSON of a model, or of a list of it."""
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{model}"}
    return {
        "contentMediaType": "application/json",
        "x-contentSchema": {"type": "array", "items": schema} if many else schema,
    }


class Greeting(Answer):
    """The first message of the server."""

    session: str = Field(description="The session's id.", examples=["0s7vJ1mQ2nGx4yRkTz8bWc5d"])
    request_id: str = Field(description="The connection's id, as in the server's log.", examples=["5f0c7d1b9a2e4c60"])
    last: int = Field(description="The last number that was used; 0 before the first.", examples=[41])
    failed: int = Field(description="The last number whose program did not finish.", examples=[0])
    max_bytes: int = Field(description="The maximum length of a message.", examples=[2**29])
    unmasked: bool = Field(
        default=False,
        description="Whether frames may have a masking key of zero: the connection does not leave this machine.",
        examples=[True],
    )


class Call(Request):
    """A run of a template."""

    template: str = Field(description="The SHA-256 of the template's text, in hexadecimal.", examples=["9f86d081"])
    ids: list[TensorId] = Field(default=[], description="The tensors' ids, in slot order.", examples=[["x", "y"]])
    operands: list[float | str] = Field(
        default=[], description='The numbers and ids for `{"operand": 0}` and so on in the text.', examples=[[0.5]]
    )
    fetch: list[int] = Field(default=[], description="The slots to return.", examples=[[1]])
    values: bool = Field(default=True, description="Whether values are returned, or only descriptions.")
    free: list[int] = Field(default=[], description="The slots to free at the end.", examples=[[1]])


class Metadata(Request):
    """The metadata of a program's container. It has either `program`, or `calls` and the texts of new templates."""

    sequence: str = Field(pattern=NUMBER, description="The program's number: each sender counts 1, 2, 3, …")
    seen: str = Field(
        pattern=NUMBER, description="The last number whose answer the client had read when it wrote this message."
    )
    program: str | None = Field(
        default=None,
        description="A program in JSON. A `tensor` without `data` is uploaded: the container has its array.",
        json_schema_extra=_json("Program"),
    )
    calls: str | None = Field(
        default=None,
        description=f"At most {MAX_CALLS} calls of templates in JSON. The container has "
        f"uploads by the call's index, a dot and the slot. `{TEXT}` and a digest is the key of a template's text.",
        json_schema_extra=_json("Call", many=True),
    )
    free: str | None = Field(
        default=None,
        description="Ids to free after all calls, as a list in JSON.",
        json_schema_extra={"contentMediaType": "application/json"},
    )


class TensorDescription(Answer):
    """A fetched tensor; its value is the container's tensor of this id."""

    id: TensorId = Field(examples=["x"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType
    device: str = Field(examples=["cpu"])
    requires_grad: bool = Field(examples=[True])
    is_leaf: bool = Field(examples=[True])
    grad_fn: str | None = Field(examples=[None])
    version: int = Field(examples=[0])


class StreamResult(Answer):
    """The values that the program fetched."""

    values: dict[str, TensorDescription] = Field(description="The fetched tensors, by id.")
    pending: StoppedProgram | None = Field(
        default=None, description="What the client must evaluate first; absent if the whole program ran."
    )


class AnswerMetadata(Answer):
    """The metadata of an answer's container, whose tensors are the fetched values."""

    sequence: str = Field(pattern=NUMBER, description="The program's number.", examples=["42"])
    answer: str = Field(
        description="The descriptions of the fetched tensors, in JSON.",
        json_schema_extra=_json("StreamResult"),
    )


class StreamProblem(Problem):
    """An error (RFC 9457), and the number of the program."""

    sequence: int | None = Field(
        description="The program's number; null if the message was not a numbered container.", examples=[42]
    )
