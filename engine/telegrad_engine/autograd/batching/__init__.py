"""Batching rules, as in ``torch.vmap``: one call of an op on tensors with a hidden batch dimension replaces a call for
each sample.

Most rules cover a family of ops, which follows from the op's declaration (:mod:`.families`). A rule takes a
:class:`~.batched_call.BatchedCall`, whose batched inputs are :class:`~.batched_call.Lanes`, with the batch as dimension
0. Some ops have a decomposition into other ops instead, which runs on the batched tensors themselves. An op with
neither runs once for each sample (:func:`~.batched_call.looped`).
"""

from . import convolution, decompositions, indexing, linear, sequences
from .batched_call import BatchedCall, Lanes, finished, looped
from .families import decomposition_of, rule_of

__all__ = ["BatchedCall", "Lanes", "decomposition_of", "finished", "looped", "rule_of"]

_RULES = convolution, decompositions, indexing, linear, sequences  # importing these modules registers their rules
