"""A running server, as the ``telegrad`` commands ask it over HTTP, and the tables that they print."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

TIMEOUT_S = 10.0
PER_PAGE = 1000


class NoAnswer(Exception):
    """The server cannot be asked; the text says why."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: the key must not go to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which is reached without a proxy."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


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

    def get(self, path: str) -> str:
        """The text at a path. Raises NoAnswer."""
        return self._request("GET", path)

    def delete(self, path: str) -> None:
        """Delete what is at a path. Raises NoAnswer."""
        self._request("DELETE", path)

    def _request(self, method: str, path: str) -> str:
        try:
            request = urllib.request.Request(self.url + path, headers=self._headers, method=method)
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"{self.url}{path}: {error.code} {_detail(error.read())}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(f"cannot reach {self.url}: {reason}. Is a server running there?") from None

    def items(self, path: str) -> list[dict[str, Any]]:
        """All items of the list at a path, which may have a query. Raises NoAnswer."""
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            query = "" if cursor is None else f"&cursor={quote(cursor, safe='')}"
            page = self._json(f"{path}{'&' if '?' in path else '?'}limit={PER_PAGE}{query}")
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            cursor = page["next_cursor"]

    def _json(self, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self.get(path))
            return {"items": found["items"], "next_cursor": found["next_cursor"]}
        except (ValueError, KeyError, TypeError):
            raise NoAnswer(f"{self.url}{path} does not answer as a Telegrad server") from None


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return "is no answer of a Telegrad server"


class ServerSettings(BaseSettings):
    """The server that a command asks."""

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", extra="ignore")

    url: str = Field(default="http://127.0.0.1:8000", description="the server's address")
    api_key: SecretStr | None = Field(
        default=None, description="key for the server; better set as TELEGRAD_API_KEY, as others may see flags"
    )
    ca: Path | None = Field(
        default=None, description="PEM file of the authority that signed the server's certificate, if it is your own"
    )

    @contextmanager
    def server(self) -> Iterator[Server]:
        """The server; an error ends the process with its text."""
        try:
            yield Server(self.url, None if self.api_key is None else self.api_key.get_secret_value(), self.ca)
        except NoAnswer as error:
            sys.exit(f"telegrad: {error}")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, its columns as wide as their widest cell."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
