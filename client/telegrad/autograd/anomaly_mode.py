"""Anomaly mode: the session finds the node that fails in a pass, and the client knows which line recorded it.

While the mode is on, nodes of the client graph keep the stack that recorded them, and the client waits for each pass.
The session reports a failed node by its position in the pass, and the client graph's node at that position has the
stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad_engine.autograd.anomaly import (
    POSITION,
    Anomaly,
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
    warn,
)
from telegrad_engine.errors import TelegradError
from telegrad_engine.graph.node import walk

from ..tape.recorder import Recorder
from ..tensor.handle import Tensor


def attributes(anomaly: Anomaly) -> dict[str, Any]:
    """The anomaly mode's attributes of an instruction that starts a pass."""
    return {"detect_anomaly": True} if anomaly.check_nan else {"detect_anomaly": True, "check_nan": False}


@contextmanager
def explained(recorder: Recorder, roots: Sequence[Tensor]) -> Iterator[None]:
    """Wait for the pass recorded in the block, and if a node failed, warn with the stack that recorded it."""
    nodes = list(walk(*[root.grad_fn for root in roots if root.grad_fn is not None]))
    leaves = {target.leaf for node in nodes for target in node.next_edges if target is not None}
    without = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf._has_grad]
    try:
        yield
        recorder.flush()
    except TelegradError as error:
        position = error.context.get(POSITION)
        if isinstance(position, int) and position < len(nodes):
            warn(nodes[position])
        for leaf in without:
            leaf.grad = None  # the client's pass ran further than the session's
        raise


__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]
