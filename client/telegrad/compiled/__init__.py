"""``tg.compile``, like ``torch.compile``: traces a function of tensors once and then records it as a whole.

See docs/how-to/compile.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..nn.modules.module import Module
from .function import CompiledFunction, OptimizedModule


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or Module: trace it once, then record its calls as a whole, without running its code.

    Also works as a decorator, with or without options. A call that cannot be compiled runs uncompiled, or with
    ``fullgraph`` raises InvalidOperation; ``disable`` returns ``model`` itself. The other options (``dynamic``,
    ``backend``, ``mode`` and ``options``) are torch's and have no effect. The ``explain()`` method of the result says
    what is compiled.

    Examples:
        >>> @tg.compile
        ... def f(x):
        ...     return (x * x).sum()
        >>> [f(tg.tensor([1.0, 2.0])).item() for _ in range(3)]
        [5.0, 5.0, 5.0]
    """
    if model is None:
        return lambda found: compile(found, fullgraph=fullgraph, disable=disable)
    if disable:
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, fullgraph)
    if not callable(model):
        raise TypeError(f"compile takes a function or a Module, not {type(model).__name__}")
    return CompiledFunction(model, fullgraph)


__all__ = ["CompiledFunction", "OptimizedModule", "compile"]
