"""Containers of modules and of parameters: in order, or by name."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn, Self, overload

from telegrad_engine.errors import IndexOutOfRange, InvalidChoice, InvalidOperation, InvalidValue

from ...tensor.handle import Tensor
from ..parameter import Parameter
from .module import Module


class Container(Module):
    """A module with submodules given as keyword arguments; deprecated in torch.

    Examples:
        >>> tg.nn.Container(first=tg.nn.Linear(2, 2)).first
        Linear(in_features=2, out_features=2, bias=True)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _place(index: int, size: int) -> int:
    """Return the nonnegative form of an index. Raises IndexError if it is out of range."""
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexOutOfRange(f"index {index} is out of range")
    return index % size


class _ModuleContainer(Module):
    """Base class of lists of modules. Modules are renumbered on removal, so state dict names have no gaps."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._stages().values())

    def _stages(self) -> dict[str, Module]:
        return self._modules  # type: ignore[return-value]  # a stage is never None

    def _chosen(self, index: slice) -> Self:
        """Return a container of the same kind with some of the modules."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        return self._chosen(index) if isinstance(index, slice) else self._stages()[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for name in list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        self._number(list(self))

    def _number(self, modules: list[Module]) -> None:
        self._modules.clear()
        self._modules.update((str(i), module) for i, module in enumerate(modules))

    def _name(self, index: int) -> str:
        return list(self._modules)[_place(index, len(self))]

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend should be called with an iterable, but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Module:
        """Remove a module, or a slice of them, and return it."""
        found = self[key]
        del self[key]
        return found


