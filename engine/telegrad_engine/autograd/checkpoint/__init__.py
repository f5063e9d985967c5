"""``torch.utils.checkpoint``: backward recomputes the tensors that forward did not save.

Without reentrance (recommended) the graph is recorded as usual, but each tensor that a node would save is replaced by
a number. When backward unpacks the first of them, the function runs again, and the tensors that it saves this time are
returned by the same numbers (:mod:`.frame`). With reentrance the whole call is one Function, whose backward runs the
function again and a backward pass inside it (:mod:`.reentrant`). In a session the function is a section of the
program's instructions (:mod:`telegrad_engine.session.checkpoint_sections`), and both kinds use the first method.
"""

from .call import Call, Checkpointing, checkpoint, checkpoint_sequential, noop_context_fn, set_checkpoint_early_stop
from .reentrant import WHOLE_ONLY

__all__ = ["WHOLE_ONLY", "Call", "Checkpointing"]
__all__ += ["checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]
