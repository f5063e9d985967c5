"""The backward pass on the shadow graph, which finds out what a pass does without computing values.

It is the engine's own pass (docs/decisions/0003).
"""

from __future__ import annotations

from typing import Any

from telegrad_engine.autograd.custom_function.function import Error
from telegrad_engine.graph.abstract_pass import AbstractPass
from telegrad_engine.graph.backward_pass import Values
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.tensor.gradient_values import GraphValues


class ShadowValues(Values):
    """Gradients of which only the shape and dtype are known: those of their target.

    Tensors get their gradients at the end of the pass, because a pass that raises is not recorded.
    """

    F = None
    raw = True

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.replaced: list[Any] = []

    @property
    def Pass(self) -> type[AbstractPass]:
        """A pass that computes no values."""
        return AbstractPass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.commit()

    def commit(self) -> None:
        """Apply the changes so far: they have happened in the session by the time that the user's code runs."""
        for tensor in self.received:
            tensor._receive_grad()
        for tensor in self.replaced:
            tensor._replace_grad()
        self.received, self.replaced = [], []

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """The gradient that the pass starts with: the root's shape and dtype."""
        return tensor._data

    def add(self, a: Any, b: Any, may_mutate: bool) -> Any:
        return a

    def unbroadcast(self, grad: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return Spec(shape, dtype)

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        if hooks is not None and hooks.retain is not None and grad is not None:
            tensor = hooks.retain()
            if tensor is not None:
                self.replaced.append(tensor)
        return grad

    def has_nan(self, grad: Any) -> bool:
        """False: values are unknown here, and the session checks them."""
        return False

    def wrap(self, grad: Any) -> Any:
        """The gradient as a stand-in without a history."""
        return Meta(grad)

    def from_tensor(self, tensor: Any) -> Any:
        return tensor._data

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Note that the tensor has a gradient now."""
        if isinstance(tensor, Meta):
            Error.backward(None)  # only the gradients of such a function lead to a leaf without a session
        if tensor._requires_grad:
            self.received.append(tensor)


class RecordedGraphValues(GraphValues):
    """Gradients under ``create_graph``: the derivative rules run on stand-ins, so the gradients have a history."""

    def __init__(self) -> None:
        super().__init__(Meta)
        self.received: list[tuple[Any, Meta]] = []

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.commit()
        super().__exit__(*exc)

    def commit(self) -> None:
        """Apply the changes so far."""
        for tensor, grad in self.received:
            if tensor._has_grad:
                known = tensor._grad
                present = tensor._grad_history or Meta(tensor._data) if known is None else Meta._at(known)
                grad = present + grad
            tensor._replace_grad(grad)
        self.received = []

    def from_tensor(self, tensor: Any) -> Any:
        return Meta._at(tensor)

    def seed(self, tensor: Any, gradient: Any) -> Any:
        return Meta(tensor._data) if gradient is None else Meta._at(gradient)

    def has_nan(self, grad: Any) -> bool:
        """False: values are unknown here, and the session checks them."""
        return False

    def run_hooks(self, hooks: Any, grad: Any) -> Any:
        if hooks is not None and hooks.retain is not None and grad is not None:
            tensor = hooks.retain()
            if tensor is not None:
                self.accumulate(tensor, grad, False)
        return grad

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Note a gradient to be added to the tensor's."""
        if tensor._requires_grad:
            self.received.append((tensor, grad))
