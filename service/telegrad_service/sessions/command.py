"""``telegrad sessions``: list and end the sessions of a running server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pydantic import Field
from pydantic_settings import CliPositionalArg, CliSubCommand

from ..admin_client import ServerSettings
from ..commands import Group, table


class ListSessions(ServerSettings):
    """List the sessions of the key's tenant, oldest first."""

    def cli_cmd(self) -> None:
        """Print a table."""
        rows = [_row(session) for session in self.server().items("/v1/sessions")]
        print(*table(["ID", "TENANT", "NAME", "DEVICE", "DURABLE", "CREATED", "IDLE", "EXPIRES IN"], rows), sep="\n")


class KillSessions(ServerSettings):
    """End sessions, whatever they compute, and free their memory."""

    ids: CliPositionalArg[list[str]] = Field(description="the ids of the sessions, as the list shows them")

    def cli_cmd(self) -> None:
        """End them; end with 1 at the first that does not exist."""
        server = self.server()
        for name in self.ids:
            server.delete(f"/v1/sessions/{quote(name, safe='')}")
            print(f"Session {name} has ended.")


class Sessions(Group):
    """List and end the sessions of a running server."""

    list: CliSubCommand[ListSessions]
    kill: CliSubCommand[KillSessions]


def _row(session: dict[str, Any]) -> Sequence[str]:
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
