"""Functions of ``torch`` that call the method with their name: ``numel(t)``, ``is_floating_point(t)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import InvalidArgument

from .handle import Tensor

NAMES = (
    "detach detach_ get_device imag is_complex is_conj is_distributed is_floating_point is_inference is_neg is_nonzero "
    "is_same_size is_signed numel real"
)


def _function(name: str) -> Callable[..., Any]:
    attribute = getattr(Tensor, name)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Tensor):
            raise InvalidArgument(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        found = getattr(input, name)
        return found(*args, **kwargs) if callable(attribute) else found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = attribute.__doc__
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _function(name) for name in NAMES.split()}
"""The functions by name."""


def is_storage(obj: Any) -> bool:
    """Return False: there are no storages, since the session owns the memory of tensors."""
    return False


def typename(obj: Any) -> str:
    """Return the name of the type of ``obj``; for a tensor, that of its dtype's constructor."""
    if isinstance(obj, Tensor):
        name: str = obj.type()
        return name
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(obj, "__module__", None) or kind.__module__
    name = getattr(obj, "__qualname__", kind.__qualname__)
    return name if module == "builtins" else f"{module}.{name}"
