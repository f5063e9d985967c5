"""User-defined operations, as in ``torch.autograd.function``.

``apply`` runs the user's forward on tensors of any kind (:mod:`.define`), adds the outputs to the graph
(:mod:`.outputs`) and records a node (:mod:`.node`) with the values that the user saved for backward (:mod:`.ctx`).
"""

from .ctx import FunctionCtx
from .define import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
