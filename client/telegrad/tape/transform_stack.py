"""The transforms that are active in this thread, such as ``vmap``: they see each op before it is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from telegrad_engine.schema.op import Op


class Transform:
    """One active transform, which stands between ops and their recording."""

    def concerns(self, op: Op, inputs: tuple[Any, ...]) -> bool:
        """Whether an op on these inputs is this transform's to apply."""
        raise NotImplementedError

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """The op's result."""
        raise NotImplementedError

    def apply_inplace(self, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Change ``tensor``, the first of the inputs, by the op's in-place form."""
        raise NotImplementedError

    def grad(self, grad: Any, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` of what is this transform's; NotImplemented if none of it is."""
        return NotImplemented

    def enter_function(self, enter: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        """What a Function's forward returned, entered into the graph; NotImplemented if no argument is this one's."""
        return NotImplemented

    def of(self, tensor: Any) -> Any:
        """The tangent that the transform gives a tensor, or None."""
        return None

    def apply_registered(self, name: str, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """What ``call`` of a registered function gives; NotImplemented if no argument is this one's."""
        return NotImplemented

    def apply_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``function.apply(…)`` of a Function; NotImplemented if no argument is this one's."""
        return NotImplemented


class _Active(threading.local):
    stack: tuple[Transform, ...] = ()
    """From the outermost to the innermost."""


active = _Active()
in_any_thread: list[Transform] = []
"""The transforms that are active in any thread: where there are none, a thread need not look for its own."""


@contextmanager
def entered(transform: Transform) -> Iterator[None]:
    """Within, this transform is the innermost."""
    before = active.stack
    active.stack = (*before, transform)
    in_any_thread.append(transform)
    try:
        yield
    finally:
        active.stack = before
        in_any_thread.remove(transform)


@contextmanager
def below(transform: Transform) -> Iterator[None]:
    """Within, only the transforms around this one are active."""
    before = active.stack
    active.stack = before[: before.index(transform)] if transform in before else before
    try:
        yield
    finally:
        active.stack = before


def concerned(op: Op, inputs: tuple[Any, ...]) -> Transform | None:
    """The innermost transform that an op on these inputs is for."""
    for transform in reversed(active.stack):
        if transform.concerns(op, inputs):
            return transform
    return None


def tangent_of(tensor: Any) -> Any:
    """The tangent of a tensor at present, or None."""
    return next((t for t in (transform.of(tensor) for transform in active.stack) if t is not None), None)
