"""The client of a running server for the ``telegrad`` commands that ask one."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from telegrad_engine.program.frames import is_loopback

from .observability.logs import CommandFailed

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

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", extra="ignore")

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
