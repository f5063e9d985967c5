"""The command ``telegrad``."""

from __future__ import annotations

import ssl
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, CliExplicitFlag, CliPositionalArg, CliSubCommand, SettingsConfigDict

from telegrad_engine.errors import TelegradError

from . import __version__
from .cluster.command import Cluster, Gateway, Worker, serve_with_workers
from .commands import Group, ServerSettings, command_line, table
from .observability import logs
from .settings import Address, DatabaseSettings, ForegroundSettings, Names, Settings

if TYPE_CHECKING:
    from .tenants.store import ApiKey, KeyStore

DOCUMENT = Path("openapi/openapi.json")
"""The path of the OpenAPI document in the repository."""
STREAM = "asyncapi.json"
"""The file name of the AsyncAPI document, which is in the same folder."""


class Serve(Settings, ForegroundSettings):
    """Serve sessions over HTTP, on loopback unless told otherwise."""

    workers: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="how many worker processes compute, to use all cores; 0 is this process alone",
    )

    def cli_cmd(self) -> None:
        """Run the server in the foreground."""
        from .app import create_app
        from .server import announce, check_exposure, serve

        self.begin()
        if self.workers:
            serve_with_workers(self, self.workers)
            return
        app = create_app(self)
        check_exposure(app)
        serve(app, self, partial(announce, app, "serves at"))


class Health(Address):
    """Ask a server on this machine whether it is alive, for health checks; end with 1 if it is not."""

    timeout_s: float = Field(default=5, gt=0, description="seconds to wait for the answer")

    def cli_cmd(self) -> None:
        """Ask, and end the process."""
        scheme = "http" if self.tls_cert is None else "https"
        # A server that listens on every interface is reached on loopback.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/healthz"
        # No proxy and no verification: the server is the one on this machine, and its certificate has another name.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(url, timeout=self.timeout_s) as answer:
                print(answer.read().decode())
        except OSError as error:
            raise logs.CommandFailed(f"{url}: {getattr(error, 'reason', error)}") from None


# Keys and sessions --------------------------------------------------------------------------------


