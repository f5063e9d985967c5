"""Backward passes that wait for Python code that only the client has: a Function's backward or a hook.

A pass is a loop over a sorted list, so a waiting pass is an object (:mod:`.passes`) that stops, and continues with the
results from the client. The session keeps the waiting passes. The SDK runs the same pass on its shadow graph, so that
it knows where the session stops, and both run in lockstep.
"""

from .derivation import Derivation
from .passes import BACKWARD, HOOK, NODE_HOOK, NODE_PREHOOK, POST_ACCUMULATE, ClientHook, ClientNode, Stop

__all__ = ["BACKWARD", "HOOK", "NODE_HOOK", "NODE_PREHOOK", "POST_ACCUMULATE"]
__all__ += ["ClientHook", "ClientNode", "Derivation", "Stop"]
