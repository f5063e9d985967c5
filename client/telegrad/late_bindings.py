"""Functions of higher packages that the methods of Session and Tensor call.

A package imports only from those below it. So ``telegrad`` itself, which is above all of them, sets the functions when
it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Bindings:
    """The functions by what they do."""

    backward: Callable[..., None]
    """``Tensor.backward`` for several tensors."""
    register_hook: Callable[..., Any]
    register_post_accumulate_grad_hook: Callable[..., Any]
    register_node_hook: Callable[..., Any]
    legacy_tensor: Callable[..., Any]
    """Makes the tensor of a call of ``Tensor`` or ``Tensor.new``."""
    copy_into_fork: Callable[..., Any]
    """Returns the handle of a fork's copy of a tensor."""
    take: Callable[..., Any]
    """Returns a handle of a session's tensor that has a name."""


bindings = Bindings()
