"""Batching rules, as in ``torch.vmap``: one call of an op on tensors with a hidden batch dimension replaces a call for
each sample.

An op's declaration names its rule, unless the rule follows from other declared facts (:mod:`.rules`). A rule takes a
:class:`~.rules.BatchedCall`, whose batched inputs are :class:`~.rules.BatchedValue`: the batch is their
dimension 0. Some ops have a decomposition into other ops instead, which runs on the batched tensors themselves. An op
with neither runs once for each sample (:func:`~.rules.looped`).
"""
