"""Graphs of any size as at most some 1,500 boxes: a box is a vertex, or a group that can be opened.

Groups are modules, lines of the user's code or ops; a group with too many members has parts, runs of members in the
order in which they were made. A leaf belongs to the innermost group that has all of its users.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from ..schema.parameters import encode_number
from .record import GraphRecord, Origin, name_of_dtype

Fold = Literal["auto", "module", "line", "op", "none"]
MAX_BOXES = 1500
MAX_MEMBERS, PART = 1000, 500
"""A group with more than ``MAX_MEMBERS`` members is shown as parts of ``PART`` members, or of more to fit a limit."""
MAX_NAMES = 20
"""The most ids of tensors that a group lists."""
GROUP, OP, LINE = "g:", "#", "@"
"""What the ids of groups begin with; and what comes then for an op and a line, but not for a module."""
MARKS = "#@~"
UNUSED = "~other tensors"
"""The key of the group of tensors that no operation uses."""
Path = tuple[str, ...]


class Box(NamedTuple):
    """A vertex or a group of a folded graph."""

    id: str
    kind: str
    """The vertex's kind, or ``"group"``."""
    label: str
    op: str | None
    module: str | None
    line: str | None
    size: int
    """The number of vertices inside."""
    order: int
    """The order of its first vertex."""
    rank: int
    """The length of the longest path to it, along edges that lead to younger boxes; a leaf is above its first user."""
    shape: Sequence[int] | None
    dtype: str | None
    nbytes: int
    tensors: Sequence[str]
    grad_norm: float | None
    """For a group, the norm of all gradients inside together."""
    number: float | None
    """The number in a tensor of one element, if it is known."""
    expandable: bool


class FoldedGraph(NamedTuple):
    """The boxes by order, and the number of edges between each two of them."""

    fold: str
    boxes: Sequence[Box]
    edges: Counter[tuple[int, int]]
    """The number of edges by the positions of their source and their target."""
    box_of: Sequence[int]
    """For each vertex of the graph, the position of its box."""


