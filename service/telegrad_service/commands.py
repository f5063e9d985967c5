"""Commands that consist of subcommands; their help, with flags in groups and types in plain words; tables."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsConfigDict

from .settings import Address

TYPES = {"int": "NUMBER", "float": "NUMBER", "Path": "FILE", "bool": "{true,false}", "dict[str,float]": "NAME=NUMBER"}
"""How the help names the types of values; others are TEXT, but for choices."""
UNSAID = re.compile(r" \(default(: (null|\[\]|{}|False|)| factory: .*)\)$")
"""Defaults that are nothing, or that the description has in words."""


class Group(BaseSettings):
    """A command whose fields are its subcommands. Each is listed in the help with its docstring."""

    model_config = SettingsConfigDict(cli_use_class_docs_for_groups=True)

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, its columns as wide as their widest cell."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def command_line(model: type[BaseSettings]) -> CliSettingsSource[Any]:
    """The arguments of a command, for ``CliApp.run``."""
    groups: dict[ArgumentParser, list[tuple[type, Any]]] = {}

    def groups_of(parser: ArgumentParser, path: list[str]) -> list[tuple[type, Any]]:
        """The groups of a subcommand, in the order of its bases."""
        if parser not in groups:
            command: Any = model
            for name in path:
                command = get_args(command.model_fields[name].annotation)[0]
            if issubclass(command, Address):
                parser.usage = "%(prog)s [options]"  # not all of them
            titles = [(cls, (cls.__doc__ or "").partition(".")[0]) for cls in command.__mro__[1:]]
            groups[parser] = [(cls, parser.add_argument_group(title)) for cls, title in titles]
        return groups[parser]

    def add_argument(parser: ArgumentParser, *names: str, **options: Any) -> Any:
        *path, name = options.get("dest", names[0]).split(".")
        options["help"] = UNSAID.sub("", options["help"])
        metavar = options.get("metavar")
        if metavar and names[0].startswith("-") and not metavar.startswith("{"):
            options["metavar"] = TYPES.get(metavar, "TEXT")
        found = (group for cls, group in groups_of(parser, path) if name in getattr(cls, "__annotations__", {}))
        return next(found, parser).add_argument(*names, **options)

    return CliSettingsSource(model, add_argument_method=add_argument)
