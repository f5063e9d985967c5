"""Recomputing in backward what forward did not keep: ``torch.utils.checkpoint``.

Without reentrance (the kind to use) the graph is recorded as usual, but what its nodes would save is only counted:
each is given a number. When backward unpacks the first of them, the function is run again, and what it saves this
time is handed out by the same numbers (:mod:`.frame`). With reentrance the whole call is one Function, whose backward
runs the function again and a backward pass inside it (:mod:`.reentrant`). In a session the function is a stretch of
its instructions (:mod:`telegrad_engine.session.checkpoint_sections`), and both kinds are the first.
"""

from .call import Call, Checkpointing, checkpoint, checkpoint_sequential, noop_context_fn, set_checkpoint_early_stop
from .reentrant import WHOLE_ONLY

__all__ = [
    "WHOLE_ONLY",
    "Call",
    "Checkpointing",
    "checkpoint",
    "checkpoint_sequential",
    "noop_context_fn",
    "set_checkpoint_early_stop",
]
