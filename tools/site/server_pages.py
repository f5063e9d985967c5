"""The pages about settings and errors."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from telegrad_engine.errors import ERRORS, TYPE_PREFIX, TelegradError
from telegrad_service import settings
from telegrad_service.cli import Serve

from .markdown import code, joined, prose, table

PREFIX = "TELEGRAD_"
EVERY = "`telegrad serve`, `gateway` and `worker`"
COMPUTING = "`telegrad serve` and `worker`"
GROUPS: dict[type[settings.EnvironmentSettings], str] = {
    settings.Address: EVERY,
    settings.AccessSettings: EVERY,
    settings.DatabaseSettings: EVERY,
    settings.LogSettings: EVERY,
    settings.ForegroundSettings: EVERY,
    settings.ConnectionSettings: EVERY,
    settings.ComputeSettings: COMPUTING,
    settings.DurabilitySettings: COMPUTING,
    settings.LimitSettings: COMPUTING,
    settings.LifetimeSettings: COMPUTING,
    Serve: "`telegrad serve`",
    settings.MemberSettings: "`telegrad gateway` and `worker`",
    settings.GatewaySettings: "`telegrad gateway`",
    settings.WorkerSettings: "`telegrad worker`",
}
"""The classes of settings, and the commands that have them."""
SETTINGS_NOTE = """Each setting is a flag of the command and an environment variable; a flag wins. `telegrad serve
--help` lists those of a server on one machine. A setting that takes several values is a flag that is repeated, or a
list with commas in the variable."""
CLIENT_NOTE = """## The SDK

| variable | meaning |
| --- | --- |
| `TELEGRAD_URL` | the server of a program that does not call `telegrad.connect`; by default its own process |
| `TELEGRAD_API_KEY` | the key for servers that require one, if `telegrad.connect` is given none |
| `TELEGRAD_PROGRESS` | whether long waits show a line: `0` never, `1` always; by default in terminals, notebooks |"""
ERRORS_NOTE = f"""An error of a server is a problem document (RFC 9457). Its `type` is `{TYPE_PREFIX}` and the slug
below, and never changes; `detail` is PyTorch's text where PyTorch has one, and `hint` says how to correct the request
where that does not; `instruction` is the index of the one that failed. The SDK raises the class of the same name,
which is in `telegrad_engine.errors` and derives from the exception that PyTorch raises. A session stays usable after
an error.

*Again after* says when repeating the request may help: the seconds that the server names in `Retry-After`."""


def settings_page() -> str:
    """Every setting of servers, gateways and workers, from the classes that declare them."""
    sections = []
    for group, commands in GROUPS.items():
        own = [name for name in inspect.get_annotations(group) if name in group.model_fields]
        rows = [setting(name, group.model_fields[name]) for name in own]
        title = (group.__doc__ or "").rstrip(".")
        note = f"Of {commands}."
        sections.append(joined(f"## {title}", note, table(("setting", "flag", "values", "default", "meaning"), rows)))
    return joined("# Settings", SETTINGS_NOTE, *sections, CLIENT_NOTE)


def setting(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The row of one setting."""
    variable = code(f"{PREFIX}{name.upper()}")
    return variable, code(f"--{name.replace('_', '-')}"), values_of(field), default_of(field), field.description or ""


def values_of(field: FieldInfo) -> str:
    """What values a setting takes, with its bounds."""
    kind: Any = field.annotation
    choices = [each for each in get_args(kind) if each is not type(None)] or [kind]
    if get_origin(kind) is Literal:
        return " or ".join(code(each) for each in choices)
    words = {bool: "yes or no", int: "whole number", float: "number"}
    word = words.get(choices[0], "names" if get_origin(kind) is list else "text")
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in signs.items()
        if hasattr(rule, name)
    ]
    return ", ".join([word, *bounds])


def default_of(field: FieldInfo) -> str:
    """The default of a setting; a computed one depends on the machine."""
    if field.default_factory is not None:
        return "of the machine"
    value = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
    return "" if value in (None, "", []) else code(shown(value))


def shown(value: Any) -> str:
    """A default as one writes it, with bytes as powers of 1024 beside it."""
    if isinstance(value, bool):
        return str(value).lower()
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if isinstance(value, int) and value >= size and value % size == 0:
            return f"{value} ({value // size} {unit})"
    return str(value)


def errors_page() -> str:
    """Every error of the public API, by status."""
    sections = []
    for status in sorted({error.status for error in ERRORS.values()}):
        rows = [error_row(error) for error in ERRORS.values() if error.status == status]
        sections.append(joined(f"## {status}", table(("slug", "class", "is also", "meaning", "again after"), rows)))
    return joined("# Errors", ERRORS_NOTE, *sections)


def error_row(error: type[TelegradError]) -> tuple[str, ...]:
    """The row of one error."""
    bases = [base.__name__ for base in error.__mro__[1:] if base.__module__ == "builtins"]
    builtin = bases[0] if bases[0] != "Exception" else ""
    again = f"{error.retry_after_s} s" if error.retry_after_s is not None else ""
    return code(error.slug), code(error.__name__), code(builtin), prose(error.__doc__ or ""), again
