"""Operations of the user's own, as ``torch.autograd.function``.

A call of ``apply`` runs the user's forward on tensors of whatever kind it is given (:mod:`.define`), gives the
outputs their place in the graph (:mod:`.outputs`) and leaves a node there (:mod:`.node`) with what the user
stored for backward (:mod:`.ctx`).
"""

from .ctx import FunctionCtx
from .define import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
