"""``telegrad.utils.checkpoint``: the session keeps a function's arguments and recomputes the rest in backward.

The function runs once on the client, like any code. Its instructions are marked as a checkpoint, and backward runs
them again in the session, so recomputing takes no message. The function's Python code does not run twice: the values
that it fetched and the branches that it took stay the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad_engine.autograd.checkpoint import (
    Call,
    Checkpointing,
    noop_context_fn,
    set_checkpoint_early_stop,
)
from telegrad_engine.context import chain, no_grad, observed_by
from telegrad_engine.errors import CheckpointError, NotSupported
from telegrad_engine.instrumentation import Observer

from ..autograd.suspension import mark_whole
from ..exclusions import attribute_of
from ..tape.transform_stack import active, entered
from ..tensor.handle import Tensor, recorder_of, refs
from .selective_checkpoint import (
    CheckpointPolicy,
    SavingPolicy,
    Selection,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)


def _recomputed(call: Call) -> Any:
    """Run the function as a checkpoint of the session."""
    if active.tracer is not None or not all(isinstance(transform, Selection) for transform in chain(active.observer)):
        # Traced code becomes a program of its own, and ops that a transform adds are saved like any others.
        return call.function(*call.args, **call.kwargs)
    policy = call.around_again
    if not isinstance(policy, (NOOP, SavingPolicy)):
        raise NotSupported(
            "checkpoint: the recomputation runs in the session, so context_fn can only be that of "
            "create_selective_checkpoint_contexts"
        )
    tensors = tuple(a for a in (*call.args, *call.kwargs.values()) if isinstance(a, Tensor))
    recorder = recorder_of(tensors)
    options = {"preserve_rng_state": call.preserve, "determinism_check": call.compare, "early_stop": call.early_stop}
    options = {name: False for name, value in options.items() if not value}
    # Named by nesting depth, so that the programs of a loop are equal and the session recognizes them.
    attrs: dict[str, Any] = {"checkpoint": f"c{recorder.open_checkpoints}"}
    selecting: AbstractContextManager[None] = nullcontext()
    if isinstance(policy, SavingPolicy):
        selecting, options["selective"] = entered(Selection(policy, attrs["checkpoint"])), True
    with recorder.lock:  # other threads may not record into the checkpoint
        recorder.emit("checkpoint", [refs(tensors)], (), attrs | options)
        recorder.open_checkpoints += 1
        try:
            with observed_by(_Unversioned()), selecting:
                return call.function(*call.args, **call.kwargs)
        finally:
            recorder.open_checkpoints -= 1
            if not recorder.closed:
                recorder.emit("end_checkpoint", (), (), attrs)
                recorder.free_dead()  # at once instead of with the next program, since this frees their memory


NOOP = type(noop_context_fn()[1])


class _Unversioned(Observer):
    """Turns off version checks of tensors that are not saved, since they may be modified."""

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if node.versions and isinstance(outputs[0], Tensor):
            node.versions = tuple((place, [0], 0) for place, _, _ in node.versions)
        super().node(node, inputs, outputs)


def _reentrant(function: Callable[..., Any], preserve: bool, args: tuple[Any, ...]) -> Any:
    """Checkpoint with torch's limits for reentrant ones: no gradient without an argument that requires grad."""
    if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)
        with no_grad():
            return function(*args)
    result = _OURS.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)
    mark_whole(result if isinstance(result, tuple) else (result,))
    return result


_OURS = Checkpointing(_recomputed, _reentrant)
checkpoint, checkpoint_sequential = _OURS.checkpoint, _OURS.checkpoint_sequential

__getattr__ = attribute_of("utils.checkpoint")

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]
__all__ += ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]
