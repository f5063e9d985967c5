"""The autograd graph: nodes, hooks, and the passes over it.

:mod:`.node` defines the graph and :mod:`.backward_pass` the backward pass; the other passes specialize it.
:mod:`.data` describes graphs as data, and makes nodes of such descriptions.
"""
