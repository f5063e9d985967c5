"""``tg.compile``: a function of tensors, traced once and then recorded as a whole, as ``torch.compile``.

See docs/compile.md.
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
    """A function or Module that is traced once, and whose calls are then recorded as a whole, without running its code.

    Also a decorator, with or without options. ``fullgraph`` makes an error (InvalidOperation) of what cannot be
    compiled, which otherwise runs as it is; ``disable`` returns ``model`` itself. The other options are torch's and
    change nothing here. ``explain()`` of what is returned says what is compiled.
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


Module._compile = staticmethod(compile)

__all__ = ["CompiledFunction", "OptimizedModule", "compile"]
