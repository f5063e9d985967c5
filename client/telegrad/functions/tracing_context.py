"""The ctx of a traced Function: what forward stores on it, and how backward reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.program.registered_functions import WRITES_TO_INPUT
from telegrad_engine.tensor.abstract import Meta

from .tracing_recorder import Data, Tracer
from .tracing_symbols import Symbol, here
from .tracing_tensors import Traced


class ForwardCtx:
    """The ctx of a traced forward: it collects what the definition needs."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.__dict__["needs_input_grad"] = needs
        self.__dict__["_saved"] = ()
        self.__dict__["_constants"] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors for backward."""
        self.__dict__["_saved"] = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for jvp, which gets the same ones as backward."""
        self.__dict__["_saved"] = self._saved or tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that have no gradient."""
        self.__dict__["_constants"] = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Raise InvalidOperation: traced code may not write to its inputs."""
        raise InvalidOperation(f"{here()}: {WRITES_TO_INPUT}")

    def set_materialize_grads(self, value: bool) -> None:
        """Do nothing: missing gradients are always zeros."""

    _saved: tuple[Any, ...]
    _constants: tuple[Any, ...]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the code set on ctx."""
        return {k: v for k, v in vars(self).items() if k not in ("needs_input_grad", "_saved", "_constants")}


class Left:
    """What forward stored on ctx, for each run of backward."""

    def __init__(
        self, saves: list[str], leaving: list[str], saved: tuple[bool, ...], attributes: Data, kept: Sequence[str]
    ) -> None:
        self.saves = saves
        self.metas: dict[str, Meta] = {}
        count = sum(saved)
        tensors = iter(leaving[:count])
        self.saved = [next(tensors) if there else None for there in saved]
        self.tensors = dict(zip(kept, leaving[count:], strict=True))
        self.attributes = attributes
        self.raw = set(self.tensors.values()) - set(leaving[:count])
        """Tensors that are attributes of ctx and were not saved with ``save_for_backward``."""

    def make(self, tracer: Tracer, given: dict[str, Traced], needs: tuple[bool, ...]) -> Any:
        """Return the ctx of one run."""
        ctx = BackwardCtx()
        ctx.needs_input_grad = needs
        ctx.saved_tensors = tuple([None if name is None else given[name] for name in self.saved])
        for name, tensor in self.tensors.items():
            setattr(ctx, name, given[tensor])
        for name, data in self.attributes.items():
            setattr(ctx, name, _symbols(tracer, data))
        return ctx


class BackwardCtx:
    """The ctx of a traced backward."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Any, ...]


def _symbols(tracer: Tracer, data: Any) -> Any:
    if isinstance(data, Mapping):
        return Symbol(tracer, data)
    return tuple([_symbols(tracer, v) for v in data]) if isinstance(data, list) else data
