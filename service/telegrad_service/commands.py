"""What ``telegrad`` commands share: groups of subcommands, their help, tables, and the client of a running server."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsConfigDict

from telegrad_engine.program.frames import is_loopback

from .observability.logs import CommandFailed
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


TIMEOUT_S = 10.0
PER_PAGE = 1000


class NoAnswer(CommandFailed):
    """The server did not answer; the text says why."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: the key must not go to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class Server:
    """A server to ask."""

    def __init__(self, url: str, api_key: str | None, ca: Path | None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"accept": "*/*"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
        if not self.url.startswith(("http://", "https://")):
            raise NoAnswer(f"{url!r} is not the address of a server: it starts with http:// or https://")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if is_loopback(urlsplit(self.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        if ca is not None:
            try:
                handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
            except OSError as error:
                raise NoAnswer(f"certificates cannot be read from {ca}: {error}") from None
        self._opener = urllib.request.build_opener(*handlers)

    def request(self, path: str, method: str = "GET") -> str:
        """Return the text of the answer at a path. Raises NoAnswer."""
        try:
            request = urllib.request.Request(self.url + path, headers=self._headers, method=method)
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            try:
                detail = str(json.loads(error.read())["detail"])
            except (ValueError, KeyError, TypeError):
                detail = "is no answer of a Telegrad server"
            raise NoAnswer(f"{self.url}{path}: {error.code} {detail}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(f"cannot reach {self.url}: {reason}. Is a server running there?") from None

    def items(self, path: str) -> list[dict[str, Any]]:
        """All items of the list at a path, which may have a query. Raises NoAnswer."""
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            query = "" if cursor is None else f"&cursor={quote(cursor, safe='')}"
            address = f"{path}{'&' if '?' in path else '?'}limit={PER_PAGE}{query}"
            try:
                page = json.loads(self.request(address))
                items += page["items"]
                cursor = page["next_cursor"]
            except (ValueError, KeyError, TypeError):
                raise NoAnswer(f"{self.url}{address} does not answer as a Telegrad server") from None
            if cursor is None:
                return items


class ServerSettings(BaseSettings):
    """The server that a command asks."""

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", env_ignore_empty=True, extra="ignore")

    url: str = Field(default="http://127.0.0.1:8000", description="the server's address")
    api_key: SecretStr | None = Field(
        default=None, description="key for the server; better set as TELEGRAD_API_KEY, as others may see flags"
    )
    ca: Path | None = Field(
        default=None, description="PEM file of the authority that signed the server's certificate, if it is your own"
    )

    def server(self) -> Server:
        """The server. Raises NoAnswer if the address or the authority's file cannot be used."""
        return Server(self.url, None if self.api_key is None else self.api_key.get_secret_value(), self.ca)