class Sequential(_ModuleContainer):
    """A chain of modules, given as arguments or as a mapping of names to modules.

    ``forward`` passes the input through all of them. Raises TypeError for what is not a module.

    Examples:
        >>> model = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.ReLU(), tg.nn.Linear(8, 2))
        >>> model(tg.ones(3, 4)).shape
        telegrad.Size([3, 2])
        >>> model[1]
        ReLU()
    """

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
        """Pass the input through every module in order."""
        for module in self:
            input = module(input)
        return input

    def _chosen(self, index: slice) -> Self:
        return type(self)(dict(list(self._stages().items())[index]))

    def insert(self, index: int, module: Module) -> Self:
        """Insert a module before ``index``."""
        if not isinstance(module, Module):
            raise InvalidChoice(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexOutOfRange(f"Index out of range: {index}")
        stages = list(self)
        stages.insert(index, module)
        self._number(stages)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise InvalidValue(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Self:
        if not isinstance(other, Sequential):
            raise InvalidValue(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise InvalidValue(f"Non-positive multiplication factor {other} for {type(self)}")
        return Sequential(*list(self) * other)

    __rmul__ = __mul__


class ModuleList(_ModuleContainer):
    """A list of modules that registers them as submodules; it has no ``forward``.

    Raises TypeError for an element that is not a module.

    Examples:
        >>> layers = tg.nn.ModuleList([tg.nn.Linear(4, 4) for _ in range(3)])
        >>> len(layers), len(list(layers.parameters()))
        (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _chosen(self, index: slice) -> Self:
        return type(self)(list(self)[index])

    def insert(self, index: int, module: Module) -> None:
        """Insert a module before ``index``."""
        stages = list(self)
        stages.insert(index, module)
        self._number(stages)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)

    def __repr__(self) -> str:
        """Show consecutive modules with the same ``repr`` once, with their count."""
        runs: list[tuple[int, int, str]] = []
        for place, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], place, text)
            else:
                runs.append((place, place, text))
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        shown = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        return f"{type(self).__name__}({shown}\n)" if lines else f"{type(self).__name__}()"


class ModuleDict(Module):
    """A dict of modules that registers them as submodules; it has no ``forward``.

    Raises TypeError for a value that is not a module, KeyError for a name that a module cannot have.

    Examples:
        >>> layers = tg.nn.ModuleDict({"first": tg.nn.Linear(4, 2), "act": tg.nn.ReLU()})
        >>> layers["act"]
        ReLU()
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _named(self) -> dict[str, Module]:
        return self._modules  # type: ignore[return-value]  # no value is None

    def __getitem__(self, key: str) -> Module:
        return self._named()[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove a module and return it."""
        return self._named().pop(key)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._named().keys()

    def items(self) -> ItemsView[str, Module]:
        """Return the names and modules."""
        return self._named().items()

    def values(self) -> ValuesView[Module]:
        """Return the modules."""
        return self._named().values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules from a mapping or from pairs, replacing those with the same names."""
        for name, module in pairs(modules, "ModuleDict.update", "ModuleDict"):
            self[name] = module


def pairs(found: Any, function: str, owner: str) -> list[tuple[Any, Any]]:
    """Return the pairs of a mapping or an iterable, in order. Raises TypeError or ValueError for anything else."""
    if not isinstance(found, Iterable):
        raise TypeError(
            f"{function} should be called with an iterable of key/value pairs, but got {type(found).__name__}"
        )
    if hasattr(found, "items"):
        return list(found.items())
    result = []
    for place, pair in enumerate(found):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{owner} update sequence element #{place} should be Iterable; is{type(pair).__name__}")
        both = list(pair)
        if len(both) != 2:
            raise InvalidValue(f"{owner} update sequence element #{place} has length {len(both)}; 2 is required")
        result.append((both[0], both[1]))
    return result


class _Holder(Module):
    """Named values that are stored as attributes, which registers the parameters among them."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidOperation(f"{type(self).__name__} should not be called.")

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, name, value)
        self._names[name] = None

    def _describe(self, name: str) -> str:
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            return f"({name}): Object of type: {type(value).__name__}"
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        size = "x".join(map(str, value.shape))
        return f"({name}): {kind} containing: [{self.dtype_name(value.dtype)} of size {size}]"

    dtype_name = staticmethod(lambda dtype: f"torch.{dtype.name}")

    def extra_repr(self) -> str:
        return "\n".join(f"  {self._describe(name)}" for name in self._names)


class ParameterList(_Holder):
    """A list that registers its parameters.

    Tensors become parameters, other values are kept as they are.

    Examples:
        >>> weights = tg.nn.ParameterList([tg.zeros(2), tg.zeros(3)])
        >>> [len(w) for w in weights]
        [2, 3]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, str(_place(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        self._put(str(_place(index, len(self))), value)

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, name) for name in self._names])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._put(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self


class ParameterDict(_Holder):
    """A dict that registers its parameters.

    Tensors become parameters, other values are kept as they are.

    Examples:
        >>> weights = tg.nn.ParameterDict({"w": tg.zeros(2)})
        >>> weights["w"].requires_grad
        True
    """

    dtype_name = staticmethod(lambda dtype: f"torch.{dtype.kernel_name}Tensor")

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, _checked(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._put(_checked(key), value)

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __or__(self, other: ParameterDict) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Return a new dict with the same parameters."""
        return ParameterDict(dict(self.items()))

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._names.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the names and values."""
        return [(name, self[name]) for name in self._names]

    def values(self) -> Iterable[Any]:
        """Return the values."""
        return [self[name] for name in self._names]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return a new dict with these names, each with the value ``default``."""
        return ParameterDict((key, default) for key in keys)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a name, or ``default``."""
        return getattr(self, key) if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a name, after setting it to ``default`` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove a value and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last value and return it with its name."""
        name = next(reversed(self._names))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove all values."""
        for name in list(self._names):
            del self[name]

    def update(self, parameters: Any) -> None:
        """Add values from a mapping or from pairs, replacing those with the same names."""
        for name, value in pairs(parameters, "ParametersDict.update", "ParameterDict"):
            self[name] = value


def _checked(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(
            "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
            f"'{type(key).__name__}'). Open an issue on github if you need non-string keys."
        )
    return key
