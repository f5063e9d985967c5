"""Effects of instructions on the shadow graph, so that they can be undone for instructions that never ran.

Tensors are referenced weakly, so that an instruction in flight keeps no handle alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

HISTORY = ("_data", "_node", "_output_nr", "_requires_grad", "_lazy", "_inverse_chain", "_seen_version")
"""The attributes of a tensor that an in-place change may replace, besides its version."""
Reference = weakref.ref[Any]
Received = tuple[Reference, bool, list[int] | None]
"""A tensor that gets a gradient in a pass, whether it had one before, and the version counter of that one's handle."""


class Effect:
    """The effect of one instruction on the shadow graph: new versions, other places in the graph, and gradients."""

    def __init__(
        self,
        versions: Sequence[tuple[list[int], int]] = (),
        places: Sequence[tuple[Reference, Mapping[str, Any]]] = (),
        received: Sequence[Received] = (),
    ) -> None:
        self.versions = versions
        """Version counters and their values before the instruction."""
        self._places = places
        """The tensors that it moves, and their attributes before it."""
        self.received = received

    def undo(self) -> None:
        """Restore the state before the instruction; all later effects on the same tensors were undone already."""
        for counter, version in self.versions:
            counter[0] = version
        for reference, before in self._places:
            tensor = reference()
            if tensor is not None:
                for name in HISTORY:
                    if name in before:
                        setattr(tensor, name, before[name])
                    elif name in vars(tensor):
                        delattr(tensor, name)
        for _, _, grad_counter in self.received:
            if grad_counter is not None:
                grad_counter[0] -= 1

    @property
    def receivers(self) -> list[tuple[Any, bool]]:
        """The tensors that get gradients and are still alive, each with whether it had a gradient before."""
        return [(tensor, had) for reference, had, _ in self.received if (tensor := reference()) is not None]


def change_of(tensor: Any) -> Effect:
    """The effect of an in-place change of a tensor, which also moves its base to another place in the graph."""
    counter = tensor._version_counter
    both = (tensor,) if tensor._base is None else (tensor, tensor._base)
    before = [(weakref.ref(x), {name: vars(x)[name] for name in HISTORY if name in vars(x)}) for x in both]
    return Effect([(counter, counter[0])], before)
