"""The function that this thread is tracing or differentiating, and the levels of ``vmap`` around it."""

from __future__ import annotations

import threading
from typing import Any

from telegrad_engine.context import chain, state
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.schema.op import Op

from ..aten import in_place_name

EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
"""The end of the errors for a Function that a transform cannot use."""


class _Active(threading.local):
    argument: Any = None
    """Within a function that ``telegrad.func`` differentiates, its first argument: it captured all older tensors."""
    tracer: Any = None
    """Within a function that is being traced, the tracer that writes its ops to a program, or None."""


active = _Active()


def levels() -> tuple[Any, ...]:
    """Return the active levels of ``vmap`` of this thread, from the outermost to the innermost."""
    return tuple([observer for observer in chain(state.observer) if observer.batches])[::-1]


def refuse_captured(tensor: Any, op: Op, inputs: tuple[Any, ...]) -> None:
    """Raise if ``op`` would change a tensor in place that the function being differentiated captured."""
    own = active.argument
    if tensor._recorder is own._recorder and _age(tensor._memory_id) < _age(own._id):
        raise InvalidOperation(
            "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation "
            f"({in_place_name(op, inputs)}) that would mutate a captured Tensor. This is not supported; please rewrite "
            "the function being transformed to explicitly accept the mutated Tensor(s) as inputs."
        )


def _age(name: str) -> tuple[int, str]:
    """A key that sorts the ids of one recorder, which are numbered, in the order in which they were made."""
    return len(name), name
