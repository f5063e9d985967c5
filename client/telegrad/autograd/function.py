"""``telegrad.autograd.function``: user-defined operations, which run on the client and may contain any Python.

Forward runs on the session's tensors, and its ops are recorded outside the graph. The results then get a node in the
session's graph, which only names the client's operation, and one in the client graph, which holds the ctx. A backward
that reaches the node waits for the user's code (client_evaluation.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_engine.autograd.client_evaluation import ClientNode
from telegrad_engine.autograd.custom_function import FunctionCtx
from telegrad_engine.autograd.custom_function import function as engine_function
from telegrad_engine.autograd.custom_function.function import Outputs
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.transforms.vmap import levels

from ..ops import register_function
from ..tape.dispatch import EXTENDING, active
from ..tensor.handle import Tensor, recorder_of, refs


class RecordedOutputs(Outputs):
    """The results of a forward, added to the client graph and, by one instruction, to the session's graph."""

    node_class = ClientNode

    def save(self) -> None:
        """Add the results to the session's graph, and save what forward asked for."""
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
        recorder.python_hooks[name] = node


def _slots(results: tuple[Any, ...], which: set[int]) -> tuple[int, ...]:
    return tuple([slot for slot, result in enumerate(results) if id(result) in which])


class Function(engine_function.Function):
    """An operation with its own derivative, as ``torch.autograd.Function``: subclass it, and call ``apply``.

    Static methods of the subclass: ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``; and ``backward(ctx, *grads)``, which returns a gradient or None for each
    of forward's arguments. Each is plain Python on tensors of the session.

    Examples:
        >>> class Square(tg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = tg.tensor([3.0], requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor([6.])
    """

    _outputs_cls = RecordedOutputs
    generate_vmap_rule = False
    """Whether ``vmap`` may apply the Function to one sample after another."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        """Return the outputs for arguments with a batch at ``in_dims``, and the batch dimension of each output.

        ``info`` has ``batch_size`` and ``randomness``. Override it to support ``tg.vmap``, or set
        ``generate_vmap_rule``.
        """
        raise NotImplementedError("To use autograd.Function with vmap, you must override the vmap staticmethod")

    @classmethod
    def _has_vmap(cls) -> bool:
        return cls.vmap is not Function.vmap

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it as one node if gradients are recorded and an argument requires grad.

        Only tensors that are arguments themselves are differentiated, not those in lists. Raises InplaceOnLeaf or
        InvalidOperation if ``ctx.mark_dirty`` was used wrongly, and whatever forward raises.
        """
        around = levels()
        if (around or active.argument is not None) and cls.setup_context is Function.setup_context:
            raise InvalidOperation(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                f"must override the setup_context staticmethod. {EXTENDING}"
            )
        for level in reversed(around):
            if level.owns_any((*args, *kwargs.values())):
                return level.apply_function(cls, args, kwargs)
        return super().apply(*args, **kwargs)


class Error(engine_function.Error, Function):
    """The node of gradients that cannot be differentiated again."""


Error._backward_cls.__name__ = "Error"  # torch's name for this node


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that is not recorded; differentiating its results raises InvalidOperation."""
    return engine_function.once_differentiable(backward, Error)


__all__ = ["Function", "FunctionCtx", "once_differentiable", "register_function"]
