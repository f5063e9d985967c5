"""``telegrad keys``: create, list and revoke API keys in the server's database."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import CliPositionalArg, CliSubCommand

from ..commands import Group, table
from ..observability.logs import CommandFailed
from ..settings import DatabaseSettings, Names

if TYPE_CHECKING:
    from ..tenants.store import ApiKey, KeyStore


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
        print(*table(headings, [_row(key) for key in keys]), sep="\n")


class RevokeKey(DatabaseSettings):
    """Revoke a key for good; end with 1 if there is none of this id."""

    id: CliPositionalArg[str] = Field(description="the key's public id, as the list shows it")

    def cli_cmd(self) -> None:
        """Revoke it."""
        with _store(self, creates=False) as store:
            if not store.revoke(self.id):
                raise CommandFailed(f"there is no key {self.id[:40]!r}; `telegrad keys list` shows them")
        print(f"Key {self.id} is revoked. Servers refuse it within seconds, and go on requiring a key.")


class Keys(Group):
    """Create, list and revoke API keys."""

    create: CliSubCommand[CreateKey]
    list: CliSubCommand[ListKeys]
    revoke: CliSubCommand[RevokeKey]


@contextmanager
def _store(settings: DatabaseSettings, creates: bool = True) -> Iterator[KeyStore]:
    """The store of keys. Raises CommandFailed if there is no database, unless this command ``creates`` it."""
    from ..database.database import Database
    from ..tenants.store import KeyStore

    database = Database(settings.database_url.get_secret_value())
    if not creates and not database.exists():
        raise CommandFailed(f"there are no keys yet: {database.file} does not exist; `telegrad keys create` makes it")
    with database:
        yield KeyStore(database)


def _row(key: ApiKey) -> Sequence[str]:
    times = [_moment(time) for time in (key.created_at, key.expires_at, key.last_used_at)]
    return key.id, key.tenant, key.name or "-", ",".join(key.scope_list), key.status, *times


def _moment(time: datetime | None) -> str:
    return "-" if time is None else f"{time:%Y-%m-%d %H:%M}Z"
