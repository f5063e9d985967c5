"""A graph as it travels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..schemas import Answer, DTypeName, TensorId


class GraphNode(Answer):
    """An operation, or a tensor that none made."""

    id: str = Field(description="names the node in this answer only", examples=["n0"])
    kind: Literal["op", "leaf", "tensor"] = Field(description="`tensor` is a root that requires no grad")
    op: str | None = Field(description="key of the op, as in `GET /v1/ops/{op}`", examples=["mul"])
    grad_fn: str = Field(examples=["MulBackward0"])
    shape: list[int]
    dtype: DTypeName
    tensors: list[TensorId] = Field(description="ids of the tensors that it is or made")


class GraphEdge(Answer):
    """A value that flows from `source` to `target`."""

    source: str
    target: str
    output: int = Field(description="which output of `source`")
    input: int = Field(description="which input of `target`")
    shape: list[int]
    dtype: DTypeName


class Graph(Answer):
    """Operations, newest first, then leaves; and the values between them."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    omitted: int = Field(description="how many operations are older than those that were drawn")
