"""The autograd state that all kinds of tensors share.

:class:`TensorBase` holds the autograd state and its rules: leaves, versions, views, in-place changes,
``backward``. Its subclasses add the value: an array for :class:`telegrad_engine.Tensor`, nothing for
:class:`telegrad_engine.tensor.abstract.Meta`, and a handle to a tensor on the server for the SDK's Tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Self

from ..context import state
from ..dtypes import FLOATING
from ..errors import DTypeMismatch, GradRequired, InvalidOperation, ShapeMismatch
from ..graph import differentiation, hooks
from ..graph.node import Node
from ..memory_layout import memory_of, offset_of
from ..schema.op import Op
from .execution import INFERENCE_REQUIRING, INFERENCE_UNVERSIONED, is_inference_tensor
from .in_place import TensorInPlace, c_name
from .memory import follow, is_contiguous, is_view, layout

ONLY_FLOATING = "only Tensors of floating point dtype can require gradients"
ONLY_LEAVES = (
    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
    "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
)


class TensorBase(TensorInPlace):
    """A tensor's autograd state. ``_data`` is anything with a shape and a NumPy dtype."""

    _graph_class: ClassVar[type[TensorBase]]
    """The class of the tensors that derivative rules compute on under ``create_graph``."""
    _autograd_name: ClassVar[str] = "telegrad_engine.autograd"
    """The name of :meth:`_autograd`, which imports the class."""

    @classmethod
    def _autograd(cls) -> Any:
        """The package with ``grad`` and ``forward_ad`` for these tensors: the engine's ``autograd`` or the SDK's."""
        return import_module(cls._autograd_name)

    def _new_like(self, data: Any) -> Self:
        """Return a tensor of the same class over ``data``, outside the graph."""
        tensor = object.__new__(type(self))
        tensor._data = data
        tensor._version_counter = [0]
        return tensor

    # Place in the graph ------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for this tensor. It can be changed only for a leaf.

        A view of a base that requires grad always requires grad, even if it was made under ``no_grad``.

        Examples:
            >>> tg.ones(2).requires_grad
            False
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
        """Set whether gradients are computed. Raises for integer dtypes, and for False on a non-leaf."""
        if not requires_grad and self.grad_fn is not None:
            raise InvalidOperation(ONLY_LEAVES)
        if requires_grad and self._data.dtype not in FLOATING:
            raise DTypeMismatch(ONLY_FLOATING)
        if requires_grad and is_inference_tensor(self) and not state.inference:
            raise InvalidOperation(INFERENCE_REQUIRING)
        if self._node is None:
            self._requires_grad = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this tensor.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> x.is_leaf, (x * 2).is_leaf
            (True, False)
        """
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, or None for a leaf."""
        self._refresh(reading=True)
        node = self._node
        return None if node is None or node.leaf is not None else node  # only a stand-in for a leaf has the leaf's node

    @property
    def _last_grad_fn(self) -> Node | None:
        """``grad_fn`` to display: that from before the change if the change made the history of a view unreadable."""
        try:
            return self.grad_fn
        except InvalidOperation:
            return self._node

    @property
    def output_nr(self) -> int:
        """The index of this tensor among the outputs of ``grad_fn``.

        Examples:
            >>> values, indices = tg.tensor([3.0, 1.0], requires_grad=True).sort()
            >>> values.output_nr
            0
        """
        return self._output_nr

    @property
    def _version(self) -> int:
        """The number of in-place modifications of this tensor's memory."""
        if is_inference_tensor(self):
            raise InvalidOperation(INFERENCE_UNVERSIONED)
        return self._version_counter[0]

    def is_inference(self) -> bool:
        """Whether this tensor was made under inference_mode.

        Examples:
            >>> with tg.inference_mode():
            ...     print(tg.ones(2).is_inference())
            True
        """
        return is_inference_tensor(self)

    @property
    def grad(self) -> Any:
        """The accumulated gradient, or None. Assign None or a tensor of the same shape and dtype."""
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
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
                    f"attempting to assign a gradient with dtype '{c_name(value.dtype)}' to a tensor with grad_dtype "
                    f"'{self.dtype.kernel_name}'. The gradient must match the tensor's grad_dtype (defaults to the "
                    "tensor's dtype)."
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    # Gradients ---------------------------------------------------------------------------

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate this tensor's gradients into the ``grad`` of the leaves, or of ``inputs`` only.

        ``gradient`` has this tensor's shape; it may be omitted for a tensor of one element.
        """
        differentiation.backward([self], [gradient], retain_graph, create_graph, inputs)

    def retain_grad(self) -> None:
        """Make ``backward`` set the ``grad`` of this non-leaf too."""
        if not self.requires_grad:
            raise GradRequired("can't retain_grad on Tensor that has requires_grad=False")
        if self._node is not None and not self.retains_grad:
            hooks.add_retain(self)

    @property
    def retains_grad(self) -> bool:
        """Whether ``backward`` sets the ``grad`` of this non-leaf; False for a leaf.

        Examples:
            >>> y = tg.ones(2, requires_grad=True) * 2
            >>> y.retain_grad()
            >>> y.retains_grad
            True
        """
        return self._node is not None and hooks.is_retained(self)

    def register_hook(self, hook: Callable[[Any], Any]) -> hooks.Handle:
        """Call ``hook(grad)`` when this tensor's gradient is computed; a returned tensor replaces the gradient."""
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

    def _check_new_data(self, value: TensorBase) -> None:
        """Raise unless ``value`` may be assigned to this tensor's ``data``."""
        if self._requires_grad and value._data.dtype not in FLOATING:
            raise DTypeMismatch("data set to a tensor that requires gradients must be floating point or complex dtype")

    def detach(self) -> Self:
        """Return a tensor over the same memory that is outside the graph."""
        result = self._alias(history=False)
        result._node, result._output_nr, result._requires_grad = None, 0, False
        result._base, result._view_chain, result._inverse_chain, result._sealed = None, (), (), None
        result._lie_as(self._strided())
        return result

    def _data_alone(self) -> Self:
        """Like :meth:`detach`, but with a separate version counter, so that autograd does not see in-place changes."""
        result = self.detach()
        if not is_inference_tensor(self):
            result._version_counter, result._memory_owner = [0], memory_of(self)
        return result

    def _strided(self) -> Any:
        """Return an array of this tensor's shape and strides, not to be read; None in row-major order at offset 0."""
        if self._base is None and self._layout is None and not self._view_chain:
            return None
        array = layout(self)
        return None if array.flags.c_contiguous and not offset_of(array) else array

    def _note_view(self, source: TensorBase, op: Op, attrs: Any, index: int) -> None:
        """Make this output of a view op a view of ``source``, unless it is a copy."""
        if not op.may_copy or is_view(source, op, attrs):
            self._view_of(source, op, attrs, index)

    def _strided_as(self, source: TensorInPlace, op: Op, attrs: Any, index: int) -> Any:
        return follow(layout(source), (op, attrs, index))

    @property
    def _is_contiguous(self) -> bool:
        """Whether the elements are in row-major order, without gaps."""
        return is_contiguous(self)

    def _detached_alias(self) -> Self:
        """Return another tensor object over the same value that keeps no part of the graph alive."""
        return self.detach()

    def detach_(self) -> Self:
        """Detach this tensor from the graph in place."""
        if self._base is not None:
            raise InvalidOperation(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
                "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
                "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please refer to "
                "the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
            )
        if self._node is not None:
            self._hooks = hooks.taken_by_leaf(self._node, self._output_nr)
        self._node, self._output_nr, self._requires_grad = None, 0, False
        return self