class CreateKey(DatabaseSettings):
    """Create a key and print it, once; create the database if there is none yet."""

    tenant: str = Field(description="whose sessions it gives access to; a new name is a new tenant")
    scopes: Names = Field(default=["sessions"], description="what it allows: read, sessions, functions, admin")
    expires_days: float | None = Field(default=None, description="days until it expires; never if not given")
    name: str | None = Field(default=None, max_length=200, description="name of the key, for people")

    def cli_cmd(self) -> None:
        """Create it. The key goes to standard output, all else to standard error."""
        with _store(self) as store:
            key, text = store.create(self.tenant, self.scopes, self.expires_days, self.name)
        until = "never expires" if key.expires_at is None else f"expires {_moment(key.expires_at)}"
        print(
            f"Key {key.id} of tenant {key.tenant} with scopes {', '.join(key.scope_list)}; it {until}.",
            f"Servers that use {store} require a key from now on, unless --no-require-keys or --insecure is set.",
            "It is shown only now. Clients pass it as TELEGRAD_API_KEY, or as `Authorization: Bearer …`:",
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
        print(text)


class ListKeys(DatabaseSettings):
    """List the keys, without their secrets."""

    tenant: str | None = Field(default=None, description="only those of this tenant")

    def cli_cmd(self) -> None:
        """Print a table."""
        with _store(self, creates=False) as store:
            keys = store.list(self.tenant)
        headings = ["ID", "TENANT", "NAME", "SCOPES", "STATUS", "CREATED", "EXPIRES", "LAST USED"]
        print(*table(headings, [_key_row(key) for key in keys]), sep="\n")


class RevokeKey(DatabaseSettings):
    """Revoke a key for good; end with 1 if there is none of this id."""

    id: CliPositionalArg[str] = Field(description="the key's public id, as the list shows it")

    def cli_cmd(self) -> None:
        """Revoke it."""
        with _store(self, creates=False) as store:
            if not store.revoke(self.id):
                raise logs.CommandFailed(f"there is no key {self.id[:40]!r}; `telegrad keys list` shows them")
        print(f"Key {self.id} is revoked. Servers refuse it within seconds, and go on requiring a key.")


class Keys(Group):
    """Create, list and revoke API keys."""

    create: CliSubCommand[CreateKey]
    list: CliSubCommand[ListKeys]
    revoke: CliSubCommand[RevokeKey]


@contextmanager
def _store(settings: DatabaseSettings, creates: bool = True) -> Iterator[KeyStore]:
    """The store of keys. Raises CommandFailed if there is no database, unless this command ``creates`` it."""
    from .database import Database
    from .tenants.store import KeyStore

    database = Database(settings.database_url.get_secret_value())
    if not creates and not database.exists():
        raise logs.CommandFailed(
            f"there are no keys yet: {database.file} does not exist; `telegrad keys create` makes it"
        )
    with database:
        yield KeyStore(database)


def _key_row(key: ApiKey) -> Sequence[str]:
    times = [_moment(time) for time in (key.created_at, key.expires_at, key.last_used_at)]
    return key.id, key.tenant, key.name or "-", ",".join(key.scope_list), key.status, *times


def _moment(time: datetime | None) -> str:
    return "-" if time is None else f"{time:%Y-%m-%d %H:%M}Z"


class ListSessions(ServerSettings):
    """List the sessions of the key's tenant, oldest first."""

    def cli_cmd(self) -> None:
        """Print a table."""
        rows = [_session_row(session) for session in self.server().items("/v1/sessions")]
        print(*table(["ID", "TENANT", "NAME", "DEVICE", "DURABLE", "CREATED", "IDLE", "EXPIRES IN"], rows), sep="\n")


class KillSessions(ServerSettings):
    """End sessions, whatever they compute, and free their memory."""

    ids: CliPositionalArg[list[str]] = Field(description="the ids of the sessions, as the list shows them")

    def cli_cmd(self) -> None:
        """End them; end with 1 at the first that does not exist."""
        server = self.server()
        for name in self.ids:
            server.request(f"/v1/sessions/{quote(name, safe='')}", "DELETE")
            print(f"Session {name} has ended.")


class Sessions(Group):
    """List and end the sessions of a running server."""

    list: CliSubCommand[ListSessions]
    kill: CliSubCommand[KillSessions]


def _session_row(session: dict[str, Any]) -> Sequence[str]:
    now = datetime.now(UTC)
    created, used, expires = (
        datetime.fromisoformat(session[f"{name}_at"]) for name in ("created", "last_used", "expires")
    )
    durable = "yes" if session["durable"] else "no"
    idle, left = (now - used).total_seconds(), (expires - now).total_seconds()
    times = f"{created:%Y-%m-%d %H:%M}Z", _duration(idle), _duration(left)
    return session["id"], session["tenant"], session["name"] or "-", session["device"], durable, *times


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


# The command --------------------------------------------------------------------------------------


class Top(ServerSettings):
    """Show a server's load and its tenants in a table, until Ctrl-C."""

    once: bool = Field(default=False, description="print one table and end, with rates since the server's start")
    interval_s: float = Field(default=2, ge=0.1, description="seconds between two updates")

    def cli_cmd(self) -> None:
        """Show the table; end with 1 if the server does not answer."""
        from . import top

        with suppress(KeyboardInterrupt):
            top.show(self.server(), self.once, self.interval_s)


class OpenAPI(BaseSettings):
    """Write the OpenAPI document, and the stream's AsyncAPI document beside it; or compare, and end with 1 if they
    differ."""

    check: CliExplicitFlag[bool] = Field(default=False, description="compare instead of writing")
    file: Path = Field(default=DOCUMENT, description="the OpenAPI document's file")

    def cli_cmd(self) -> None:
        """Write or compare, and end the process."""
        from . import asyncapi
        from .app import create_app
        from .openapi import render

        app = create_app(Settings())
        for file, text in [(self.file, render(app)), (self.file.parent / STREAM, asyncapi.render(app))]:
            if not self.check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            elif not file.exists() or file.read_text(encoding="utf-8") != text:
                sys.exit(f"{file} is not what the app says; run `make openapi`")


class Telegrad(Group):
    """Gradients over the wire."""

    model_config = SettingsConfigDict(
        cli_prog_name="telegrad",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_enforce_required=False,
        cli_hide_none_type=True,
    )

    serve: CliSubCommand[Serve]
    gateway: CliSubCommand[Gateway]
    worker: CliSubCommand[Worker]
    keys: CliSubCommand[Keys]
    sessions: CliSubCommand[Sessions]
    health: CliSubCommand[Health]
    top: CliSubCommand[Top]
    cluster: CliSubCommand[Cluster]
    openapi: CliSubCommand[OpenAPI]


def main(arguments: list[str] | None = None) -> None:
    """Run the command with the given arguments, by default those of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    if "--version" in given:
        print(f"telegrad {__version__}")
        return
    try:
        CliApp.run(Telegrad, cli_args=given or ["--help"], cli_settings_source=command_line(Telegrad))
    except ValidationError as error:
        for each in error.errors():
            # If a setting is missing, or several conflict, the input is all settings, with the database's password.
            wrong = "" if isinstance(each["input"], dict) else f", not {each['input']!r}"
            print(f"telegrad: {each['loc'][-1]}: {each['msg']}{wrong}", file=sys.stderr)
        sys.exit(2)
    except (logs.CommandFailed, TelegradError) as error:
        logs.fail(error)


if __name__ == "__main__":
    main()
