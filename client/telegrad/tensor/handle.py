"""The SDK's Tensor: a handle for a tensor in a session, with a client-side copy of its graph.

Shape, dtype, history and errors are known at once. The value is in the session, and only reading it
(``item``, ``numpy``, ``print``, ``bool``) sends the recorded instructions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from telegrad_engine.context import state
from telegrad_engine.dtypes import FLOATING, parse
from telegrad_engine.errors import DataDependentShape, DTypeMismatch, InvalidOperation, TelegradError
from telegrad_engine.graph.backward_pass import Values
from telegrad_engine.graph.node import Node
from telegrad_engine.instrumentation import Observer
from telegrad_engine.memory_layout import memory_of
from telegrad_engine.schema.op import NO_ATTRS, Op
from telegrad_engine.shapes import Spec, interned
from telegrad_engine.tensor.abstract import Meta, apply_spec, finish_without_values, unwrap
from telegrad_engine.tensor.base import TensorBase
from telegrad_engine.tensor.call_cache import remember
from telegrad_engine.tensor.conversion import as_array
from telegrad_engine.tensor.execution import is_inference_tensor
from telegrad_engine.tensor.formatting import format_tensor
from telegrad_engine.tensor.in_place import TensorInPlace
from telegrad_engine.tensor.methods import in_place_methods
from telegrad_engine.tensor.namespace import Functions

from ..exclusions import explain_missing
from ..late_bindings import bindings
from ..sessions.session import COPIES, current
from ..tape.dispatch import active, check_values, preparing_calls, raise_here, recording, refuse_captured
from ..tape.flush_policy import FULL_BYTES
from ..tape.lazy_graph import LazyGraph, LazyNode
from ..tape.recorder import Recorder
from ..tape.segment import change_of
from ..tape.shadow import RecordedGraphValues, ShadowValues
from .devices import OnDevice, check_device
from .host_values import HostValues, host_array
from .nodes import NON_LEAF_GRAD, shown
from .notebook import show_values, tensor_html
from .references import recorder_of, refs

_new = object.__new__


ONLY_FLOATING = "Only Tensors of floating point and complex dtype can require gradients"
"""torch's text for creating a tensor; ``requires_grad_`` has its own text."""


