"""The shadow graph of calls that were foreseen: drawn once somebody looks at it, which in most rounds nobody does.

A node of the shadow says where gradients go and what was saved, and both are known of a call that recurs. So the calls
of a round only note that they belong to a drawing. Where a node is looked at, all of them are entered into the graph,
as they would have been one by one. Where a plain backward pass comes instead, what it reached last time is what it
reaches; it leaves the nodes, if they are ever drawn, as it would have left them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from telegrad_engine.graph import next_sequence
from telegrad_engine.meta import Meta
from telegrad_engine.specs import Spec

from .numbers import OwnNumbers
from .undrawn import BETWEEN, Given, Undrawn, as_given, stand_in

if TYPE_CHECKING:
    from .rounds import Round
    from .steps import Step

QUIET = frozenset({"alias", "detach", "fetch", "free", "grad_of", "set_grad", "tensor"})
"""The verbs that neither look at what ops left in the graph nor change what they saved, whatever their attributes."""


def is_quiet(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a verb leaves what is not drawn as it is."""
    return op in QUIET or (op == "zero_grad" and not attrs)  # which lets go of gradients, and changes none


class Draw(NamedTuple):
    """How an op is entered into the graph later on, one that has a single output."""

    make: Callable[[Any, Spec, str], Any]
    """Gives the output, of a recorder's, its handle, of this id."""
    spec: Spec
    enter: Callable[[Sequence[Any], Any, OwnNumbers | None], None]
    """Enters it, of its tensors and its output, and of its own numbers if it has any."""
    as_view: Callable[[Sequence[Any], Any, OwnNumbers | None], None] | None
    """Makes the output a view of a tensor, if the op's are."""


class Opening(NamedTuple):
    """What is new to a drawing where a call comes."""

    begins: bool
    """Whether the call is the first of a drawing."""
    given: tuple[int, ...]
    """Which of its tensors the drawing has not met."""


class Drawing(Undrawn):
    """Calls that came one after the other, and are not in the graph yet."""

    __slots__ = ("cells", "changed", "first", "last", "places", "round", "sequence")

    def __init__(self, round: Round, first: Step) -> None:
        super().__init__()
        self.first = self.last = first
        """The steps that it began with, and, once it is closed, the one that it ended with."""
        self.round: Round | None = round
        """The round that it is of, until it is closed."""
        self.places, self.changed = round.places, round.changed
        self.sequence = next_sequence()
        """How old its nodes are: older than all that is recorded from now on."""
        self.cells: dict[str, list[int]] = {}
        """The version counters of outputs, by their ids."""
        self.given: dict[int, Given] = {}

    def take(self, tensor: Any) -> bool:
        """Note a tensor that it is given, if that is no more than a leaf."""
        given = as_given(tensor)
        if given is not None:
            self.given[self.places[tensor._id]] = given
        return given is not None

    def add(self, output: Any) -> None:
        """Note a handle on an output."""
        output._requires_grad = True
        output._drawing = self
        self.cells[output._id] = output._cell

    def draw(self) -> dict[str, Any]:
        """Enter the calls into the graph."""
        self.close()
        names, nodes = [*self.places], {}
        known = {place: stand_in(given) for place, given in self.given.items()}
        versions = {id(cell): version for _, _, cell, version in self.given.values()}
        for step in self.last.path(self.first):
            if step.call is None or step.call.draw is None:
                continue
            (place,) = step.outputs
            output = known[place] = Meta(step.call.draw.spec)
            output._cell = self.cells.get(names[place], output._cell)
            inputs = [known[each] for each in step.call.places if each >= 0]
            step.call.draw.enter(inputs, output, self.changed.get(step.index))
            node: Any = output._node
            node.sequence = self.sequence + step.index * BETWEEN
            nodes[names[place]] = node
            if node.versions:  # as they were when the call came: what is the drawing's own was new then
                node.versions = tuple([(i, cell, versions.get(id(cell), 0)) for i, cell, _ in node.versions])
        return nodes

    def close(self, last: Step | None = None) -> None:
        """End it with this step, or the last of its round; once."""
        if self.round is not None:
            self.last, self.round.drawing, self.round = last or self.round.last, None, None

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Go through it from an output of one element, while it goes on."""
        if self.round is None or root._data.shape != ():
            return False
        if not self.go_over(root, self.places[root._id], self.round.last.passes, inputs):
            return False
        self.close()
        return True


class Sketch:
    """What is known of drawings while a path is learned: which of its tensors are in one."""

    def __init__(self) -> None:
        self._made: set[int] = set()
        self._given: set[int] = set()

    def follow(self, step: Step) -> Opening | None:
        """What is new to a drawing with this step, which comes behind those before."""
        call = step.call
        if call is None or call.draw is None:
            used = call is None and not is_quiet(step.op, step.attrs)
            if used or (call is not None and not self._made.isdisjoint(call.places)):
                self._made, self._given = set(), set()
            return None
        begins = not self._made
        if begins:
            self._given = set()
        places = [place for place in call.places if place >= 0]
        new = [i for i, place in enumerate(places) if place not in self._made and place not in self._given]
        self._made.update(step.outputs)
        self._given.update(places)
        return Opening(begins, tuple(new)) if begins or new else None
