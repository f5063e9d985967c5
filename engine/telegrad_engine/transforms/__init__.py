"""Transforms of the ops of a thread: each changes what a call of an op, a Function or a backward pass does.

tangents.py            forward mode: tangents, and how operations push them
forward_ad.py          the functions of ``torch.autograd.forward_ad``
vmap.py                tensors with a hidden batch dimension, and ops on them by batching rules
batched_gradients.py   many gradients of one graph in one pass: a ``vmap`` of the pass
saved_tensor_hooks.py  packed tensors in place of those that nodes save

A transform is an observer of its thread (:mod:`telegrad_engine.instrumentation`); the SDK's transforms are observers of
the calls that the SDK records.
"""