@explain_missing
class Tensor(HostValues, OnDevice, TensorBase):
    """A tensor in a session, created by :func:`telegrad.tensor` or by an op.

    Shape, dtype, graph and errors are known at once; the value stays in the session until it is read. Arguments
    (``args``) are those of torch's legacy constructor: a shape, values or another tensor, in the default dtype.

    Examples:
        >>> x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.shape, x.dtype, x.grad
        (telegrad.Size([2, 2]), telegrad.float32, tensor([[2., 4.],
                [6., 8.]]))
    """

    __module__ = "telegrad"  # the public module, as in torch

    _id: str
    _recorder: Recorder = None  # type: ignore[assignment]  # None until the handle is initialized, for __del__
    _has_grad: bool = False
    """Whether the session's tensor has a gradient; its handle is created on access."""
    _grad_history: TensorBase | None = None
    """The position of that gradient in the graph, if it was computed with create_graph."""
    _node: Node | None = LazyNode()  # type: ignore[assignment]
    _given: tuple[Any, list[int]] | None = None
    """The values of a small uploaded integer tensor, valid while this is its version counter, at 0."""
    _graph_class = Meta
    _autograd_name = "telegrad.autograd"
    _lazy: LazyGraph | None = None
    """The lazy graph that will build the node (tape/lazy_graph.py), or None."""
    _origin: str | None = None
    """The id of the tensor whose memory this one shows, such as that of ``detach``, or None."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """torch's legacy constructor: a tensor of the default dtype from a shape, values or another tensor."""
        made: Tensor = bindings.legacy_tensor(None, args, kwargs, cls)
        return made

    def __del__(self) -> None:
        if self._recorder is not None:
            self._recorder.release(self._id)

    # The value ---------------------------------------------------------------------------

    def _fetch(self) -> Any:
        return self._recorder.fetch([self._id])[self._id].array

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        """Convert the results of NumPy functions to tensors, with bools as uint8, as in torch."""
        return upload(self._recorder, array.astype(np.uint8) if array.dtype == bool else array)

    def __repr__(self) -> str:
        return format_tensor(self, show_values(self), self.shape)

    def _repr_html_(self) -> str:
        return tensor_html(self)

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Return a new tensor from ``data`` in this tensor's session, by default with its dtype.

        ``dtype`` None is this tensor's; ``device`` can only be that of the session; ``requires_grad`` is that of the
        result.

        Examples:
            >>> tg.ones(2, dtype=tg.float64).new_tensor([1, 2])
            tensor([1., 2.], dtype=telegrad.float64)
        """
        if device is not None:
            check_device(device)
        return upload(self._recorder, data, self.dtype if dtype is None else dtype, requires_grad)

    def new(self, *args: Any, **kwargs: Any) -> Tensor:
        """Like ``telegrad.Tensor(…)``, with this tensor's dtype.

        Examples:
            >>> tg.tensor([1, 2]).new([3])
            tensor([3])
        """
        made: Tensor = bindings.legacy_tensor(self.dtype, args, kwargs)
        return made

    def as_subclass(self, cls: type[Any]) -> Any:
        """Return this tensor as an object of a subclass of Tensor, with the same history.

        ``cls`` is the subclass. Raises TypeError for another class.

        Examples:
            >>> class Named(tg.Tensor):
            ...     pass
            >>> type(tg.ones(2).as_subclass(Named)).__name__
            'Named'
        """
        if not (isinstance(cls, type) and issubclass(cls, Tensor)):
            raise TypeError(f"as_subclass(): argument 'cls' (position 1) must be type, not {type(cls).__name__}")
        result: Any = self.view(tuple(self.shape)) if self.requires_grad else self.detach()
        result.__class__ = cls
        return result

    # Gradients ---------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient, or None. Assign None or a tensor of the same shape and dtype.

        Examples:
            >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        if not self._has_grad:
            if self._requires_grad and self._node is not None and not self.is_leaf and not self.retains_grad:
                warnings.warn(NON_LEAF_GRAD, stacklevel=2)
            return None
        if self._grad is None:
            self._grad = result_of(self._recorder, "grad_of", [self._id], Spec(self._data.shape, self._data.dtype))
            if self._grad_history is not None:
                self._grad._adopt(self._grad_history)
                self._grad_history = None
        known: Tensor = self._grad
        return known

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None and not self._has_grad:
            return
        TensorBase.grad.fset(self, value)  # type: ignore[attr-defined]
        self._has_grad = value is not None
        self._recorder.emit("set_grad", [self._id, None if value is None else value._id])

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def grad_fn(self) -> Any:
        """The node that made this tensor, or None for a leaf.

        Examples:
            >>> (tg.ones(2, requires_grad=True) * 2).grad_fn.name()
            'MulBackward0'
        """
        node = TensorBase.grad_fn.fget(self)  # type: ignore[attr-defined]
        return None if node is None else shown(node, self)

    def _receive_grad(self) -> None:
        """Record that backward added to this tensor's gradient in place, so the gradient's handle stays valid."""
        grad = self._grad
        self._recorder.received.append((ref(self), self._has_grad, None if grad is None else grad._version_counter))
        if self._grad is not None:
            self._grad._version_counter[0] += 1
        self._has_grad = True

    def _replace_grad(self, grad: Meta | None = None) -> None:
        """Record that backward gave this tensor a new gradient, with the history of this stand-in or none."""
        self._recorder.received.append((ref(self), self._has_grad, None))
        self._grad = None
        self._grad_history = grad if grad is not None and grad._requires_grad else None
        self._has_grad = True

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradients of this tensor into the leaves' ``grad``, or only into that of ``inputs``.

        Nothing is sent: errors about the graph are raised at once, and the session computes the gradients.

        ``gradient`` is this tensor's gradient, None for 1 if it has one element; the graph is freed unless
        ``retain_graph``, and with ``create_graph`` gradients have a graph themselves. Raises RuntimeError without a
        graph, or if it is freed.

        Examples:
            >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        given = None if gradient is None else [gradient]
        bindings.backward([self], given, retain_graph, create_graph, inputs=inputs)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients are computed. Raises for non-leaves and integer dtypes.

        ``requires_grad`` says whether. The tensor is returned.

        Examples:
            >>> tg.ones(2).requires_grad_()
            tensor([1., 1.], requires_grad=True)
        """
        before = self._requires_grad
        super().requires_grad_(requires_grad)
        if self._requires_grad != before:
            self._recorder.emit("requires_grad_", [self._id], (), {"requires_grad": bool(requires_grad)})
        return self

    def retain_grad(self) -> None:
        """Make ``backward`` also set ``grad`` of this non-leaf tensor.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> y = x * 2
            >>> y.retain_grad()
            >>> y.sum().backward()
            >>> y.grad
            tensor([1., 1.])
        """
        super().retain_grad()
        self._recorder.emit("retain_grad", [self._id])

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad)`` when this tensor's gradient is computed; its result replaces the gradient.

        The hook runs on the client, so a backward that reaches it waits for the session once. Returns a handle whose
        ``remove()`` removes the hook.

        ``hook`` takes the gradient, and returns another one or None. Raises RuntimeError for a tensor that does not
        require gradients.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> handle = x.register_hook(lambda grad: 10 * grad)
            >>> x.sum().backward()
            >>> x.grad
            tensor([10., 10.])
        """
        return bindings.register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call ``hook(self)`` each time this leaf's gradient has been accumulated; otherwise like ``register_hook``.

        ``hook`` takes the leaf. Raises RuntimeError for a tensor that is not a leaf.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
            >>> x.sum().backward()
            tensor([1., 1.])
        """
        return bindings.register_post_accumulate_grad_hook(self, hook)

    def detach(self) -> Tensor:
        """Return a tensor outside the graph that shares the memory.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> x.detach().requires_grad
            False
        """
        result = handle(self._recorder, self._data)
        result._show_memory_of(self)
        self._recorder.emit("detach", [self._id], [result._id])
        return result

    def _detached_alias(self) -> Tensor:
        # The session uses the tensor itself here; only the client graph could form a reference cycle.
        result = result_of(self._recorder, "alias", [self._id], self._data)
        result._show_memory_of(self)
        return result

    def detach_(self) -> Tensor:
        """Detach this tensor from the graph in place.

        Examples:
            >>> (tg.ones(2, requires_grad=True) * 2).detach_().is_leaf
            True
        """
        super().detach_()
        self._recorder.emit("detach_", [self._id])
        return self

    @property
    def data(self) -> Tensor:
        """The tensor outside the graph, sharing the memory; assigning a tensor makes this one share its memory.

        The result has its own version counter: autograd does not notice in-place changes through it.

        Examples:
            >>> x = tg.ones(2, requires_grad=True)
            >>> x.data.requires_grad
            False
        """
        result = result_of(self._recorder, "detach", [self._id], self._data, {"shares_version": False})
        result._show_memory_of(self)
        if not is_inference_tensor(self):
            result._version_counter = [0]
        return result

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        self._check_new_data(value)
        recorder_of((self, value)).emit("share_data", [self._id, value._id])
        self._data = value._data
        self._show_memory_of(value)

    def _data_alone(self) -> Tensor:
        return self.data

    def _show_memory_of(self, source: Tensor) -> None:
        self._version_counter, self._memory_owner = source._version_counter, memory_of(source)
        self._origin = source._memory_id
        self._lie_as(source._strided())
        self._recorder.sharing.add(self, source)

    def _view_of(self, source: TensorInPlace, op: Op, attrs: Any, index: int) -> None:
        super()._view_of(source, op, attrs, index)
        self._recorder.sharing.add(self, source)

    @property
    def _memory_id(self) -> str:
        """The id of the oldest tensor known to have this memory."""
        base: Any = self if self._base is None else self._base
        found: str = base._origin or base._id
        return found

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        """Return a new leaf with a copy of the value and of the gradient, if any."""
        if COPIES in memo:
            copied: Tensor = bindings.copy_into_fork(self, memo)
            return copied
        if not self.is_leaf:
            raise InvalidOperation(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol "
                "at the moment."
            )
        source = self.detach()  # held until the instruction is recorded, since it would be freed otherwise
        copied = result_of(self._recorder, "clone", [source._id], self._data, cls=type(self))
        if self._requires_grad:
            copied.requires_grad_()
        if self.grad is not None:
            copied.grad = self.grad.detach().clone()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by value: unpickling creates a leaf with a copy in the current session."""
        return from_pickle, (type(self), self._value_to_pickle(), self.requires_grad, vars(self).get("_is_buffer"))

    def _value_to_pickle(self) -> Any:
        try:
            return np.array(self._fetch())
        except TelegradError as error:
            session = getattr(self._recorder.transport, "session_id", None)
            where = self._recorder.transport.url if session is None else f"{self._recorder.transport.url} ({session})"
            raise InvalidOperation(f"a tensor of the session at {where} cannot be pickled: {error}") from error

    # Implementation of TensorBase's abstract methods -------------------------------------------

    def _alias(self, history: bool = True) -> Any:
        self._refresh()
        alias = self._without_value()
        alias._version_counter = self._version_counter
        return alias

    def _without_value(self) -> Meta:
        return Meta._at(self)

    def _adopt(self, meta: TensorBase) -> None:
        """Take over the position of a stand-in in the graph."""
        self._node, self._output_nr, self._requires_grad = meta._node, meta._output_nr, meta._requires_grad

    def _rebuilt(self) -> None:
        self._recorder.emit("refresh", [self._id])  # nodes must have the same age in the session as in the client graph

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        if active.argument is not None:
            refuse_captured(self, op, inputs)
        return super()._inplace(op, inputs, attrs)

    def _change(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> Any:
        result = super()._change(op, inputs, attrs)
        raise_here(self._recorder, op)
        return result

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        check_values(op, inputs, attrs)
        self._recorder.emit(f"{op.key}_", refs(inputs), (), attrs, effect=change_of(self))

    def _show_as(self, op: Op, attrs: Any) -> None:
        effect = change_of(self)
        self._data = op.rule(self._data, **attrs)
        self._recorder.emit(f"{op.key}_", [self._id], (), attrs, effect=effect)

    def _ones_like(self) -> Any:
        return Meta(self._data)

    def _zeros_like(self) -> Any:
        return Meta(self._data)

    def _values(self, create_graph: bool) -> Values:
        return RecordedGraphValues() if create_graph else ShadowValues()

    _apply = staticmethod(lambda op, inputs, attrs=NO_ATTRS: apply(op, inputs, attrs))


# Creating handles -----------------------------------------------------------------------------


def handle(recorder: Recorder, spec: Any, name: str | None = None, cls: type[Tensor] = Tensor) -> Tensor:
    """Return a tensor handle with this id or a new one; the caller records the instruction that creates the tensor."""
    tensor = _new(cls)
    tensor._data = spec
    tensor._version_counter = [0]
    tensor._id = recorder.new_id() if name is None else name
    tensor._recorder = recorder
    if recorder.observer is not None:
        recorder.observer.created(tensor)
    return tensor


def result_of(
    recorder: Recorder,
    verb: str,
    inputs: Sequence[Any],
    spec: Any,
    attrs: Mapping[str, Any] = NO_ATTRS,
    cls: type[Tensor] = Tensor,
) -> Tensor:
    """Record a verb that makes one tensor, and return its handle."""
    tensor = handle(recorder, spec, cls=cls)
    recorder.emit(verb, inputs, [tensor._id], attrs)
    return tensor


def from_pickle(cls: type[Tensor], value: Any, requires_grad: bool, is_buffer: bool | None = None) -> Tensor:
    """Recreate a pickled tensor in the current session."""
    uploaded = upload(current().recorder, value)
    tensor: Any = uploaded
    if cls is not Tensor:
        tensor = result_of(uploaded._recorder, "detach", [uploaded._id], uploaded._data, cls=cls)
    if requires_grad:
        tensor.requires_grad_()
    if is_buffer:
        tensor._is_buffer = True
    return tensor  # type: ignore[no-any-return]


def upload(recorder: Recorder, data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a new tensor from numbers, nested lists or arrays of any library; a large one is sent at once."""
    if hasattr(data, "detach") and hasattr(data, "numpy"):
        data = host_array(data)
    at_once = getattr(data, "nbytes", 0) >= FULL_BYTES and recorder.transport.remote
    before, state.default_dtype = state.default_dtype, recorder.default_dtype
    try:
        array = as_array(data, dtype, copy=not at_once)
    finally:
        state.default_dtype = before
    if requires_grad and array.dtype not in FLOATING:
        raise DTypeMismatch(ONLY_FLOATING)
    name = recorder.new_id()
    attrs = {"data": array, "requires_grad": True} if requires_grad else {"data": array}
    recorder.emit("tensor", (), (name,), attrs)
    tensor = handle(recorder, interned(array.shape, array.dtype), name)
    tensor._requires_grad = requires_grad
    if array.dtype.kind in "iu" and array.nbytes < FULL_BYTES:
        tensor._given = array, tensor._version_counter
    if at_once:
        recorder.flush()  # the caller's own array is sent before it can change
    return tensor


