"""A graph as it travels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..routing.schemas import Answer, DType, TensorId


class GraphNode(Answer):
    """An operation, or a tensor that no operation made."""

    id: str = Field(description="Names the node, in this response only.", examples=["n0"])
    kind: Literal["op", "leaf", "tensor"] = Field(description="`tensor` is a root that requires no grad.")
    op: str | None = Field(description="The op's key, as in `GET /v1/ops/{op}`; null for a tensor.", examples=["mul"])
    grad_fn: str = Field(examples=["MulBackward0"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    tensors: list[TensorId] = Field(description="The ids of the tensors that it is, or made.", examples=[["y"]])


class GraphEdge(Answer):
    """A value that flows from `source` to `target`."""

    source: str = Field(examples=["n1"])
    target: str = Field(examples=["n0"])
    output: int = Field(description="The index among the outputs of `source`.", examples=[0])
    input: int = Field(description="The index among the inputs of `target`.", examples=[0])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])


class Graph(Answer):
    """Operations, newest first, then leaves; and the values between them."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    omitted: int = Field(description="The number of older operations that are not part of the drawing.", examples=[0])
