"""Hooks on a session's tensors and nodes: Python that runs on the client while the session's pass waits."""

from __future__ import annotations

import weakref
from typing import Any

from telegrad_engine.autograd.suspension import HOOK, NODE_PREHOOK, POST_ACCUMULATE
from telegrad_engine.graph.hooks import Handle, NodeHooks
from telegrad_engine.tensor.base import Tracked

from ..tape.recorder import Recorder
from ..tensor.handle import Tensor
from .backward_callbacks import PythonHooks


class RemovableHandle(Handle):
    """The handle of a registered hook; ``remove()`` removes the hook."""

    def __init__(self, own: PythonHooks, function: Any, place: Handle, recorder: Recorder) -> None:
        super().__init__(own.functions, max(own.functions, default=-1) + 1)
        own.functions.add(function)
        self._own, self._place, self._recorder = own, place, recorder

    def remove(self) -> None:
        """Remove the hook; a second call does nothing. After the last hook, passes no longer stop here."""
        super().remove()
        if len(self._own.functions) == 0:
            self._place.remove()
            if self._recorder.stops.pop(self._own.client_id, None) is not None and not self._recorder.closed:
                self._recorder.emit("remove_client_hook", (), (), {"hook": self._own.client_id})


def register(tensor: Tensor, function: Any) -> Handle:
    """Call ``function(grad)`` when the gradient of ``tensor`` is computed; its result replaces the gradient."""
    hooks = PythonHooks(tensor._recorder, HOOK)
    return add(tensor, function, hooks, Tracked.register_hook(tensor, hooks), "client_hook", {})


def register_post_accumulate(leaf: Tensor, function: Any) -> Handle:
    """Call ``function(leaf)`` each time the leaf's gradient has been accumulated."""
    hooks = PythonHooks(leaf._recorder, POST_ACCUMULATE)
    place = Tracked.register_post_accumulate_grad_hook(leaf, hooks)
    return add(leaf, function, hooks, place, "client_hook", {"post_accumulate": True})


def register_on_node(tensor: Tensor, hooks: NodeHooks, path: tuple[int, ...], function: Any, kind: str) -> Handle:
    """Call ``function`` before or after the derivatives of the node at the end of a path of edges from ``tensor``."""
    own = PythonHooks(tensor._recorder, kind)
    before = kind == NODE_PREHOOK
    place = hooks.add_before(own) if before else hooks.add_after(own)
    attrs: dict[str, Any] = {"path": path} if path else {}
    return add(tensor, function, own, place, "client_node_hook", attrs | ({"before": True} if before else {}))


def add(tensor: Tensor, function: Any, own: PythonHooks, place: Handle, verb: str, attrs: dict[str, Any]) -> Handle:
    """Add ``function`` to the existing hooks of this kind, or to ``own``, which was just added at ``place``.

    The instruction ``verb``, with the tensor and these attributes, registers new hooks in the session.
    """
    recorder = tensor._recorder
    key, first = next((key, hooks) for key, hooks in place.hooks.items() if isinstance(hooks, PythonHooks))
    if first is not own:
        place.remove()
        return RemovableHandle(first, function, Handle(place.hooks, key), recorder)
    own.leaf = weakref.ref(tensor)
    recorder.stops[own.client_id] = own
    recorder.emit(verb, [tensor._id], (), {"hook": own.client_id, **attrs})
    return RemovableHandle(own, function, place, recorder)
