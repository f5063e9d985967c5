"""The transforms that are active in this thread, such as ``vmap``: they see each op before it is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.schema.op import Op

from ..aten import in_place_name

EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class Transform:
    """An active transform, which handles ops before they are recorded."""

    batches = False
    """Whether it is a ``vmap``."""

    def concerns(self, op: Op, inputs: tuple[Any, ...]) -> bool:
        """Whether this transform applies an op on these inputs."""
        raise NotImplementedError

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply the op and return its result."""
        raise NotImplementedError

    def apply_inplace(self, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Change ``tensor``, the first of the inputs, by the op's in-place form."""
        raise NotImplementedError

    def grad(self, grad: Any, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """Return ``autograd.grad`` of this transform's tensors, or NotImplemented if it has none of them."""
        return NotImplemented

    def enter_function(self, enter: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        """Add a Function's outputs to the graph and return them; NotImplemented if no argument is this transform's."""
        return NotImplemented

    def of(self, tensor: Any) -> Any:
        """The tangent that the transform gives a tensor, or None."""
        return None

    def apply_registered(self, name: str, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Apply ``call``, of a registered function; return NotImplemented if no argument is this transform's."""
        return NotImplemented

    def apply_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return ``function.apply(…)`` of a Function, or NotImplemented if no argument is this transform's."""
        return NotImplemented


class _Active(threading.local):
    stack: tuple[Transform, ...] = ()
    """The active transforms, from the outermost to the innermost."""
    argument: Any = None
    """Within a function that ``telegrad.func`` differentiates, its first argument: it captured all older tensors."""
    tracer: Any = None
    """Within a function that is being traced, the tracer that writes its ops to a program (functions/), or None."""


active = _Active()
in_any_thread: list[Transform] = []
"""The transforms that are active in any thread: if there are none, a thread need not look for its own."""


@contextmanager
def entered(transform: Transform) -> Iterator[None]:
    """Within the block, make this transform the innermost one."""
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
    """Within the block, activate only the transforms around this one."""
    before = active.stack
    active.stack = before[: before.index(transform)] if transform in before else before
    try:
        yield
    finally:
        active.stack = before


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


def concerned(op: Op, inputs: tuple[Any, ...]) -> Transform | None:
    """The innermost transform that applies an op on these inputs, or None."""
    for transform in reversed(active.stack):
        if transform.concerns(op, inputs):
            return transform
    return None


def tangent_of(tensor: Any) -> Any:
    """The current tangent of a tensor, or None."""
    return next((t for t in (transform.of(tensor) for transform in active.stack) if t is not None), None)
