"""The saved values of a node under torch's names: ``grad_fn._saved_self`` and the other ``_saved_*`` attributes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..context import state
from ..errors import GraphFreed
from ..graph.node import FREED, FREED_TEXT, Node, modified_since
from ..schema.op import CATALOGUE
from ..shapes import Spec
from .eager import Tensor
from .gradient_values import GraphValues


def saved_value(node: Node, name: str) -> Any:
    """Return what ``node`` saved under torch's ``name``, such as ``self``, ``other``, ``result`` or ``self_sym_sizes``.

    It is a tensor at its original place in the graph, a number, a shape, or an attribute of the op; None for an
    input or output that this node did not save. Raises AttributeError for a name that the op does not have,
    GraphFreed after the graph was freed, and VersionConflict if the tensor was modified since.
    """
    op = node.op
    names = saved_names(node)
    if name not in names:
        raise AttributeError(f"{node.name()!r} object has no attribute '_saved_{name}'")
    position = names[name]
    if position is None:
        return node.attrs.get(name, op.defaults.get(name)) if name in op.positions else None
    if node.saved is FREED:
        raise GraphFreed(FREED_TEXT)
    return _unpacked(node, position)


def saved_names(node: Node) -> dict[str, int | None]:
    """Map torch's names of all values that the op may save to their positions in ``node.saved``, or None."""
    op, saves = node.op, {(save.source, save.key): at for at, save in enumerate(node.plan.saves)}
    found: dict[str, int | None] = {}
    for index, param in enumerate(op.tensor_params):
        # torch's rules call the first input self, except for a few that use the parameter's name.
        for name in {param.name, "self" if index == 0 else param.name}:
            found[name] = saves.get(("input", index))
            if ("shape", index) in saves:
                found[f"{name}_sym_sizes"] = saves["shape", index]
    found |= {name: saves.get(("output", index)) for index, name in enumerate(op.outputs)}
    found |= {param.name: saves.get(("attr", param.name)) for param in op.attr_params}
    return found


def install_saved_values(kind: type[Node]) -> None:
    """Give nodes a ``_saved_*`` property for every name of a saved value. Called once, after the ops are declared.

    These are properties because a ``__getattr__`` would slow down every attribute access of every node.
    """
    names = {f"{param.name}{kind}" for op in CATALOGUE for param in op.tensor_params for kind in ("", "_sym_sizes")}
    names |= {name for op in CATALOGUE for name in (*op.outputs, *op.positions)} | {"self", "self_sym_sizes"}
    for name in names:
        setattr(kind, f"_saved_{name}", property(partial(saved_value, name=name)))


def _unpacked(node: Node, position: int) -> Any:
    for at, cell, version in node.versions:
        if at == position and cell[0] != version:
            raise modified_since(node)
    kind = Tensor if state.device is None else state.device.Tensor
    value = GraphValues(kind).unpack(node)[position]
    return tuple([_as_seen(v) for v in value]) if isinstance(value, (list, tuple)) else _as_seen(value)


def _as_seen(value: Any) -> Any:
    """Return a saved tensor as a user sees it: the leaf itself if it is at a leaf's place."""
    place = getattr(value, "_node", None)
    if isinstance(getattr(value, "_data", None), Spec):
        raise AttributeError("a shadow of the graph has no saved values: they are where its tensors are")
    return value if place is None or place.leaf is None else place.leaf
