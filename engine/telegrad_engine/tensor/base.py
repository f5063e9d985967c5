"""The autograd state of every tensor, wherever its value is.

:class:`Tracked` holds the autograd state and its rules: leaves, versions, views, in-place changes,
``backward``. Its subclasses add the value: :class:`telegrad_engine.Tensor` an array,
:class:`telegrad_engine.tensor.abstract.Meta` nothing, and the SDK's Tensor a handle on a server's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from ..context import state
from ..dtypes import FLOATING
from ..errors import DTypeMismatch, GradRequired, InvalidOperation, ShapeMismatch
from ..graph import differentiation, hooks
from ..graph.node import Node
from ..memory_layout import memory_of, offset_of
from ..schema.op import Op
from . import inference
from .abstract_layout import follow, is_contiguous, layout
from .in_place import Changeable, c_name

ONLY_FLOATING = "only Tensors of floating point dtype can require gradients"
ONLY_LEAVES = (
    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
    "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
)


class Tracked(Changeable):
    """A tensor's autograd state. ``_data`` is anything with a shape and a NumPy dtype."""

    is_leaf_target: ClassVar[bool] = True
    """An edge that ends at a tensor, not a Node, ends at a leaf that accumulates."""
    _graph_class: ClassVar[type[Tracked]]
    """The class that derivative rules run on under create_graph."""

    def _new_like(self, data: Any) -> Self:
        """A tensor of the same class over ``data``, outside the graph."""
        tensor = object.__new__(type(self))
        tensor._data = data
        tensor._version_counter = [0]
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
        return (
            None if node is None or node.is_leaf_target else node
        )  # what stands in for a leaf has an edge to it there

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this is."""
        return self._output_nr

    @property
    def _version(self) -> int:
        """How often the memory of this tensor was modified in place."""
        if inference.is_marked(self):
            raise InvalidOperation(inference.UNVERSIONED)
        return self._version_counter[0]

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
        """Accumulate the gradients of this tensor into the leaves' ``grad``, or into ``inputs``' alone.

        ``gradient`` has this tensor's shape; it may be left out for a tensor of one element.
        """
        differentiation.backward([self], [gradient], retain_graph, create_graph, inputs)

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
        result._node, result._output_nr, result._requires_grad = None, 0, False
        result._base, result._view_chain, result._inverse_chain, result._sealed = None, (), (), None
        result._lie_as(self._strided())
        return result

    def _data_alone(self) -> Self:
        """As :meth:`detach`, with a version of its own: changes in place through it go unnoticed."""
        result = self.detach()
        if not inference.is_marked(self):
            result._version_counter, result._memory_owner = [0], memory_of(self)
        return result

    def _strided(self) -> Any:
        """An array, not to be read, that lies in memory as this tensor; None for all of a row-major tensor."""
        if self._base is None and self._layout is None and not self._view_chain:
            return None
        array = layout(self)
        return None if array.flags.c_contiguous and not offset_of(array) else array

    def _strided_as(self, source: Changeable, op: Op, attrs: Any, index: int) -> Any:
        return follow(layout(source), op, attrs, index)

    @property
    def _is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order, without gaps."""
        return is_contiguous(self)

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
        self._node, self._output_nr, self._requires_grad = None, 0, False
        return self
