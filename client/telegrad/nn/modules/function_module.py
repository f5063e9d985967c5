"""Modules whose ``forward`` is one function of ``nn.functional``."""

from __future__ import annotations

from types import FunctionType
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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" not in vars(cls):
            cls.forward = _named(cls.forward, f"{cls.__qualname__}.forward")  # type: ignore[method-assign]

    def forward(self, input: Tensor) -> Any:
        """The function's result."""
        return self._call(input)

    def _call(self, *inputs: Any) -> Any:
        arguments = [getattr(self, name) for name in self._arguments]
        keywords = {name: getattr(self, name) for name in self._keywords}
        return getattr(F, self._function)(*inputs, *arguments, **keywords)

    def extra_repr(self) -> str:
        return options(self, *self._shown)


def _named(function: Any, name: str) -> Any:
    """The same function under another name, which Python's errors about its arguments say."""
    same = FunctionType(function.__code__.replace(co_qualname=name), function.__globals__, closure=function.__closure__)
    same.__defaults__, same.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    same.__qualname__, same.__doc__, same.__annotations__ = name, function.__doc__, function.__annotations__
    return same
