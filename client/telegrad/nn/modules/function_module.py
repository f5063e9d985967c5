"""Modules whose ``forward`` is one function of ``nn.functional``."""

from __future__ import annotations

from typing import Any, ClassVar

from ...tensor.handle import Tensor
from .. import functional as F
from .module import Module, options


class FunctionModule(Module):
    """Calls a function of ``nn.functional`` with the input and attributes of the module.

    A family whose function takes more inputs overrides ``forward`` with their names, and calls ``_call``.
    """

    _function: ClassVar[str]
    """The function's name."""
    _arguments: ClassVar[tuple[str, ...]] = ()
    """The attributes that follow the inputs, in the function's order."""
    _keywords: ClassVar[tuple[str, ...]] = ()
    """The attributes that are passed by keyword; the function calls them the same."""
    _shown: ClassVar[tuple[str, ...]] = ()
    """The attributes that are printed."""

    def forward(self, input: Tensor) -> Any:
        """The function's result."""
        return self._call(input)

    def _call(self, *inputs: Any) -> Any:
        arguments = [getattr(self, name) for name in self._arguments]
        keywords = {name: getattr(self, name) for name in self._keywords}
        return getattr(F, self._function)(*inputs, *arguments, **keywords)

    def extra_repr(self) -> str:
        return options(self, *self._shown)
