"""Compiled modules: a Module around another one, whose forward is compiled."""

from __future__ import annotations

from typing import Any

from ..nn.modules.module import Module
from .function import CompiledFunction


class OptimizedModule(Module):
    """A Module that calls another, ``_orig_mod``, compiled; else its attributes are that one's, as in torch."""

    def __init__(self, module: Module, fullgraph: bool = False) -> None:
        super().__init__()
        self._orig_mod = module
        self.training = module.training
        self._call = CompiledFunction(module.__call__, fullgraph)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, hooks and all."""
        return self._call(*args, **kwargs)

    def explain(self) -> str:
        """What is compiled and what is not, and why, a line each."""
        return self._call.explain()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)
