"""The ``ctx`` of a Function, on which forward stores values for backward.

The node in the graph holds the ctx; the ctx has only a weak reference to the node, so they form no cycle.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...context import state
from ...errors import GraphFreed, InvalidArgument, InvalidChoice, InvalidOperation
from ...graph.node import FREED, FREED_TEXT, Node, accumulator, following, modified
from ...shapes import Spec
from ...transforms.saved_tensor_hooks import Packed

REQUESTS = {"to_save", "saved_for_forward", "dirty_tensors", "non_differentiable"}
"""Attributes of a ctx that hold forward's requests until its outputs are added to the graph."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of any kind."""
    return hasattr(value, "_version_counter")


class Saved:
    """A tensor that is saved for backward, with its version; or its value, packed by the active saved tensor hooks.

    Of an output of ``node``, which saves it, only the value is kept, to avoid a cycle.
    """

    __slots__ = ("kind", "output_nr", "packed", "place", "requires_grad", "tensor", "version")

    def __init__(self, tensor: Any, node: Node | None = None) -> None:
        hooks, own = state.saved_hooks, node is not None and tensor._node is node
        self.output_nr: int | None = tensor._output_nr
        """The number of the tensor among its node's outputs; None for a tensor that is kept itself."""
        if hooks is None:
            self.packed = None
            if not own:
                self.output_nr = None
            self.tensor, self.version = tensor._detached_alias() if own else tensor, tensor._version_counter[0]
        else:
            self.packed, self.kind, self.requires_grad = Packed(tensor, *hooks), type(tensor), tensor._requires_grad
            self.place = None if own or not self.requires_grad else tensor._node or accumulator(tensor)
            """The node that made the tensor; None for the node that saves it."""

    def unpack(self, node: Node | None = None) -> Any:
        """Return the tensor at its place in the graph. Raises VersionConflict if it was modified since."""
        if self.packed is not None:
            tensor = self.packed.rebuild(self.kind)
            if self.requires_grad:
                place = node if self.place is None else self.place
                tensor._node, tensor._output_nr, tensor._requires_grad = place, self.output_nr, True
            return tensor
        tensor = self.tensor
        if tensor._version_counter[0] != self.version:
            origin = tensor._node if self.output_nr is None else node
            raise modified(tensor._data, origin, tensor._output_nr, tensor._version_counter[0], self.version)
        if self.output_nr is None or node is None:
            return tensor
        output = tensor._detached_alias()
        output._node, output._output_nr, output._requires_grad = node, self.output_nr, True
        if state.observer is not None:
            state.observer.unpacked_output(node, self.output_nr, output)
        return output


class FunctionOp(NamedTuple):
    """The ``op`` of a Function's node, for code that draws or counts nodes."""

    key: str

    @property
    def name(self) -> str:
        """The Function's name."""
        return self.key

    def edges_without_gradient(self, attrs: Mapping[str, Any]) -> Sequence[int]:
        """Return no edges: which gradients are None is known only after the Function's backward."""
        return ()


class FunctionCtx:
    """The ``ctx`` of a Function's forward and backward. Any attribute may be set on it."""

    _forward_cls: Any
    """The Function. Each Function has its own subclass of this class, named after it as in torch."""
    _op: FunctionOp
    _node: weakref.ref[Node] | None = None
    _saved: Any = ()
    _pushing = False
    """Whether ``jvp`` is running."""

    to_save: tuple[Any, ...] = ()
    saved_for_forward: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    materialize_grads: bool = True
    _materialize_non_diff_grads = True
    """Whether backward gets zeros, rather than None, for the outputs without a gradient; torch's private name."""
    _without_gradient: frozenset[int] = frozenset()

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
            places.append(None if not x._requires_grad else accumulator(x) if x._node is None else x._node)
            output_nrs.append(x._output_nr if needed else 0)
        self._specs = tuple(specs)
        """A Spec for each argument of forward, None for a non-tensor. The edges below are for the tensors only."""
        self._next_edges, self._output_nrs = tuple(places), tuple(output_nrs)
        self.needs_input_grad = tuple(needs)
        """For each argument of forward, whether it needs a gradient."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward, which reads ``ctx.saved_tensors``. Call it once, in forward.

        In backward, a saved tensor that was modified in place since raises VersionConflict.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors (or None) for ``jvp``, which reads ``ctx.saved_tensors``."""
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
        """Set whether backward gets zeros (the default) or None for outputs without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that forward saved for ``jvp`` or for backward. Raises GraphFreed after a backward freed them."""
        if self._pushing:
            return self.saved_for_forward
        if self._saved is FREED:
            raise GraphFreed(FREED_TEXT)
        node = None if self._node is None else self._node()
        return tuple([None if saved is None else saved.unpack(node) for saved in self._saved])

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that receive the gradients, one for each tensor among forward's arguments."""
        return following(self._next_edges, self._output_nrs)

    @classmethod
    def _of(cls, function: Any) -> type[FunctionCtx]:
        """Return the ctx class for calls of this Function."""
        name = function.__name__
        return type(f"{name}Backward", (cls,), {"_forward_cls": function, "_op": FunctionOp(name)})

    def name(self) -> str:
        """The name of the node, as in ``grad_fn=<MyFunctionBackward>``."""
        return type(self).__name__

    def _pack(self, node: Node) -> None:
        """Save the tensors that forward requested, after the outputs were added to the graph."""
        for index, tensor in enumerate(self.to_save):
            if tensor is not None and not is_tensor(tensor):
                raise InvalidArgument(
                    "save_for_backward can only save variables, but argument "
                    f"{index} is of type {type(tensor).__name__}"
                )
        self._saved = tuple([None if tensor is None else Saved(tensor, node) for tensor in self.to_save])
        self._node = weakref.ref(node)

    def _push_forward(self, tangents: Sequence[Any], width: int) -> list[Any]:
        """Return the outputs' tangents (or None) that the user's ``jvp`` computes from those of the arguments."""
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
        """Delete forward's requests, which are packed or not needed."""
        for request in REQUESTS & self.__dict__.keys():
            del self.__dict__[request]

    def _free(self) -> None:
        """Free the saved tensors; reading them afterwards is an error."""
        self._saved = FREED