# Recording ------------------------------------------------------------------------------------


def apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
    """Apply ``op`` through the active transforms, or record it."""
    if state.autocast is not None:
        op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
    if state.ops_observed:
        observed: Observer = state.observer  # type: ignore[assignment]  # not None, as it sees ops
        return observed.op(record, op, inputs, attrs)
    return record(op, inputs, attrs)


def record(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Record ``op``: check it, give its outputs ids, shapes and dtypes, and add it to the client graph."""
    recorder = recorder_of(inputs)

    made: list[Tensor] = []

    def make(specs: list[Spec]) -> list[Tensor]:
        check_values(op, inputs, attrs)
        made.extend([handle(recorder, spec) for spec in specs])
        return made

    before, state.default_dtype = state.default_dtype, recorder.default_dtype
    try:
        if active.tracer is not None:
            return active.tracer.apply(op, inputs, attrs)
        result = apply_spec(op, inputs, attrs, make, OPS)
        if made:  # empty for a composite op, whose ops were recorded instead
            recorder.emit(op.key, refs(inputs), [t._id for t in made], attrs)
    except DataDependentShape:
        return _apply_and_ask(recorder, op, inputs, attrs)
    except TelegradError as error:
        recorder.refuse([t._id for t in made], error)
        raise
    finally:
        state.default_dtype = before
    raise_here(recorder, op)
    return result


def _apply_and_ask(recorder: Recorder, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Run an op whose output shapes depend on values at once, and fetch the shapes."""
    outputs = [handle(recorder, None) for _ in op.outputs]
    ids = [output._id for output in outputs]
    recorder.emit(op.key, refs(inputs), ids, attrs)
    known = recorder.fetch(ids, values=False)
    for output in outputs:
        description = known[output._id].description
        output._data = Spec(tuple(description["shape"]), parse(description["dtype"]).numpy)
    return finish_without_values(op, inputs, attrs, outputs, *unwrap(inputs))


OPS = Functions(apply)
"""The ops as functions, on tensors of sessions."""
if TYPE_CHECKING:  # the same functions, with the types that `make stubs` writes
    from .. import _functions as functions
else:
    functions = OPS
KINDS: set[type[Tensor]] = {Tensor}
"""The classes whose calls are cached: those that have Tensor's own methods."""
remember(Tensor, OPS, preparing_calls(handle, apply), KINDS, recording)
_changes = preparing_calls(handle, apply, in_place=True)
for _name, _resolve in in_place_methods():
    setattr(Tensor, _name, recording(getattr(Tensor, _name), _resolve, _changes, KINDS, in_place=True))
__all__ = ["OPS", "Tensor", "apply", "functions", "handle"]
__all__ += ["recorder_of", "refs", "result_of", "upload"]
