"""``telegrad.utils.checkpoint``: the session keeps a function's arguments, and computes the rest again in backward.

The function runs here once, like any code; what it records is marked as a checkpoint, and backward runs these
instructions again where they are, so it takes no message. Nothing of the function's Python runs twice: what it asked
for, and which way it went, stays as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_engine import graph
from telegrad_engine.checkpoint import (
    Call,
    Checkpointing,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from telegrad_engine.errors import NotSupported
from telegrad_engine.modes import no_grad

from ..recorder import Recorder
from ..tensor import Tensor, recorder_of, refs
from ..tracing_recorder import active
from ..whole_passes import mark


def _recomputed(call: Call) -> Any:
    """Run the function as a checkpoint of the session."""
    if active() is not None:
        return call.function(*call.args, **call.kwargs)  # a program of its own, which is data already
    if call.around_again is not None and not isinstance(call.around_again, NOOP):
        raise NotSupported("checkpoint: context_fn is not supported, for the recomputation runs in the session")
    tensors = tuple(a for a in (*call.args, *call.kwargs.values()) if isinstance(a, Tensor))
    recorder = recorder_of(tensors)
    options = {"preserve_rng_state": call.preserve, "determinism_check": call.compare, "early_stop": call.early_stop}
    # Named by how deep it is: a loop's programs are alike, and the session knows them again.
    attrs: dict[str, Any] = {"checkpoint": f"c{recorder.open_checkpoints}"}
    with recorder.lock:  # what other threads record is no part of it
        return _marked(call, recorder, refs(tensors), attrs, options)


def _marked(call: Call, recorder: Recorder, inputs: Any, attrs: dict[str, Any], options: dict[str, bool]) -> Any:
    """What the function returns, its instructions between the two that make a checkpoint of them."""
    recorder.emit("checkpoint", [inputs], (), attrs | {k: False for k, v in options.items() if not v})
    recorder.open_checkpoints += 1
    graph.watch(_unversioned)
    try:
        return call.function(*call.args, **call.kwargs)
    finally:
        graph.unwatch(_unversioned)
        recorder.open_checkpoints -= 1
        if not recorder.closed:
            recorder.emit("end_checkpoint", (), (), attrs)
            recorder.free_dead()  # now, not with the next program: this is for their memory


NOOP = type(noop_context_fn()[1])


def _unversioned(node: graph.Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """What was not saved may be modified: the shadow does not expect it to be at any version."""
    if node.versions and isinstance(outputs[0], Tensor):
        node.versions = tuple((place, [0], 0) for place, _, _ in node.versions)


def _reentrant(function: Callable[..., Any], preserve: bool, args: tuple[Any, ...]) -> Any:
    """As the other kind, within the limits that torch has here: no gradient without an argument that requires grad."""
    if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)
        with no_grad():
            return function(*args)
    result = _OURS.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)
    mark(result if isinstance(result, tuple) else (result,))
    return result


_OURS = Checkpointing(_recomputed, _reentrant)
checkpoint, checkpoint_sequential = _OURS.checkpoint, _OURS.checkpoint_sequential

__all__ = [
    "checkpoint",
    "checkpoint_sequential",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]
