"""Tensors with and without values: autograd state, views, in-place changes, ops and their fast paths.

:mod:`.base` is what all tensors have in common, :mod:`.eager` the tensor with a value and how an op runs on it.
"""
