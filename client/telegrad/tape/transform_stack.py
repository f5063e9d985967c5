"""The transforms that are active in this thread, such as ``vmap``: observers of the ops that the SDK records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad_engine.context import chain, observers
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.instrumentation import Observer
from telegrad_engine.schema.op import Op

from ..aten import in_place_name

EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class _Active(threading.local):
    observer: Observer | None = None
    """The innermost transform: an observer of the SDK's tensors, not of those of a session in this process."""
    argument: Any = None
    """Within a function that ``telegrad.func`` differentiates, its first argument: it captured all older tensors."""
    tracer: Any = None
    """Within a function that is being traced, the tracer that writes its ops to a program (functions/), or None."""


active = _Active()


@contextmanager
def entered(transform: Observer) -> Iterator[None]:
    """Within the block, make this transform the innermost one."""
    before, outer = active.observer, transform.outer
    active.observer, transform.outer = transform, before
    observers.append(transform)
    try:
        yield
    finally:
        active.observer, transform.outer = before, outer
        observers.remove(transform)


@contextmanager
def below(transform: Observer) -> Iterator[None]:
    """Within the block, activate only the transforms around this one."""
    before = active.observer
    if transform in chain(before):
        active.observer = transform.outer
    try:
        yield
    finally:
        active.observer = before


def levels() -> tuple[Any, ...]:
    """Return the active levels of ``vmap``, from the outermost to the innermost."""
    return tuple([transform for transform in chain(active.observer) if transform.batches])[::-1]


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
