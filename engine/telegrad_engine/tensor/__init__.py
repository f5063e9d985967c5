"""Tensors with and without values: autograd state, views, in-place changes, ops and their fast paths.

:mod:`.base` has the class that all tensors share; :mod:`.eager` has the tensor with a value and runs ops on it.
"""