class Group:
    """A module, a line, an op, a part of a group, or the whole graph."""

    def __init__(self, key: str, label: str, path: Path) -> None:
        self.id, self.label, self.path = GROUP + key, label, path
        self.members: list[Group | int] = []
        """Groups and positions of vertices, by order."""

    def positions(self) -> Iterator[int]:
        """The positions of all vertices inside, newest first."""
        waiting: list[Group | int] = [self]
        while waiting:
            member = waiting.pop()
            if isinstance(member, Group):
                waiting += member.members
            else:
                yield member

    def shown(self, most: int = MAX_MEMBERS) -> Sequence[Group | int]:
        """What is shown when the group is opened: its members, or at most ``most`` parts if it has more members."""
        if len(self.members) <= most:
            return self.members
        size, parts = max(PART, -(-len(self.members) // most)), []
        for number, start in enumerate(range(0, len(self.members), size)):
            part = Group(f"{self.id.removeprefix(GROUP)}[{number}]", f"{self.label} {number + 1}".strip(), self.path)
            part.members = self.members[start : start + size]
            parts.append(part)
        return parts


def fold_graph(
    graph: GraphRecord, fold: Fold = "auto", opened: Collection[str] = (), limit: int = MAX_BOXES
) -> FoldedGraph:
    """Fold a graph to at most ``limit`` boxes. ``opened`` are ids of groups that are shown as their members.

    With ``auto``, a graph of at most ``limit`` vertices is not folded, and others are folded by module, line or op,
    the first of which that any vertex has. A group is not opened if that gives too many boxes.
    """
    by = chosen(graph, limit) if fold == "auto" else fold
    root = _grouped(graph, by)
    opened = frozenset(opened)
    front: list[Group | int] = list(root.shown(limit))
    waiting = [member for member in front if isinstance(member, Group) and member.id in opened]
    while waiting:
        group = waiting.pop(0)
        inside = group.shown()
        if len(front) - 1 + len(inside) <= limit:
            at = front.index(group)
            front[at : at + 1] = inside
            waiting += [member for member in inside if isinstance(member, Group) and member.id in opened]
    return _drawn(graph, front, by)


def folded_data(
    graph: GraphRecord, fold: Fold = "auto", opened: Collection[str] = (), limit: int = MAX_BOXES
) -> dict[str, Any]:
    """A graph, folded as by :func:`fold_graph`, as JSON data."""
    found = fold_graph(graph, fold, opened, limit)
    boxes = []
    for box in found.boxes:
        data = box._asdict()
        data["bytes"], data["count"], norm = data.pop("nbytes"), data.pop("size"), box.grad_norm
        data["number"] = None if box.number is None else encode_number(box.number)
        boxes.append(data | {"grad_norm": None if norm is None else encode_number(norm)})
    edges = [
        {"source": boxes[source]["id"], "target": boxes[target]["id"], "count": count}
        for (source, target), count in found.edges.items()
    ]
    return {"nodes": len(graph), "fold": found.fold, "boxes": boxes, "edges": edges, "omitted": graph.omitted}


def add_boxes(
    found: dict[str, Any], graph: GraphRecord | None, fold: Fold = "auto", opened: Collection[str] = ()
) -> None:
    """Name each node of a traced pass with the box that has it in a folded graph; None without a graph."""
    boxes: Mapping[str, str] = {}
    if graph is not None:
        folded = fold_graph(graph, fold, opened)
        boxes = {graph.id_of(position): folded.boxes[box].id for position, box in enumerate(folded.box_of)}
    for step in found["steps"]:
        for each in (step, *step["targets"]):
            each["box"] = boxes.get(each["node"])
    for leaf in found["leaves"]:
        leaf["box"] = boxes.get(leaf["id"])


def chosen(graph: GraphRecord, limit: int) -> Fold:
    """The way in which ``auto`` folds."""
    if len(graph) <= limit:
        return "none"
    origins = {*graph.origins.values()}
    if any(origin.module is not None for origin in origins):
        return "module"
    return "line" if any(origin.line is not None for origin in origins) else "op"


# Groups --------------------------------------------------------------------------------------


def _op_path(op: str, origin: Origin) -> Path:
    return (OP + op,)


def _line_path(op: str, origin: Origin) -> Path:
    return _op_path(op, origin) if origin.line is None else (LINE + origin.line,)


def _module_path(op: str, origin: Origin) -> Path:
    if not origin.module:
        return _line_path(op, origin)
    parts = origin.module.split(".")
    return tuple([".".join(parts[: depth + 1]) for depth in range(len(parts))])


PATHS: dict[str, Callable[[str, Origin], Path]] = {
    "module": _module_path, "line": _line_path, "op": _op_path, "none": lambda op, origin: (),
}  # fmt: skip
"""For each way to fold, the keys of the groups that an operation is in, outermost first."""


def _paths(graph: GraphRecord, by: str) -> list[Path]:
    path_of = PATHS[by]
    known: dict[tuple[str, Origin], Path] = {}
    paths: list[Path] = []
    users: dict[int, Path] = {}
    """For each leaf so far, the path that its users have in common."""
    for position, op in enumerate(graph.ops):
        if op is None:
            paths.append(() if by == "none" else (UNUSED,))
            continue
        key = op, graph.origin_of(position)
        path = known.get(key)
        if path is None:
            path = known[key] = path_of(*key)
        paths.append(path)
        for source in graph.inputs[position]:
            if source in graph.kinds:
                users[source] = _common(users[source], path) if source in users else path
    for position, path in users.items():
        paths[position] = path
    return paths


def _common(a: Path, b: Path) -> Path:
    if a == b:
        return a
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def _grouped(graph: GraphRecord, by: str) -> Group:
    """The whole graph as a group."""
    root = Group("", "", ())
    groups: dict[Path, Group] = {(): root}
    for position, path in enumerate(_paths(graph, by)):
        group = groups.get(path)
        if group is None:
            outer = root
            for depth in range(1, len(path) + 1):
                inner = groups.get(path[:depth])
                if inner is None:
                    key = path[depth - 1]
                    inner = groups[path[:depth]] = Group(key, key.lstrip(MARKS), path[:depth])
                    outer.members.append(inner)
                outer = inner
            group = outer
        group.members.append(position)
    return root


# Boxes ---------------------------------------------------------------------------------------


def _drawn(graph: GraphRecord, front: Sequence[Group | int], by: str) -> FoldedGraph:
    box_of = [-1] * len(graph)
    boxes: list[Box] = []
    for number, member in enumerate(front):
        if isinstance(member, Group):
            inside = [*member.positions()]
            for position in inside:
                box_of[position] = number
            boxes.append(_group_box(graph, member, inside))
        else:
            box_of[member] = number
            boxes.append(_vertex_box(graph, member))
    edges: Counter[tuple[int, int]] = Counter()
    for inputs, target in zip(graph.inputs, box_of, strict=True):
        for source in inputs:
            if box_of[source] != target:
                edges[box_of[source], target] += 1
    return FoldedGraph(by, _ranked(boxes, edges), edges, box_of)


def _vertex_box(graph: GraphRecord, position: int) -> Box:
    op, ids, origin = graph.ops[position], graph.tensors.get(position, ()), graph.origin_of(position)
    kind = graph.kinds.get(position, "op")
    return Box(
        id=graph.id_of(position),
        kind=kind,
        label=op or (ids[0] if ids else kind),
        op=op,
        module=origin.module,
        line=origin.line,
        size=1,
        order=graph.orders[position],
        rank=0,
        shape=graph.shapes[position],
        dtype=name_of_dtype(graph.dtypes[position]),
        nbytes=graph.nbytes[position],
        tensors=ids[:MAX_NAMES],
        grad_norm=graph.grad_norms.get(position),
        number=graph.numbers.get(position),
        expandable=False,
    )


def _group_box(graph: GraphRecord, group: Group, inside: Sequence[int]) -> Box:
    key = group.path[-1] if group.path else ""
    norms = [graph.grad_norms[position] for position in inside if position in graph.grad_norms]
    names = (name for position in inside if position in graph.tensors for name in graph.tensors[position])
    return Box(
        id=group.id,
        kind="group",
        label=group.label,
        op=key[1:] if key.startswith(OP) else None,
        module=None if key[:1] in MARKS else key,
        line=key[1:] if key.startswith(LINE) else None,
        size=len(inside),
        order=min([graph.orders[position] for position in inside]),
        rank=0,
        shape=None,
        dtype=None,
        nbytes=sum([graph.nbytes[position] for position in inside]),
        tensors=list(islice(names, MAX_NAMES)),
        grad_norm=math.hypot(*norms) if norms else None,
        number=None,
        expandable=True,
    )


def _ranked(boxes: Sequence[Box], edges: Counter[tuple[int, int]]) -> list[Box]:
    """The boxes with their ranks. Groups may be on a cycle: an edge to an older box, or one as old, is left out."""
    place = {number: (box.order, number) for number, box in enumerate(boxes)}
    targets: dict[int, list[int]] = {}
    for source, target in edges:
        if place[source] < place[target]:
            targets.setdefault(source, []).append(target)
    ranks = [0] * len(boxes)
    for source in sorted(range(len(boxes)), key=place.__getitem__):
        for target in targets.get(source, ()):
            ranks[target] = max(ranks[target], ranks[source] + 1)
    for number, box in enumerate(boxes):
        if box.kind in ("leaf", "tensor") and number in targets:
            ranks[number] = max(0, min(ranks[target] for target in targets[number]) - 1)
    return [box._replace(rank=rank) for box, rank in zip(boxes, ranks, strict=True)]
