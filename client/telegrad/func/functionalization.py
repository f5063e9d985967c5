"""``functionalize``, which has nothing to rewrite here, and ``debug_unwrap``, which shows what a batch holds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import InvalidArgument, InvalidOperation

from ..tensor.handle import Tensor
from ..transforms.batched_tensor import Batched


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that does what ``func`` does.

    In torch, too, functionalizing changes no result: it rewrites in-place ops for tracers, and Telegrad traces nothing.
    Raises RuntimeError for an unknown ``remove``.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise InvalidOperation(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced "
            "with their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be "
            "replaced with their non-aliasing counterparts, {view}_copy.\n"
        )
    return functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs))


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The whole batch of a tensor inside ``vmap``: of all levels or, without ``recurse``, of its own level.

    It is meant for debugging: a result must not depend on it.
    """
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"debug_unwrap(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    while isinstance(tensor, Batched):
        tensor = tensor.batch
        if not recurse:
            break
    return tensor
