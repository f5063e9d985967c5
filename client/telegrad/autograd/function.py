"""``telegrad.autograd.function``: operations of the user's own, evaluated here with any Python inside.

Forward runs on the session's tensors, whose ops are recorded outside the graph. The results then get a node in the
session's graph that only says who evaluates it, and one in the shadow that holds the ctx; a backward that comes to
it waits for the user's code (stops.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_engine.function import Function as EngineFunction
from telegrad_engine.function import FunctionCtx, once
from telegrad_engine.function.outputs import Outputs
from telegrad_engine.suspension import ClientNode

from ..ops import register_function
from ..tensor import Tensor, recorder_of, refs


class RecordedOutputs(Outputs):
    """The results of a forward, entered into the shadow and, by one instruction, into the session's graph."""

    node_class = ClientNode

    def save(self) -> None:
        """Enter them into the session's graph, and save what forward asked for."""
        if isinstance(self.node, ClientNode):
            self._record(self.node)
        super().save()

    def _record(self, node: ClientNode) -> None:
        inputs = tuple([x for x in self.args if isinstance(x, Tensor)])
        results = tuple([r if isinstance(r, Tensor) else None for r in self.outputs])
        recorder = recorder_of((*inputs, *results))
        name = recorder.new_id()
        attrs: dict[str, Any] = {"function": self.ctx._op.key, "ctx": name}
        dirty = _slots(self.outputs, self.dirty & self.inputs)
        constant = _slots(self.results, self.constant)
        attrs |= {"dirty": dirty} if dirty else {}
        attrs |= {"non_differentiable": constant} if constant else {}
        attrs |= {} if self.ctx.materialize_grads else {"materialize_grads": False}
        recorder.emit("client_function", [refs(inputs), refs(results)], (), attrs)
        node.client_id = name
        recorder.stops[name] = node


def _slots(results: tuple[Any, ...], which: set[int]) -> tuple[int, ...]:
    return tuple([slot for slot, result in enumerate(results) if id(result) in which])


class Function(EngineFunction):
    """An operation with a derivative of its own, as ``torch.autograd.Function``: subclass it, and call ``apply``.

    Static methods of the subclass: ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``; and ``backward(ctx, *grads)``, which returns a gradient or None for each
    of forward's arguments. Each is plain Python on tensors of the session. A ``backward`` or ``grad`` that comes to
    such an operation takes a round trip to the session for it.
    """

    _outputs_cls = RecordedOutputs


class Error(once.Error, Function):
    """Stands behind gradients that cannot be differentiated again."""


Error._backward_cls.__name__ = "Error"  # torch's name for this node


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that is not recorded; differentiating what it returned raises InvalidOperation."""
    return once.once_differentiable(backward, Error)


__all__ = ["Function", "FunctionCtx", "once_differentiable", "register_function"]
