"""The ``ctx`` of a Function: what forward stores on it, backward finds there.

A ctx is the user's, the node that holds it is the graph's. It knows its node only weakly, so they form no cycle.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...context import state
from ...errors import GraphFreed, InvalidArgument, InvalidChoice, InvalidOperation
from ...graph.node import FREED, FREED_TEXT, Node, following, modified
from ...graph.saved_tensor_hooks import Pack, Packed
from ...shapes import Spec

REQUESTS = {"to_save", "saved_for_forward", "dirty_tensors", "non_differentiable"}
"""Attributes of a ctx that hold what forward asked for until its outputs are entered into the graph."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of any kind. By what all have: their class is built on the graph, not under it."""
    return hasattr(value, "_version_counter")


class Saved:
    """A tensor that a Function saved, at the version it had then."""

    __slots__ = ("output_nr", "tensor", "version")

    def __init__(self, tensor: Any, node: Node) -> None:
        self.output_nr = tensor._output_nr if tensor._node is node else None
        """Which output of the node itself it is, if one; then only the value is kept, for an output holds its node."""
        self.tensor = tensor if self.output_nr is None else tensor._apart()
        self.version = tensor._version_counter[0]

    def unpack(self, node: Node | None) -> Any:
        """The tensor at its place in the graph, or the error for one that was modified since."""
        tensor = self.tensor
        if tensor._version_counter[0] != self.version:
            origin = tensor._node if self.output_nr is None else node
            raise modified(tensor._data, origin, tensor._output_nr, tensor._version_counter[0], self.version)
        if self.output_nr is None or node is None:
            return tensor
        output = tensor._apart()
        output._node, output._output_nr, output._requires_grad = node, self.output_nr, True
        if state.observer is not None:
            state.observer.unpacked_output(node, self.output_nr, output)
        return output


class PackedSaved:
    """A tensor that a Function saved within ``saved_tensors_hooks``: what they keep of it, and where it belongs."""

    __slots__ = ("cls", "output_nr", "packed", "place", "requires_grad")

    def __init__(self, tensor: Any, node: Node, hooks: tuple[Pack, Pack]) -> None:
        self.cls = type(tensor)
        self.packed = Packed(tensor, *hooks)
        self.requires_grad = tensor._requires_grad
        self.output_nr = tensor._output_nr
        self.place = tensor if tensor._node is None and tensor._requires_grad else tensor._node
        if tensor._node is node:
            self.place = None  # the node holds this, and may not be held in turn

    def unpack(self, node: Node | None) -> Any:
        """The tensor as the hooks give it back, at its place in the graph."""
        tensor = object.__new__(self.cls)
        tensor._data, tensor._version_counter = self.packed.unpack(), [0]
        tensor._lie_as(tensor._strided())
        if self.requires_grad:
            place = node if self.place is None else self.place
            tensor._node, tensor._output_nr, tensor._requires_grad = place, self.output_nr, True
        return tensor


class FunctionOp(NamedTuple):
    """What stands for an op at a Function's node, for those who draw or count nodes."""

    key: str

    @property
    def name(self) -> str:
        """The Function's name."""
        return self.key

    def edges_without_gradient(self, attrs: Mapping[str, Any]) -> Sequence[int]:
        """None that is known before: a Function returns None where it gives no gradient."""
        return ()


class FunctionCtx:
    """The ``ctx`` of a Function's forward and backward. Any attribute may be set on it."""

    _forward_cls: Any
    """The Function; a subclass is made for each and has its name, as in torch."""
    _op: FunctionOp
    _node: weakref.ref[Node] | None = None
    _saved: Any = ()
    _pushing = False
    """Whether jvp is running."""

    to_save: tuple[Any, ...] = ()
    saved_for_forward: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    materialize_grads: bool = True

    def __init__(self, args: tuple[Any, ...]) -> None:
        specs: list[Spec | None] = []
        needs: list[bool] = []
        places: list[Any] = []
        output_nrs: list[int] = []
        for x in args:
            if not is_tensor(x):
                specs.append(None)
                needs.append(False)
                continue
            needed = x.requires_grad
            specs.append(Spec(x._data.shape, x._data.dtype))
            needs.append(needed)
            places.append(None if not x._requires_grad else x if x._node is None else x._node)
            output_nrs.append(x._output_nr if needed else 0)
        self._specs = tuple(specs)
        """Of each argument of forward that is a tensor; the edges, below, are those of the tensors alone."""
        self._next_edges, self._output_nrs = tuple(places), tuple(output_nrs)
        self.needs_input_grad = tuple(needs)
        """For each argument of forward, whether its gradient is asked for."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, where ``ctx.saved_tensors`` has them. Call it once, in forward.

        What was modified in place in the meantime raises VersionConflict there.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for jvp, where ``ctx.saved_tensors`` has them."""
        if not all(t is None or is_tensor(t) for t in tensors):
            raise InvalidChoice(
                "save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes "
                "on ctx."
            )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare inputs that forward modifies in place; it must return them too."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that nothing was differentiated through."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What forward saved: in jvp for that, else for backward. Raises GraphFreed once a backward has freed it."""
        if self._pushing:
            return self.saved_for_forward
        if self._saved is FREED:
            raise GraphFreed(FREED_TEXT)
        node = None if self._node is None else self._node()
        return tuple([None if saved is None else saved.unpack(node) for saved in self._saved])

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that gradients flow on to, one per tensor among forward's arguments."""
        return following(self._next_edges, self._output_nrs)

    @classmethod
    def _of(cls, function: Any) -> type[FunctionCtx]:
        """The kind of ctx that calls of this Function have."""
        name = function.__name__
        return type(f"{name}Backward", (cls,), {"_forward_cls": function, "_op": FunctionOp(name)})

    def name(self) -> str:
        """The name of the node, as in ``grad_fn=<MyFunctionBackward>``."""
        return type(self).__name__

    def _pack(self, node: Node) -> None:
        """Take over what forward asked to be saved, now that the outputs have their place in the graph."""
        hooks = state.saved_hooks
        saved: list[Any] = []
        for index, tensor in enumerate(self.to_save):
            if tensor is None:
                saved.append(None)
            elif is_tensor(tensor):
                saved.append(Saved(tensor, node) if hooks is None else PackedSaved(tensor, node, hooks))
            else:
                raise InvalidArgument(
                    "save_for_backward can only save variables, but argument "
                    f"{index} is of type {type(tensor).__name__}"
                )
        self._saved = tuple(saved)
        self._node = weakref.ref(node)

    def _push_forward(self, tangents: Sequence[Any], width: int) -> list[Any]:
        """The outputs' tangents, or None, by the user's jvp, from those of forward's arguments."""
        self._pushing = True
        try:
            result = self._forward_cls.jvp(self, *tangents)
        finally:
            del self._pushing
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != width:
            raise InvalidOperation(
                "Function's jvp returned an invalid number of forward gradients "
                f"(expected {width} but got {len(results)})"
            )
        for index, tangent in enumerate(results):
            if tangent is not None and not is_tensor(tangent):
                raise InvalidOperation(
                    f"expected Variable or None (got {type(tangent).__name__}) for grad output {index}."
                )
        return results

    def _forget(self) -> None:
        """Drop forward's requests: packed by now, or never needed."""
        for request in REQUESTS & self.__dict__.keys():
            del self.__dict__[request]

    def _free(self) -> None:
        """Drop what was saved; asking for it from now on is an error."""
        self._saved = FREED
