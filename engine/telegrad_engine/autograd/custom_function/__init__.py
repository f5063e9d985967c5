"""User-defined operations, as in ``torch.autograd.function``.

``apply`` runs the user's forward on tensors of any kind, and adds the outputs to the graph with a node
(:mod:`.function`), which has the values that the user saved for backward (:mod:`.ctx`).
"""

from .ctx import FunctionCtx
from .function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
