"""The effects of a plan: the changes to a session after a run.

Arrays, version counters and tensors are numbered: first those of the tensors that the program takes, in the order of
:class:`~.input_signature.Inputs`, then those that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..program.program import Program
from .graphs import GraphData


class ArraySource(NamedTuple):
    """Where an array comes from: an output of the plan, or one of its inputs."""

    is_output: bool
    position: int


class Save(NamedTuple):
    """An array that nodes of a graph save."""

    source: ArraySource
    shared: bool
    """Whether it shares the memory of a tensor, whose version guards it; otherwise only the nodes use it."""


class GraphPosition(NamedTuple):
    """A tensor's place in the graph."""

    requires_grad: bool
    node: int
    """The edge to its node."""
    output_nr: int


class Made(NamedTuple):
    """A tensor that the program makes."""

    array: int
    view: Any
    """The pattern of the path from the array to it, and of the further attributes of a view."""
    version_counter: int
    base: int | None
    grad: int | None


class Fetched(NamedTuple):
    """A tensor that the program fetches."""

    id: int
    description: Mapping[str, Any]
    version_counter: int
    """The number of its version counter. The version in the description is relative to that counter."""
    source: ArraySource | None
    """None if only the description is requested."""
    kept: int | None
    """Its position among the arrays that the program makes, if it is one of them."""


class Effects(NamedTuple):
    """All effects of a program on a session."""

    program: Program
    arrays: list[ArraySource]
    """The arrays that it makes."""
    increases: list[int]
    """The increase of each version counter; those of new tensors begin at zero."""
    writes: list[tuple[int, ArraySource]]
    """The numbers of the taken arrays that are overwritten, each with the source of the new values."""
    made: list[Made]
    placed: list[tuple[int, GraphPosition]]
    """The tensors whose place in the graph is new or changed."""
    grads: list[tuple[int, int | None]]
    """The taken tensors whose gradient changes, each with the number of the new gradient or None."""
    names: list[tuple[int, int]]
    """The ids of tensors that it makes or renames, each with the tensor's number."""
    graph: GraphData
    saves: list[Save]
    """The arrays that its nodes save and that are not a tensor's."""
    freed_nodes: list[int]
    """The numbers of the existing nodes that it frees."""
    fetched: list[Fetched]
    needs: int
    """The number of bytes that a session must have left."""
