"""Names of torch that are not in Telegrad, each with the reason and what to use instead: ``exclusions.toml``.

The attribute errors of :mod:`telegrad`, its submodules and its Tensor are made from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, TypeVar


def publish(namespace: dict[str, Any], name: str, function: Any) -> Any:
    """Make a function an attribute of the module with these globals, and pickle it by that name."""
    with suppress(AttributeError):  # functools.partial has no qualified name
        function.__qualname__, function.__module__ = name, namespace["__name__"]
    namespace[name] = function
    return function


_T = TypeVar("_T")


class Exclusion(NamedTuple):
    """Why names of torch are missing."""

    reason: str
    instead: str
    """What to use instead."""
    planned: bool = False
    """Whether the names are planned."""
    in_scope: bool = False
    """Whether comparisons by name count them as missing."""


def _table() -> dict[tuple[str, str], Exclusion]:
    table: dict[tuple[str, str], Exclusion] = {}
    with open(f"{__file__.rpartition('.')[0]}.toml", "rb") as file:  # pathlib would take longer to import
        entries = tomllib.load(file)["exclusion"]
    for entry in entries:
        names = entry.pop("names")
        exclusion = Exclusion(**entry)
        for namespace, listed in names.items():
            for name in listed.split():
                key = namespace.removeprefix("torch").removeprefix("."), name
                if key in table:
                    raise ValueError(f"{namespace}.{name} is excluded twice")
                table[key] = exclusion
    return table


TABLE = _table()
"""The exclusions by namespace and name; the namespace "" is torch itself."""


def explain(namespace: str, name: str) -> str | None:
    """Explain why torch's name in ``namespace`` is missing, and what to use instead; None for other names."""
    found = TABLE.get((namespace, name))
    if found is None:
        return None
    when = "not in Telegrad yet" if found.planned else "not in Telegrad"
    return f"{when} ({found.reason}). Use instead: {found.instead}"


class _Excluded:
    """An attribute of torch's class that ours lacks: access raises an error that says why."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self._name = namespace, name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        what = f"type object '{owner.__name__}'" if instance is None else f"'{owner.__name__}' object"
        raise AttributeError(f"{what} has no attribute {self._name!r}: {explain(self._namespace, self._name)}")


def explain_missing(cls: type[_T]) -> type[_T]:
    """Make the errors for attributes that torch's class has and this one lacks say why.

    The attributes are descriptors, because ``__getattr__`` would slow down each access to an instance.
    """
    excluded = {name for namespace, name in TABLE if namespace == cls.__name__}
    listed = cls.__dir__
    members: dict[str, Any] = {name: _Excluded(cls.__name__, name) for name in excluded}
    members["__dir__"] = lambda instance: sorted({*listed(instance)} - excluded)
    for name, member in members.items():
        setattr(cls, name, member)
    return cls


def attribute_of(namespace: str, on_demand: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, which raises AttributeError and explains torch names that are left out.

    ``on_demand`` is as for :func:`import_on_demand`.
    """
    module = f"telegrad.{namespace}" if namespace else "telegrad"

    def find(name: str) -> Any:
        if on_demand and name in on_demand:
            return import_on_demand(module, on_demand, name)
        raise missing_attribute(module, namespace, name)

    return find


def import_on_demand(package: str, on_demand: Mapping[str, str], name: str) -> Any:
    """An attribute of a package whose module is imported when the attribute is first used.

    ``on_demand`` has the submodule of each such attribute; a submodule that is an attribute itself has its own name.
    """
    found = import_module(f"{package}.{on_demand[name]}")
    if name != on_demand[name]:
        found = getattr(found, name)
    return found


def missing_attribute(module: str, namespace: str, name: str) -> AttributeError:
    """The error for an attribute that a module lacks."""
    text = explain(namespace, name)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {text}" if text else ""))
