"""The autograd graph: nodes, hooks, and the passes over it.

:mod:`.node` is the graph itself and :mod:`.backward_pass` the pass; the other passes are strategies of that one.
"""
