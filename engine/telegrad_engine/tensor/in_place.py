"""Views and in-place changes: version counters, and rewriting of histories.

As in torch, a view shares its base's memory and version, and a change through either rewrites the history of both.
:class:`TensorInPlace` is the part of :class:`telegrad_engine.tensor.base.TensorBase` that implements this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from ..context import observers, state
from ..dtypes import DType, can_cast, from_numpy
from ..errors import DTypeMismatch, InplaceOnLeaf, InvalidOperation, ShapeMismatch
from ..graph import hooks
from ..graph.node import Node, kind, record
from ..memory_layout import memory_of
from ..schema.declaration import CHECKED
from ..schema.op import CATALOGUE, NO_ATTRS, Op, ViewStep, follow_views
from .execution import INFERENCE_MODIFIED, InferenceVersion, is_inference_tensor
from .memory import check_overlap
from .methods import TensorMethods


def change_geometry(tensor: Any, op: Op, attrs: Any) -> None:
    """Run the view op ``op`` in place: check, change the geometry, bump the version, and record.

    Raises as any in-place change does: for a leaf that requires grad, its views, and one of several views.
    """
    tracked = state.grad_enabled and tensor.requires_grad
    tensor._check_changeable(tracked)
    old = tensor._alias()
    back = _way_back(op, attrs, tensor._data.shape)
    tensor._show_as(op, attrs)
    tensor._version_counter[0] += 1
    tensor._view_chain, tensor._plain = (*tensor._view_chain, (op, attrs, 0)), False
    if tensor._base is None:
        tensor._inverse_chain = (back, *tensor._inverse_chain)
    elif tracked or not tensor._base._requires_grad:
        tensor._seen_version = tensor._version_counter[0]
    if tracked:
        tensor._output_nr = 0
        record(op, attrs, (old,), [tensor])


def _way_back(op: Op, attrs: Any, shape: tuple[int, ...]) -> ViewStep:
    """Return the step that undoes ``op`` on a tensor of ``shape``; a transposition undoes itself."""
    if op.key in ("t", "transpose"):
        return op, attrs, 0
    if op.key == "as_strided":
        strides = {name: value for name, value in attrs.items() if name != "size"}
        return CATALOGUE.get("unstrided"), {"shape": shape, **strides}, 0
    return CATALOGUE.get("reshape"), {"shape": shape}, 0


IN_NO_GRAD, IN_INFERENCE = [
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    f"the view and the inplace either both inside the {mode} block (if you don't want the inplace to be tracked) or "
    "both outside (if you want the inplace to be tracked)."
    for mode in ("no_grad", "inference_mode")
]
"""The end of the error text for modifying a view outside of the mode that it was made in."""
ONE_OF_SEVERAL = (
    "This view is the output of a function that returns multiple views. Such functions do not allow the output views "
    "to be modified inplace. You should replace the inplace operation by an out-of-place one."
)
"""The same for one of several views, and its views."""


class TensorInPlace(TensorMethods):
    """The part of a tensor's autograd state that views and in-place changes affect."""

    # Class-level defaults: an instance stores only the attributes that differ from a plain constant's.
    _version_counter: list[int]
    _requires_grad: bool = False
    requires_grad: Any
    _node: Node | None = None
    _accumulator: Any = None
    """For a leaf: a weak reference to the last AccumulateGrad node."""
    _output_nr: int = 0
    _grad: Any = None
    _hooks: Any = None
    _base: TensorInPlace | None = None
    _view_chain: tuple[ViewStep, ...] = ()
    _inverse_chain: tuple[ViewStep, ...] = ()
    """For a base whose geometry was changed in place: the steps back to the geometry that view chains start from."""
    _layout: Any = None
    """An array with the tensor's strides, or None for row-major order. A view has none; a base has the one from before
    its geometry was changed in place."""
    _plain: bool = True
    """Whether this is not a view and has always been in row-major order, so that elementwise ops skip other checks."""
    _memory_owner: list[int] | None = None
    """For a tensor with its own version counter over another's memory, such as ``.data``: the other's counter."""
    _seen_version: int = 0
    """For a view: the version of its base that ``_node`` belongs to."""
    _sealed: str | None = None
    """For a view that may not be modified in place, nor its base: the reason, in torch's words."""

    def _alias(self, history: bool = True) -> Self:
        """Return another tensor object over the same value, version and, unless ``history`` is false, history."""
        if history:
            self._refresh()
        alias = object.__new__(type(self))
        alias._update(self.__dict__)
        alias._grad = None
        return alias

    def _update(self, attributes: Mapping[str, Any]) -> None:
        """Set these attributes, which are those of a tensor of this class or a part of them."""
        self.__dict__.update(attributes)

    def _view_of(self, source: TensorInPlace, op: Op, attrs: Any, index: int) -> None:
        """Make this output of a view op share the version of ``source`` and store its view chain."""
        counter = self._version_counter = source._version_counter
        if type(counter) is InferenceVersion:
            self._lie_as(self._strided_as(source, op, attrs, index))  # there is no history to rewrite
            return
        self._become_view(source)
        self._view_chain = (*source._view_chain, (op, attrs, index))
        self._seen_version = counter[0]
        if not state.grad_enabled:
            self._sealed = IN_INFERENCE if state.inference else IN_NO_GRAD
            self._requires_grad = source._requires_grad  # as in torch, it is then a leaf
        elif op.lists_outputs:
            self._sealed = ONE_OF_SEVERAL
        elif source._sealed is not None:
            self._sealed = source._sealed

    def _become_view(self, source: TensorInPlace) -> None:
        """Set the base to that of ``source``, or to ``source`` itself if it has none."""
        self._base, self._plain = (source if source._base is None else source._base), False

    def _lie_as(self, strided: Any) -> None:
        """Set the layout of this tensor, which is not a view; None is row-major."""
        self._layout, self._plain = strided, strided is None

    def _refresh(self, reading: bool = False) -> None:
        """Rebuild a view's history from its base's if the base was modified since.

        If the view is sealed, its history cannot be rebuilt. That is an error if an operation may be recorded, or if
        the history itself is read (``reading``).
        """
        base = self._base
        if base is None or self._seen_version == self._version_counter[0]:
            return
        if self._sealed is not None and base._requires_grad:
            if reading or state.grad_enabled:
                raise self._sealed_error("its base or another view of its base has been modified inplace")
            self._requires_grad = True
            return
        if base._requires_grad:
            self._rebuild(base)
        self._seen_version = self._version_counter[0]

    def _rebuild(self, base: TensorInPlace) -> None:
        """Give this view of ``base`` a history of new nodes; it still retains its gradient if it did before."""
        old, output_nr = self._node, self._output_nr
        chain, enabled = (*base._inverse_chain, *self._view_chain), state.grad_enabled
        try:
            state.grad_enabled = True
            tensor = follow_views(base._without_value(), chain, lambda op, x, attrs: x._apply(op, (x,), attrs))
        finally:
            state.grad_enabled = enabled
        self._node, self._output_nr, self._requires_grad = tensor._node, tensor._output_nr, tensor._requires_grad
        if old is not None:
            hooks.move_retain(self, old, output_nr)
        self._rebuilt()

    def _without_value(self) -> Any:
        """Return a stand-in without a value at this tensor's place in the graph."""
        raise NotImplementedError

    def _rebuilt(self) -> None:
        """Do nothing; subclasses override it to learn that a view's history was rebuilt with new nodes."""

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        """Overwrite the value with the op's result. ``inputs[0]`` is this tensor."""
        raise NotImplementedError

    def _show_as(self, op: Op, attrs: Any) -> None:
        """Change this tensor's geometry to that of the result of the view op ``op``."""
        raise NotImplementedError

    def _strided_as(self, source: TensorInPlace, op: Op, attrs: Any, index: int) -> Any:
        """Return the layout of this output of a view op, in the form of ``_layout``."""
        raise NotImplementedError

    def _copy_value(self) -> Any:
        """Return a copy of the value to save; a spec needs no copy."""
        return self._data

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Any = NO_ATTRS) -> Self:
        """Run ``op`` in place: check, write, bump the version, and rewrite the history."""
        if observers and (observer := state.observer) is not None:
            changed: Self = observer.in_place(type(self)._change, self, op, inputs, attrs)
            return changed
        return self._change(op, inputs, attrs)

    def _change(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> Self:
        if op.view:
            change_geometry(self, op, attrs)
            return self
        tensors = [x for x in inputs if isinstance(x, TensorInPlace)]
        memory, tracked = memory_of(self), False
        apart = op.overlap is CHECKED
        for x in tensors:
            tracked = tracked or (x._requires_grad if x._plain else x.requires_grad)
            if x is not self and memory_of(x) is memory:
                apart = False
        tracked = tracked and state.grad_enabled and op.differentiable
        self._check_changeable(tracked)
        if op.composite:
            check_overlap(op, self, inputs)
            result = self._apply(op, (self.clone(), *inputs[1:]), attrs)  # the op may save the old value
            self._check_result(result._data, attrs)
            return self._inplace(CATALOGUE.get("copy"), (self, result))
        self._check_result(op.rule(*_datas(inputs), **attrs), attrs)
        if not apart or not self._plain:
            check_overlap(op, self, () if apart else inputs)
        if not tracked:
            self._write(op, inputs, attrs)
            self._version_counter[0] += 1
            if self._base is not None and not self._base._requires_grad:
                self._seen_version = self._version_counter[0]
            return self
        for x in tensors:
            x._refresh()
        if self._base is not None and self._base._requires_grad and hooks.on_path(self._node, len(self._view_chain)):
            self._rebuild(self._base)  # as in torch, gradients then pass by the hooks of the view from before
        old = self._alias()
        needs = tuple(isinstance(x, TensorInPlace) and x._requires_grad for x in inputs)
        if not op.has_lists and op.plan(needs).saves_self:
            old._data, old._version_counter = self._copy_value(), [0]
        base_old = None if self._base is None else self._base._alias()
        self._write(op, inputs, attrs)
        self._version_counter[0] += 1
        self._output_nr = 0
        record(op, attrs, (old, *inputs[1:]), [self])
        self._outdate_saved(inputs)
        self._rewrite_history(old, base_old)
        return self

    def _rewrite_history(self, old: TensorInPlace, base_old: TensorInPlace | None) -> None:
        """Move retained gradients to the new node of an in-place change, and record the change on the base.

        ``old`` and ``base_old`` are aliases of this tensor and its base from before the change.
        """
        retained = old._node is not None and hooks.move_retain(self, old._node, old._output_nr)
        if base_old is not None and self._base is not None:
            self._base._output_nr = 0
            chain = (*self._base._inverse_chain, *self._view_chain)
            record(CATALOGUE.get("view_scatter"), {"chain": chain}, (base_old, self), [self._base])
            if base_old._node is not None:
                hooks.move_retain(self._base, base_old._node, base_old._output_nr)
            self._seen_version = -1  # the view's history must be rebuilt through the base
            if retained:
                self._refresh()

    def _outdate_saved(self, inputs: tuple[Any, ...]) -> None:
        """Mark other saved inputs that share this memory as modified, as in ``y.mul_(y)``."""
        node: Any = self._node  # None for an integer tensor
        if node is not None and any(
            isinstance(x, TensorInPlace) and x._version_counter is self._version_counter for x in inputs[1:]
        ):
            node.versions = tuple(
                [
                    (at, cell, version - (cell is self._version_counter and node.plan.saves[at].source == "input"))
                    for at, cell, version in node.versions
                ]
            )

    def _sealed_error(self, event: str) -> InvalidOperation:
        """Return the error for a modification that the history of a sealed view does not allow."""
        reason, node = self._sealed, self._node
        where = f"Output {self._output_nr} of {kind(node)}" if node is not None else ""
        if node is not None and reason not in (IN_NO_GRAD, IN_INFERENCE):
            return InvalidOperation(f"{where} is a view and {event}. {reason}")
        made = f"{where} is a view of a view which was created" if node is not None else "A view was created"
        modes = (
            ("inference mode", "in normal mode")
            if reason is IN_INFERENCE
            else ("no_grad mode", "with grad mode enabled")
        )
        return InvalidOperation(f"{made} in {modes[0]} and {event} {modes[1]}. {reason}")

    def _check_changeable(self, tracked: bool) -> None:
        """Raise if this tensor may not be changed in place; a ``tracked`` change will be recorded."""
        if is_inference_tensor(self) and not state.inference:
            raise InvalidOperation(INFERENCE_MODIFIED)
        if not state.grad_enabled:
            return
        base = self._base
        if base is not None and (tracked or base._requires_grad):
            if self._sealed is not None:
                raise self._sealed_error("is being modified inplace")
            if base._node is None and (base._requires_grad or self._requires_grad):
                raise InplaceOnLeaf(
                    "a view of a leaf Variable that requires grad is being used in an in-place operation."
                )
        elif self._requires_grad and self._node is None:
            raise InplaceOnLeaf("a leaf Variable that requires grad is being used in an in-place operation.")

    def _check_result(self, result: Any, attrs: Any) -> None:
        """Raise unless a result of this shape and dtype can be written into this tensor."""
        if result.shape != self._data.shape:
            raise ShapeMismatch(
                f"output with shape {list(self._data.shape)} doesn't match the broadcast shape {list(result.shape)}"
            )
        dtype = result.dtype
        if dtype == self._data.dtype:
            return
        if attrs.get("dtype") is not None:
            own, asked = c_name(self.dtype), c_name(from_numpy(dtype))
            raise DTypeMismatch(
                f"Bad in-place call: input tensor dtype {own} and output tensor dtype {asked} should match"
            )
        if not can_cast(dtype, self._data.dtype):
            raise DTypeMismatch(
                f"result type {from_numpy(dtype).kernel_name} can't be cast to the desired output type "
                f"{self.dtype.kernel_name}"
            )


def _datas(inputs: Sequence[Any]) -> list[Any]:
    return [
        tuple(_datas(x)) if isinstance(x, tuple) else x._data if isinstance(x, TensorInPlace) else x for x in inputs
    ]


def c_name(dtype: DType) -> str:
    """Return the name of a dtype in torch's error texts."""
    return {"float32": "float", "float64": "double", "int64": "long int"}.get(dtype.name, dtype.name)
