"""Lists and dicts of parameters: tensors that are put in become parameters, anything else stays what it is."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, KeysView
from typing import Any, NoReturn, Self

from telegrad_engine.errors import IndexOutOfRange, InvalidOperation

from ..tensor.handle import Tensor
from .containers import pairs
from .module import Module
from .parameter import Parameter


def _kept(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class _Holder(Module):
    """Values under names, kept as attributes so that the parameters among them are found."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidOperation(f"{type(self).__name__} should not be called.")

    def _put(self, name: str, value: Any) -> None:
        setattr(self, name, _kept(value))
        self._names[name] = None

    def _describe(self, name: str, dtype_name: Any) -> str:
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            return f"({name}): Object of type: {type(value).__name__}"
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        size = "x".join(map(str, value.shape))
        return f"({name}): {kind} containing: [{dtype_name(value.dtype)} of size {size}]"

    dtype_name = staticmethod(lambda dtype: f"torch.{dtype.name}")

    def extra_repr(self) -> str:
        """What there is, a line each."""
        return "\n".join(f"  {self._describe(name, self.dtype_name)}" for name in self._names)


class ParameterList(_Holder):
    """A list whose parameters are found."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def _name(self, index: int) -> str:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexOutOfRange(f"index {index} is out of range")
        return str(index % len(self))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        self._put(self._name(index), value)

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
    """A dict whose parameters are found."""

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
        """A dict of the same parameters."""
        return ParameterDict(dict(self.items()))

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._names.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """The names and values."""
        return [(name, self[name]) for name in self._names]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[name] for name in self._names]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict with these names, each with the value ``default``."""
        return ParameterDict((key, default) for key in keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, or ``default``."""
        return getattr(self, key) if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a name, which is first set to ``default`` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove a value and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last value, and return it with its name."""
        name = next(reversed(self._names))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove all values."""
        for name in list(self._names):
            del self[name]

    def update(self, parameters: Any) -> None:
        """Add values from a mapping or from pairs; those of a name that there is are replaced."""
        for name, value in pairs(parameters, "ParametersDict.update", "ParameterDict"):
            self[name] = value


def _checked(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(
            "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
            f"'{type(key).__name__}'). Open an issue on github if you need non-string keys."
        )
    return key
