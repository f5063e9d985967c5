"""View ops in place, ``x.unsqueeze_(0)``: a tensor that shows its memory in another geometry from now on.

Its other views stay as they are. They find their way from their base by the chain of ops that made them, which
begins at the geometry that the base had first; so a base remembers, in ``_undo``, the way back to that one.
"""

from __future__ import annotations

from typing import Any

from ..context import state
from ..graph.node import record
from ..schema.op import CATALOGUE, Op

Step = tuple[Op, Any, int]
"""A view op, its attributes and which of its outputs is meant: a link of a view's chain."""


def change_geometry(tensor: Any, op: Op, attrs: Any) -> None:
    """The in-place form of the view op ``op``: check, show the memory anew, bump the version, and record.

    Raises what any change in place does: for a leaf that requires grad and its views, for a view of many.
    """
    tensor._refresh()
    tracked = state.grad_enabled and tensor._requires_grad
    tensor._check_changeable(tracked)
    old = tensor._alias()
    back = _way_back(op, attrs, tensor._data.shape)
    tensor._show_as(op, attrs)
    tensor._version_counter[0] += 1
    tensor._chain, tensor._plain = (*tensor._chain, (op, attrs, 0)), False
    if tensor._base is None:
        tensor._undo = (back, *tensor._undo)
    elif tracked or not tensor._base._requires_grad:
        tensor._seen = tensor._version_counter[0]
    if tracked:
        tensor._slot = 0
        record(op, (old,), attrs, [tensor])


def _way_back(op: Op, attrs: Any, shape: tuple[int, ...]) -> Step:
    """The step that undoes ``op`` on a tensor of ``shape``: swapping does itself, most else was a reshape."""
    if op.key in ("t", "transpose"):
        return op, attrs, 0
    if op.key == "as_strided":
        strides = {name: value for name, value in attrs.items() if name != "size"}
        return CATALOGUE.get("unstrided"), {"shape": shape, **strides}, 0
    return CATALOGUE.get("reshape"), {"shape": shape}, 0
