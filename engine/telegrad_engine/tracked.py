"""What every tensor knows about its place in the graph, wherever its value is.

:class:`Tracked` holds the autograd state and its rules: leaves, versions, views, in-place changes,
``backward``. Its subclasses add the value: :class:`telegrad_engine.Tensor` an array,
:class:`telegrad_engine.meta.Meta` nothing, and the SDK's Tensor a handle on a server's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from . import autograd, hooks, inference
from .backward import kind
from .dtypes import FLOATING, DType, can_cast, from_numpy
from .errors import DTypeMismatch, GradRequired, InplaceOnLeaf, InvalidOperation, ShapeMismatch
from .geometry import change_geometry
from .graph import Node, record
from .methods import TensorMethods
from .modes import state
from .registry import CATALOGUE, NO_ATTRS, Op

ONLY_FLOATING = "only Tensors of floating point dtype can require gradients"
ONLY_LEAVES = (
    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
    "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
)

IN_NO_GRAD, IN_INFERENCE = [
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    f"the view and the inplace either both inside the {mode} block (if you don't want the inplace to be tracked) or "
    "both outside (if you want the inplace to be tracked)."
    for mode in ("no_grad", "inference_mode")
]
"""Why a view that was made in such a mode may not be modified outside of it."""


class Tracked(TensorMethods):
    """A tensor's autograd state. ``_data`` is anything with a shape and a NumPy dtype."""

    is_sink: ClassVar[bool] = True
    """An edge that ends at a tensor, not a Node, ends at a leaf that accumulates."""
    _graph_class: ClassVar[type[Tracked]]
    """The class that derivative rules run on under create_graph."""

    # Class-level defaults: an instance stores only what differs from a plain constant.
    _cell: list[int]
    _requires_grad: bool = False
    _node: Node | None = None
    _slot: int = 0
    _grad: Any = None
    _hooks: Any = None
    _base: Tracked | None = None
    _chain: tuple[tuple[Op, Any, int], ...] = ()
    _undo: tuple[tuple[Op, Any, int], ...] = ()
    """For a base whose geometry was changed in place: the way back to the one that its views' chains begin at."""
    _seen: int = 0
    """For a view: the version of its base that ``_node`` belongs to."""
    _sealed: str | None = None
    """For a view that a Function returned: why neither it nor its base may be modified in place (torch's words)."""

    def _new_like(self, data: Any) -> Self:
        """A tensor of the same class over ``data``, outside the graph."""
        tensor = object.__new__(type(self))
        tensor._data = data
        tensor._cell = [0]
        return tensor

    # Place in the graph ------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for this tensor; only a leaf's can be changed.

        A view always says what its base does, even if it was made where nothing is recorded and no gradient gets there.
        """
        base = self._base
        if base is not None:
            if base._requires_grad:
                return True
            self._refresh()
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed. Raises for non-leaves and integer dtypes."""
        self._refresh()
        if self._node is not None and not requires_grad:
            raise InvalidOperation(ONLY_LEAVES)
        if requires_grad and self._data.dtype not in FLOATING:
            raise DTypeMismatch(ONLY_FLOATING)
        if requires_grad and inference.is_marked(self) and not state.inference:
            raise InvalidOperation(inference.REQUIRING)
        if self._node is None:
            self._requires_grad = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """True for a tensor that no recorded operation made."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, or None for a leaf."""
        self._refresh()
        node = self._node
        return None if node is None or node.is_sink else node  # what stands in for a leaf has an edge to it there

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this is."""
        return self._slot

    @property
    def _version(self) -> int:
        """How often the memory of this tensor was modified in place."""
        if inference.is_marked(self):
            raise InvalidOperation(inference.UNVERSIONED)
        return self._cell[0]

    def is_inference(self) -> bool:
        """Whether this tensor was made under inference_mode."""
        return inference.is_marked(self)

    @property
    def grad(self) -> Any:
        """The accumulated gradient, or None. Assign None or a tensor of the same shape and dtype."""
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, Tracked):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
                )
            if value is self:
                raise InvalidOperation("can't assign Variable as its own grad")
            if value._data.shape != self._data.shape:
                raise ShapeMismatch(
                    f"attempting to assign a gradient of size '{list(value._data.shape)}' to a tensor of size "
                    f"'{list(self._data.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
            if value._data.dtype != self._data.dtype:
                raise DTypeMismatch(
                    f"attempting to assign a gradient with dtype '{_c_name(value.dtype)}' to a tensor with grad_dtype "
                    f"'{self.dtype.kernel_name}'. The gradient must match the tensor's grad_dtype (defaults to the "
                    "tensor's dtype)."
                )
        self._grad = value

    # Gradients ---------------------------------------------------------------------------

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradients of this tensor into the leaves' ``grad``, or into ``inputs``' alone.

        ``gradient`` has this tensor's shape; it may be left out for a tensor of one element.
        """
        autograd.backward([self], [gradient], retain_graph, create_graph, inputs)

    def retain_grad(self) -> None:
        """Have ``backward`` fill ``grad`` of this non-leaf too."""
        if not self.requires_grad:
            raise GradRequired("can't retain_grad on Tensor that has requires_grad=False")
        if self._node is not None and not self.retains_grad:
            hooks.add_retain(self)

    @property
    def retains_grad(self) -> bool:
        """Whether this non-leaf was asked to keep its gradient."""
        return self._node is not None and hooks.is_retained(self)

    def register_hook(self, hook: Callable[[Any], Any]) -> hooks.Handle:
        """Call ``hook(grad)`` when this tensor's gradient is computed; what it returns replaces it."""
        if not self.requires_grad:
            raise GradRequired("cannot register a hook on a tensor that doesn't require gradient")
        return hooks.hooks_of(self).add(hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> hooks.Handle:
        """Call ``hook(self)`` each time this leaf's gradient has been accumulated."""
        if not self.requires_grad:
            raise GradRequired("cannot register a hook on a tensor that doesn't require gradient")
        if self._node is not None:
            raise InvalidOperation("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return hooks.add_stored(self, hook)

    def _check_new_data(self, value: Tracked) -> None:
        """Whether this tensor may show the memory of ``value`` from now on."""
        if self._requires_grad and value._data.dtype not in FLOATING:
            raise DTypeMismatch("data set to a tensor that requires gradients must be floating point or complex dtype")

    def detach(self) -> Self:
        """A tensor over the same memory that is outside the graph."""
        result = self._alias()
        result._node, result._slot, result._requires_grad = None, 0, False
        result._base, result._chain, result._undo, result._sealed = None, (), (), None
        return result

    def _apart(self) -> Self:
        """Another tensor object over the same value that does not know its place in the graph, and so holds none."""
        return self.detach()

    def detach_(self) -> Self:
        """Take this tensor out of the graph, from now on."""
        if self._base is not None:
            raise InvalidOperation(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
                "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
                "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please refer to "
                "the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
            )
        self._node, self._slot, self._requires_grad = None, 0, False
        return self

    # In place and views ------------------------------------------------------------------

    def _alias(self) -> Self:
        """Another tensor object over the same value, version and history."""
        self._refresh()
        alias = object.__new__(type(self))
        alias.__dict__.update(self.__dict__)
        alias._grad = None
        return alias

    def _view_of(self, source: Tracked, op: Op, attrs: Any, index: int) -> None:
        """Make this output of a view op share the version of ``source`` and remember how it came about."""
        if inference.is_marked(source):
            self._cell = source._cell  # with no history, there is none to rewrite
            return
        self._base = source if source._base is None else source._base
        self._chain = (*source._chain, (op, attrs, index))
        self._cell = source._cell
        self._seen = source._cell[0]
        if source._sealed is not None:
            self._sealed = source._sealed
        elif not state.grad_enabled:
            self._sealed = IN_INFERENCE if state.inference else IN_NO_GRAD

    def _refresh(self) -> None:
        """Rebuild a view's history if its base was modified since: the base's new history leads to it."""
        base = self._base
        if base is None or self._seen == self._cell[0]:
            return
        if self._sealed is not None and base._requires_grad and state.grad_enabled:
            raise self._sealed_error("its base or another view of its base has been modified inplace")
        self._seen = self._cell[0]
        base_requires_grad = base._requires_grad
        if not base_requires_grad:
            return
        tensor: Any = _meta_alias(base)
        enabled, state.grad_enabled = state.grad_enabled, True
        try:
            for op, attrs, index in (*base._undo, *self._chain):
                result = type(tensor)._apply(op, (tensor,), attrs)
                tensor = result[index] if isinstance(result, (list, tuple)) else result
        finally:
            state.grad_enabled = enabled
        self._node, self._slot, self._requires_grad = tensor._node, tensor._slot, tensor._requires_grad
        self._rebuilt()

    def _rebuilt(self) -> None:
        """Called when a view's history was rebuilt, which makes nodes newer than all others."""

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        """Replace the value by the op's result. ``inputs[0]`` is this tensor."""
        raise NotImplementedError

    def _show_as(self, op: Op, attrs: Any) -> None:
        """Show this tensor's own memory as the view op ``op`` does."""
        raise NotImplementedError

    def _copy_value(self) -> Any:
        """What a saved copy of the value is: a copy of the array, or just the spec."""
        return self._data

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Any = NO_ATTRS) -> Self:
        """The in-place form of ``op``: check, write, bump the version, and rewrite history."""
        if op.view:
            change_geometry(self, op, attrs)
            return self
        if op.composite:
            result = self._apply(op, (self.clone(), *inputs[1:]), attrs)  # it may save what is about to change
            self._check_result(result._data, attrs)
            return self._inplace(CATALOGUE.get("copy"), (self, result))
        tensors = [x for x in inputs if isinstance(x, Tracked)]
        for x in tensors:
            x._refresh()
        tracked = state.grad_enabled and op.differentiable and any(x._requires_grad for x in tensors)
        self._check_inplace(tracked, op, inputs, attrs)
        if not tracked:
            self._write(op, inputs, attrs)
            self._cell[0] += 1
            if self._base is not None and not self._base._requires_grad:
                self._seen = self._cell[0]
            return self
        old = self._alias()
        needs = tuple(isinstance(x, Tracked) and x._requires_grad for x in inputs)
        if not op.has_lists and op.plan(needs).saves_self:
            old._data, old._cell = self._copy_value(), [0]
        base_old = None if self._base is None else self._base._alias()
        self._write(op, inputs, attrs)
        self._cell[0] += 1
        self._slot = 0
        record(op, (old, *inputs[1:]), attrs, [self])
        self._outdate_saved(inputs)
        self._rewrite_history(old, base_old)
        return self

    def _rewrite_history(self, old: Tracked, base_old: Tracked | None) -> None:
        """After an in-place change gave this tensor a new node: what was retained moves there, and its base follows.

        ``old`` and ``base_old`` stand where this tensor and its base stood before.
        """
        if old._node is not None:
            hooks.move_retain(self, old._node, old._slot)
        if base_old is not None and self._base is not None:
            self._base._slot = 0
            chain = (*self._base._undo, *self._chain)
            record(CATALOGUE.get("view_scatter"), (base_old, self), {"chain": chain}, [self._base])
            if base_old._node is not None:
                hooks.move_retain(self._base, base_old._node, base_old._slot)
            self._seen = -1  # from now on its history comes through the base

    def _outdate_saved(self, inputs: tuple[Any, ...]) -> None:
        """Make the new node see that other inputs over this memory were overwritten, as in ``y.mul_(y)``."""
        if any(isinstance(x, Tracked) and x._cell is self._cell for x in inputs[1:]):
            node: Any = self._node
            node.versions = tuple(
                [
                    (at, cell, version - (cell is self._cell and node.plan.saves[at].source == "input"))
                    for at, cell, version in node.versions
                ]
            )

    def _sealed_error(self, event: str) -> InvalidOperation:
        """The error for a modification that a view's history does not allow."""
        if self._sealed is IN_INFERENCE:
            what = f"A view was created in inference mode and {event} in normal mode."
        elif self._node is None:
            what = f"A view was created in no_grad mode and {event} with grad mode enabled."
        elif self._sealed is IN_NO_GRAD:
            what = (
                f"Output {self._slot} of {kind(self._node)} is a view of a view which was created in no_grad mode and "
                f"{event} with grad mode enabled."
            )
        else:
            what = f"Output {self._slot} of {kind(self._node)} is a view and {event}."
        return InvalidOperation(f"{what} {self._sealed}")

    def _check_changeable(self, tracked: bool) -> None:
        """Raise for what may not be changed in place whatever the change; ``tracked`` ones are recorded."""
        inference.check_modifiable(self)
        if state.grad_enabled:
            if self._requires_grad and self._node is None:
                raise InplaceOnLeaf("a leaf Variable that requires grad is being used in an in-place operation.")
            base = self._base
            if self._sealed is not None and base is not None and (tracked or base._requires_grad):
                raise self._sealed_error("is being modified inplace")
            if base is not None and base._requires_grad and base._node is None:
                raise InplaceOnLeaf(
                    "a view of a leaf Variable that requires grad is being used in an in-place operation."
                )
            if tracked and base is not None and any(step.lists_outputs for step, _, _ in self._chain):
                name = next(step.name for step, _, _ in self._chain if step.lists_outputs)
                raise InvalidOperation(
                    f"Output {self._chain[-1][2]} of {name.capitalize()} is a view and is being modified "
                    "inplace. This view is the output of a function that returns multiple views. Such "
                    "functions do not allow the output views to be modified inplace. You should replace the "
                    "inplace operation by an out-of-place one."
                )

    def _check_inplace(self, tracked: bool, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        self._check_changeable(tracked)
        self._check_result(op.rule(*_datas(inputs), **attrs), attrs)

    def _check_result(self, result: Any, attrs: Any) -> None:
        """Raise unless a result, known by its shape and dtype, can be written here."""
        if result.shape != self._data.shape:
            raise ShapeMismatch(
                f"output with shape {list(self._data.shape)} doesn't match the broadcast shape {list(result.shape)}"
            )
        if result.dtype != self._data.dtype:
            self._check_cast(result.dtype, attrs)

    def _check_cast(self, dtype: Any, attrs: Any) -> None:
        if attrs.get("dtype") is not None:
            own, asked = _c_name(self.dtype), _c_name(from_numpy(dtype))
            raise DTypeMismatch(
                f"Bad in-place call: input tensor dtype {own} and output tensor dtype {asked} should match"
            )
        if not can_cast(dtype, self._data.dtype):
            raise DTypeMismatch(
                f"result type {from_numpy(dtype).kernel_name} can't be cast to the desired output type "
                f"{self.dtype.kernel_name}"
            )


def _datas(inputs: Sequence[Any]) -> list[Any]:
    return [tuple(_datas(x)) if isinstance(x, tuple) else x._data if isinstance(x, Tracked) else x for x in inputs]


def _c_name(dtype: DType) -> str:
    return {"float32": "float", "float64": "double", "int64": "long int"}.get(dtype.name, dtype.name)


def _meta_alias(tensor: Tracked) -> Any:
    from .meta import Meta

    return Meta._at(tensor)
