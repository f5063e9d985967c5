"""Backward passes that wait where what comes next is Python that only the client has: a Function's backward, a hook.

A pass is a loop over a sorted list, so one that waits is just an object (:mod:`.passes`): it stops, and goes on when
it is given what the client computed. A session keeps those that wait. The SDK runs the same pass
on its shadow graph, so it knows where the session will stop, and both go in lock step.
"""

from .derivation import Derivation
from .passes import BACKWARD, HOOK, NODE_HOOK, NODE_PREHOOK, POST_ACCUMULATE, ClientHook, ClientNode, Stop

__all__ = [
    "BACKWARD",
    "HOOK",
    "NODE_HOOK",
    "NODE_PREHOOK",
    "POST_ACCUMULATE",
    "ClientHook",
    "ClientNode",
    "Derivation",
    "Stop",
]
