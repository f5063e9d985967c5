"""The code to trace, a Function in either form or a plain function, and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.autograd.custom_function import Function
from telegrad_engine.errors import InvalidArgument

from .tracing_symbols import UNKNOWN

TYPES = {
    int: "int",
    float: "number",
    bool: "bool",
    str: "str",
    "int": "int",
    "float": "number",
    "bool": "bool",
    "str": "str",
}
"""Parameter types by annotation; ``from __future__ import annotations`` makes annotations strings."""


class Argument(NamedTuple):
    """An argument of forward: a tensor, or a parameter of this type."""

    name: str
    type: str | None
    default: Any
    example: Any = UNKNOWN

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.type is None


class Source:
    """The code to trace: a Function in either form, or a plain function."""

    def __init__(self, function: Any) -> None:
        self.is_class = isinstance(function, type) and issubclass(function, Function)
        self.function = function
        self.forward: Callable[..., Any] = function.forward if self.is_class else function
        self.separate = self.is_class and function.setup_context is not Function.setup_context
        self.takes_ctx = self.is_class and not self.separate
        own = function.backward is not Function.backward or function.vjp is not Function.vjp if self.is_class else False
        self.backward: Callable[..., Any] | None = function._choose_backward() if own else None
        self.jvp: Callable[..., Any] | None = (
            function.jvp if self.is_class and function.jvp is not Function.jvp else None
        )

    def arguments(self, example: Sequence[Any] | None) -> list[Argument]:
        """Return the arguments of forward, with the example's values."""
        params = list(inspect.signature(self.forward).parameters.values())[int(self.takes_ctx) :]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in params):
            raise InvalidArgument(
                f"{self.forward.__qualname__} takes *args or **kwargs; a registered function names each"
            )
        if example is not None and len(example) > len(params):
            raise InvalidArgument(f"the example has {len(example)} arguments, forward takes {len(params)}")
        given = [*(example or ()), *[UNKNOWN] * len(params)]
        return [_argument(p, value) for p, value in zip(params, given, strict=False)]


def _argument(parameter: inspect.Parameter, example: Any) -> Argument:
    default = UNKNOWN if parameter.default is parameter.empty else parameter.default
    value = default if example is UNKNOWN else example
    kind = TYPES.get(parameter.annotation)
    if kind is None and value is not UNKNOWN and not hasattr(value, "_data"):
        if isinstance(value, (list, tuple)):
            kind = "ints" if all(type(v) is int for v in value) else "list"
        else:
            kind = {bool: "bool", str: "str"}.get(type(value), "number")
    return Argument(parameter.name, kind, default, value)


def in_order(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return a call's arguments in forward's order, including defaults. Raises TypeError like a Python call."""
    source = Source(function)
    bound = inspect.signature(source.forward).bind(*(None,) * source.takes_ctx, *args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())[int(source.takes_ctx) :]
