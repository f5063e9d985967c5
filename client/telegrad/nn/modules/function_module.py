"""Modules whose ``forward`` is one function of ``nn.functional``."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar

from ...tensor.handle import Tensor
from .. import functional as F
from .module import Module, options


class DeclaredModule(Module):
    """A module whose subclasses set class attributes in the class statement: ``class Conv1d(_Conv, dims=1)``."""

    def __init_subclass__(cls, function: str | None = None, dims: Any = None, mode: str | None = None) -> None:
        super().__init_subclass__()
        for name, value in (("_function", function), ("dims", dims), ("mode", mode)):
            if value is not None:
                setattr(cls, name, value)


class FunctionModule(DeclaredModule):
    """Calls a function of ``nn.functional`` with the input and attributes of the module.

    A subclass whose function takes more inputs overrides ``forward`` with their names and calls ``_call``.
    """

    _function: ClassVar[str]
    """The function's name, the keyword ``function`` of the class statement."""
    _arguments: ClassVar[tuple[str, ...]] = ()
    """The attributes that are passed after the inputs, in order."""
    _keywords: ClassVar[tuple[str, ...]] = ()
    """The attributes that are passed as keyword arguments of the same name."""
    _shown: ClassVar[tuple[str, ...]] = ()
    """The attributes that ``extra_repr`` shows."""

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__(**declared)
        if "forward" not in vars(cls):
            cls.forward = _named(cls.forward, f"{cls.__qualname__}.forward")  # type: ignore[method-assign]

    def forward(self, input: Tensor) -> Any:
        """Return the function's result."""
        return self._call(input)

    def _call(self, *inputs: Any) -> Any:
        arguments = [getattr(self, name) for name in self._arguments]
        keywords = {name: getattr(self, name) for name in self._keywords}
        return getattr(F, self._function)(*inputs, *arguments, **keywords)

    def extra_repr(self) -> str:
        return options(self, *self._shown)


def _named(function: Any, name: str) -> Any:
    """Return a copy of the function with another qualified name, which Python's argument errors show."""
    same = FunctionType(function.__code__.replace(co_qualname=name), function.__globals__, closure=function.__closure__)
    same.__defaults__, same.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    same.__qualname__, same.__doc__, same.__annotations__ = name, function.__doc__, function.__annotations__
    return same
