"""The backward pass on the shadow graph: it computes no values, but finds what a pass would do.

See docs/decisions/0003: the pass is the engine's own.
"""

from __future__ import annotations

from typing import Any

from telegrad_engine.autograd.custom_function import define
from telegrad_engine.graph.abstract_pass import AbstractPass
from telegrad_engine.graph.backward_pass import Values
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.tensor.gradient_values import GraphValues


class ShadowValues(Values):
    """The shadow's gradients: only that there is one, of the target's shape and dtype.

    Which tensors got one is noted at the end: a pass that raises is not recorded, so none of it happens.
    """

    F = None
    raw = True

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.replaced: list[Any] = []

    @property
    def Pass(self) -> type[AbstractPass]:
        """A pass that evaluates nothing."""
        return AbstractPass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.commit()

    def commit(self) -> None:
        """Note what happened so far: before the user's code runs, it has happened in the session."""
        for tensor in self.received:
            tensor._receive_grad()
        for tensor in self.replaced:
            tensor._replace_grad()
        self.received, self.replaced = [], []

    def seed(self, tensor: Any, gradient: Any) -> Any:
        """What the pass starts with: the root's own shape and dtype."""
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
            define.Error.backward(None)  # the only leaves without a session stand behind such a function's gradients
        if tensor._requires_grad:
            self.received.append(tensor)


class RecordedGraphValues(GraphValues):
    """The shadow under create_graph: the rules run on stand-ins, so the gradients' own history is known."""

    def __init__(self) -> None:
        super().__init__(Meta)
        self.received: list[tuple[Any, Meta]] = []

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.commit()
        super().__exit__(*exc)

    def commit(self) -> None:
        """Note what happened so far."""
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
        """Note that the tensor has a new gradient: the sum of the present one and this."""
        if tensor._requires_grad:
            self.received.append((tensor, grad))
