"""Has the engine give results their tangents, while some thread has entered a level and not otherwise.

As for a profile (docs/decisions/0009), the few functions through which everything executes are replaced by ones that
look for this thread's level first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backward import Values
from ..devices import ENGINE, Device, DeviceTensor
from ..function import Function
from ..function.ctx import Saved
from ..in_place import Changeable
from ..registry import NO_ATTRS
from ..replaced import Replacements
from ..tensor import Tensor
from ..values import ARRAYS, GraphValues
from .level import current
from .push import push, push_function, push_inplace

Call = Callable[..., Any]


def _execute(execute: Call) -> Call:
    """Of ``tensor.execute_and_record``: every op that ``apply`` is asked for."""

    def pushing(op: Any, inputs: Any, attrs: Any = NO_ATTRS) -> Any:
        level = current()
        if level is None or not level.concerns(inputs):
            return execute(op, inputs, attrs)
        return push(level, execute, op, inputs, attrs)

    return pushing


def _device(apply: Call) -> Call:
    """Of ``Device.apply``, where methods of tensors on another backend end."""

    def pushing(self: Any, op: Any, inputs: Any, attrs: Any = NO_ATTRS) -> Any:
        level = current()
        if level is None or not level.concerns(inputs):
            return apply(self, op, inputs, attrs)
        return push(level, lambda *call: apply(self, *call), op, inputs, attrs)

    return pushing


def _inplace(inplace: Call) -> Call:
    """Of ``Changeable._inplace``: every op in place."""

    def pushing(self: Any, op: Any, inputs: Any, attrs: Any = NO_ATTRS) -> Any:
        level = current()
        if level is None or op.composite or not level.concerns(inputs):
            return inplace(self, op, inputs, attrs)
        return push_inplace(level, inplace, self, op, inputs, attrs)

    return pushing


def _enter(enter: Any) -> Any:
    """Of ``Function._enter``: a user's forward, which sees values alone."""

    def pushing(cls: Any, ctx: Any, args: Any, separate: bool) -> Any:
        level = current()
        if level is None or not level.concerns(args):
            return enter.__func__(cls, ctx, args, separate)
        with level.suspended():
            entry = enter.__func__(cls, ctx, args, separate)
        push_function(level, entry)
        return entry

    return classmethod(pushing)


def _unpack(unpack: Call) -> Call:
    """Of ``GraphValues.unpack``: what a node saved, for its derivatives."""

    def restoring(self: Any, node: Any) -> list[Any]:
        values: list[Any] = unpack(self, node)
        level = current()
        if level is not None:
            level.restore(node, values)
        return values

    return restoring


def _unpack_output(unpack: Call) -> Call:
    """Of ``Saved.unpack``: a tensor that a Function saved; an output of its own is made anew."""

    def restoring(self: Any, node: Any) -> Any:
        tensor = unpack(self, node)
        level = current()
        if level is not None and self.slot is not None:
            level.restore_output(node, self.slot, tensor)
        return tensor

    return restoring


def _values(values: Call) -> Call:
    """Of a tensor class's ``_values``: gradients have tangents too, so within a level they are tensors."""

    def chosen(self: Any, create_graph: bool) -> Values:
        return DualValues(self) if current() is not None and not create_graph else values(self, create_graph)

    return chosen


class DualValues(GraphValues):
    """Gradients as tensors that are not recorded, but pushed forward through. ``.grad`` holds values alone."""

    def __init__(self, like: Any) -> None:
        super().__init__(like._graph_class, recording=False)

    def accumulate(self, tensor: Any, grad: Any, private: bool) -> None:
        """Add a gradient to ``tensor.grad`` as a pass over arrays does."""
        values = ARRAYS if type(tensor) is Tensor else tensor._on.values
        values.accumulate(tensor, grad._data, False)


_REPLACEMENTS = Replacements(
    [
        (ENGINE, "execute_and_record", _execute),
        (Device, "apply", _device),
        (Changeable, "_inplace", _inplace),
        (Function, "_enter", _enter),
        (GraphValues, "unpack", _unpack),
        (Saved, "unpack", _unpack_output),
        (Tensor, "_values", _values),
        (DeviceTensor, "_values", _values),
    ],
)
install, uninstall = _REPLACEMENTS.install, _REPLACEMENTS.uninstall
