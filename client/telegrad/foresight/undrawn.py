"""What is not in the shadow graph yet: nodes that are drawn once somebody looks at them, which mostly nobody does.

A plain pass over them is known from the first one, which was run on nodes: it reaches the same leaves again, and all
that it leaves is that these nodes, if they are ever drawn, have been gone through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.graph import walk
from telegrad_engine.meta import Meta
from telegrad_engine.stale import free

from ..shadow import ShadowValues

BETWEEN = 2.0**-20
"""How much younger each node that is drawn later is than the one before, where others are younger by 1."""
Given = tuple[Any, Any, list[int], int]
"""A tensor that is given: itself if it is a leaf, its shape and dtype, its version's counter, and its version then."""
Passes = dict[int, tuple[int, ...]]
"""Of a plain pass, from a tensor's place: the leaves that it reaches, by theirs."""


def as_given(tensor: Any) -> Given | None:
    """A tensor as it is now; None if it is more than a leaf."""
    if tensor._requires_grad and (tensor._base is not None or tensor._node is not None):
        return None
    leaf = tensor if tensor._requires_grad else None  # nothing else is kept alive by it
    return leaf, tensor._data, tensor._cell, tensor._cell[0]


def stand_in(given: Given) -> Meta:
    """What stands for it; edges lead to the leaf itself."""
    leaf, data, cell, _ = given
    stands = Meta(data)
    stands._cell, stands._node, stands._requires_grad = cell, leaf, leaf is not None
    return stands


class Undrawn:
    """Nodes between tensors that were given and results, whose handles have it as their ``_drawing``."""

    __slots__ = ("given", "nodes", "root")

    given: Mapping[int, Given]
    """What it was given, by places."""

    def __init__(self) -> None:
        self.root: str | None = None
        """From where a pass went through it."""
        self.nodes: Mapping[str, Any] | None = None
        """Once it is drawn, the nodes of results, by their ids."""

    def draw(self) -> Mapping[str, Any]:
        """Enter its nodes into the graph, as old as they are: those of results, by their ids."""
        raise NotImplementedError

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Go through it from a result of one element, as a plain pass would; false if that has to be run."""
        raise NotImplementedError

    def node(self, name: str) -> Any:
        """The node of a result; None for the id of anything else."""
        if self.nodes is None:
            nodes = self.draw()
            if self.root is not None:
                for node in walk(nodes[self.root]):
                    if node.plan.holds_tensors:
                        free(node)
            self.nodes = nodes
        return self.nodes.get(name)

    def go_over(self, root: Any, place: int, passes: Passes, inputs: Sequence[Any] | None) -> bool:
        """Do what a plain pass from this place does; false if it is not known, and then it is found out."""
        reached = passes.get(place)
        if reached is None:
            found = self._reached(root)
            if found is not None:
                passes[place] = found
            return False
        leaves = [self.given[each][0] for each in reached]
        if not all(leaf._requires_grad for leaf in leaves):
            return False  # one was frozen since
        if inputs is None:
            for leaf in leaves:
                leaf._receive_grad()
        elif sorted(map(id, leaves)) != sorted(map(id, inputs)):
            return False  # what leads to others is not gone through
        self.root = root._id
        return True

    def _reached(self, root: Any) -> tuple[int, ...] | None:
        """The places of the leaves that a pass gives gradients, in that order; None if it is out of the ordinary."""
        leaves: list[Any] = []
        values = ShadowValues()
        started = [(self.node(root._id), 0, root._data)]
        once = values.Pass(started, values, True, None, lambda leaf, *_: leaves.append(leaf))
        if not once.is_ordinary:
            return None
        once.run()
        places = {id(leaf): place for place, (leaf, *_) in self.given.items()}
        return tuple([places[id(leaf)] for leaf in leaves])


def pass_over(root: Any, inputs: Sequence[Any] | None = None) -> bool:
    """Have a plain pass from this tensor go over what is not drawn; false if it has to be run.

    It gives gradients to the leaves that it reaches, or, given ``inputs``, only finds that these are all of them.
    """
    undrawn: Undrawn | None = getattr(root, "_drawing", None)  # whoever it is that differentiates no tensor
    if undrawn is None or undrawn.nodes is not None:
        return False
    with root._recorder.lock:
        return undrawn.pass_from(root, inputs)
