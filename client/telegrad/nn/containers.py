"""Modules of modules."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

from telegrad_engine.errors import IndexOutOfRange

from .module import Module


class Sequential(Module):
    """Modules one after the other, given as arguments or as a mapping of names to modules."""

    @overload
    def __init__(self, *modules: Module) -> None: ...
    @overload
    def __init__(self, modules: Mapping[str, Module], /) -> None: ...
    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = len(modules) == 1 and isinstance(modules[0], Mapping)
        for name, module in modules[0].items() if named else enumerate(modules):
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        """The input through every module in turn."""
        for module in self:
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._stages().values())

    def _stages(self) -> dict[str, Module]:
        return self._modules  # type: ignore[return-value]  # a stage is never None

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        if isinstance(index, slice):
            return type(self)(dict(list(self._stages().items())[index]))
        return self._stages()[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for name in list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        # Numbered anew, so that a state dict has no holes.
        self._modules = {str(i): module for i, module in enumerate(self._modules.values())}

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def _name(self, index: int) -> str:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexOutOfRange(f"index {index} is out of range")
        return list(self._modules)[index]
