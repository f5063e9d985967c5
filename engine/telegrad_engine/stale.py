"""What a node saved and is good no more: it was freed, or modified in place since. The errors that say so."""

from __future__ import annotations

import re
from typing import Any

from .dtypes import from_numpy
from .errors import VersionConflict
from .graph import FREED, Node
from .modes import state

FREED_TEXT = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they "
    "have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)

HINT = (
    "enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
HINT_WATCHED = (
    "the backtrace further above shows the operation that failed to compute its gradient. The variable in "
    "question was changed in there or anywhere later. Good luck!"
)


def free(node: Node) -> None:
    """Drop what the node saved; a second backward through it is an error, unless it saved no tensor."""
    node.saved = FREED
    node.versions = ()


def modified_since(node: Node) -> VersionConflict:
    """The error for the first of a node's saved tensors that was modified since."""
    position, cell, version = next(entry for entry in node.versions if entry[1][0] != entry[2])
    source, key = node.plan.saves[position]
    data = node.saved[position]
    data = data[0] if isinstance(data, list) else data
    origin = node if source == "output" else node.next[key] if key < len(node.next) else None
    return modified(data, origin, 0, cell[0], version)


def modified(data: Any, origin: Any, slot: int, version: int, expected: int) -> VersionConflict:
    """The error for a saved tensor, output ``slot`` of ``origin``, that was modified; torch raises it on unpacking."""
    what = f"torch.{from_numpy(data.dtype).kernel_name}Tensor {list(data.shape)}"
    which = "" if origin is None or origin.is_sink else f", which is output {slot} of {kind(origin)},"
    return VersionConflict(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{what}]{which} is at version {version}; expected version {expected} instead. Hint: "
        + (HINT_WATCHED if state.anomaly is not None else HINT)
    )


def kind(node: Node) -> str:
    """A node's name as some of torch's texts have it: ``Sigmoid`` for ``SigmoidBackward0``."""
    return re.sub(r"Backward\d*$", "", node.name())
