"""Commands and queries: the functions that routes and streams run in a session, by name and with plain data.

A command may change the session, a query only reads it. A durable session's journal has the commands, so their names
and the meaning of their arguments are part of its format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from inspect import signature
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel

Function = TypeVar("Function", bound=Callable[..., Any])
COMMANDS: dict[str, Callable[..., Any]] = {}
QUERIES: set[Callable[..., Any]] = set()
NAMES: dict[Callable[..., Any], str] = {}
"""The commands' names in journals."""
WORKLOADS: dict[Callable[..., Any], Callable[..., Hashable | None]] = {}
"""For functions that may run on the event loop, see :func:`brief`."""


def command(name: str) -> Callable[[Function], Function]:
    """Declare a function that may change its session; its other arguments are data that a journal can hold."""

    def declare(function: Function) -> Function:
        if name in COMMANDS:
            raise ValueError(f"there is a command {name} already")
        COMMANDS[name] = function
        NAMES[function] = name
        return function

    return declare


def query(function: Function) -> Function:
    """Declare a function that only reads its session."""
    QUERIES.add(function)
    return function


def brief(workload: Callable[..., Hashable | None]) -> Callable[[Function], Function]:
    """Declare a command or query that runs on the event loop if its last runs with an equal workload were brief.

    ``workload`` takes the same arguments, and returns what decides how long the function takes; None for any length.
    """

    def declare(function: Function) -> Function:
        WORKLOADS[function] = workload
        return function

    return declare


def restored_arguments(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    """A command's arguments from a journal, which has the fields of pydantic models as dictionaries."""
    return [
        model.model_validate(value) if model is not None and isinstance(value, dict) else value
        for model, value in zip(_models(function), arguments, strict=False)
    ]


@cache
def _models(function: Callable[..., Any]) -> tuple[type[BaseModel] | None, ...]:
    """For each argument after the session, its pydantic model, if it is one."""
    hints = get_type_hints(function)
    types = [hints.get(name) for name in signature(function).parameters][1:]
    return tuple(hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None for hint in types)
