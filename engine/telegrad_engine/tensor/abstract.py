"""Tensors without values: shape, dtype and history only, like torch's meta device.

The SDK's shadow graph consists of these tensors: under ``create_graph`` the derivative rules run on them to find the
shapes, the dtypes and the dependencies of the gradients that the server computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..context import observers, state
from ..graph.node import accumulator, record
from ..schema.op import NO_ATTRS, Op
from ..shapes import Spec, check_size
from .base import TensorBase
from .call_cache import CallSignature, Ready, bind_inputs, node_maker, preparer
from .execution import Enter, finish, run_composite
from .gradient_values import GraphValues
from .namespace import Functions


class Meta(TensorBase):
    """A tensor that has a shape, a dtype and a place in the graph, but no value."""

    def __init__(self, data: Any) -> None:
        self._data = Spec(data.shape, data.dtype)
        self._version_counter = [0]

    @classmethod
    def _at(cls, tensor: TensorBase) -> Meta:
        """A stand-in for ``tensor`` at the same place in the graph."""
        meta = cls(tensor._data)
        meta._requires_grad = tensor._requires_grad
        # Edges to the stand-in for a leaf must lead to the leaf's own node.
        meta._node = accumulator(tensor) if tensor._requires_grad and tensor._node is None else tensor._node
        meta._output_nr = tensor._output_nr
        meta._lie_as(tensor._strided())
        return meta

    def __repr__(self) -> str:
        return f"Meta({self._data!r})"

    def _without_value(self) -> Meta:
        return Meta._at(self)

    def _ones_like(self) -> Meta:
        return Meta(self._data)

    def _zeros_like(self) -> Meta:
        return Meta(self._data)

    def _values(self, create_graph: bool) -> Any:
        return GraphValues(Meta, create_graph)

    def _write(self, op: Op, inputs: tuple[Any, ...], attrs: Any) -> None:
        """Do nothing: there is no value to replace."""

    def _show_as(self, op: Op, attrs: Any) -> None:
        self._data = op.rule(self._data, **attrs)

    @staticmethod
    def _apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        if observers and (observer := state.observer) is not None and observer.sees_meta:
            return observer.op(_record, op, inputs, attrs)
        return _record(op, inputs, attrs)


def _record(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    return apply_spec(op, inputs, attrs, lambda specs: [Meta(s) for s in specs], functions)


def apply_spec(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], make: Any, composites: Functions) -> Any:
    """Apply ``op`` by its shape rule alone, and record the output tensors that ``make(specs)`` returns."""
    if state.autocast is not None:
        op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
    if op.composite:
        return run_composite(op, composites, inputs, attrs)
    datas, needs = unwrap(inputs, op.differentiable)
    specs = op.rule(*datas, **attrs)
    if not isinstance(specs, list):
        specs = [specs]
    for spec in specs:
        check_size(spec.shape, spec.dtype, op.view)
    return finish_without_values(op, inputs, attrs, make(specs), datas, needs)


def finish_without_values(
    op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], outputs: Sequence[Any], datas: Any, needs: bool
) -> Any:
    """:func:`.execution.finish` for new abstract tensors; ``datas`` and ``needs`` are from ``unwrap(inputs)``."""
    enter: Enter | None = None
    hidden: Sequence[Any] = ()
    if needs and op.differentiable and state.grad_enabled:
        enter, hidden = partial(record, op, attrs), () if op.hidden_rule is None else op.hidden_rule(*datas, **attrs)
    return finish(op, inputs, attrs, outputs, hidden, enter)


def unwrap(inputs: tuple[Any, ...], differentiable: bool = True) -> tuple[list[Any], bool]:
    """Return the ``_data`` of every input, and whether any input requires grad.

    A ``differentiable`` op needs the views' current histories.
    """
    datas: list[Any] = []
    needs = False
    for x in inputs:
        if isinstance(x, tuple):
            datas.append(tuple([_data(v) for v in x]))
            needs = needs or any(isinstance(v, TensorBase) and v._requires_grad for v in x)
        elif isinstance(x, TensorBase):
            if x._base is not None and differentiable:
                x._refresh()
            datas.append(x._data)
            needs = needs or x._requires_grad
        else:
            datas.append(x)
    return datas, needs


def _data(value: Any) -> Any:
    if isinstance(value, TensorBase):
        value._refresh()
        return value._data
    return value


def _again(call: CallSignature) -> Ready:
    """Return a function that repeats a call on other tensors: it makes the outputs and adds them to the graph."""
    op, inputs, attrs, specs, order = call
    enter = node_maker(call)
    blank, hidden = [None if hasattr(x, "_data") else x for x in inputs], hidden_specs(call)

    def run(tensors: list[Any]) -> Any:
        inputs = tensors if order is None else bind_inputs(blank, order, tensors)
        return finish(op, inputs, attrs, [Meta(spec) for spec in specs], hidden, enter)

    return run


def hidden_specs(call: CallSignature) -> Sequence[Any]:
    """Return the specs of the hidden results, which the call computes for its derivative only."""
    op, inputs, attrs, _, _ = call
    datas = [x._data if hasattr(x, "_data") else x for x in inputs]
    return () if op.hidden_rule is None else op.hidden_rule(*datas, **attrs)


functions = Functions(Meta._apply)
KINDS = frozenset({Meta})
prepare = preparer(_again, Meta._apply)
Meta._graph_class = Meta
