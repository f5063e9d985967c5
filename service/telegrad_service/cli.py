"""The command ``telegrad``."""

from __future__ import annotations

import ssl
import sys
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, CliExplicitFlag, CliSubCommand, SettingsConfigDict

from telegrad_engine.errors import TelegradError

from . import __version__
from .admin_client import ServerSettings
from .cluster.command import Cluster, Gateway, Worker, serve_with_workers
from .commands import Group, command_line
from .keys.command import Keys
from .observability import logs
from .sessions.command import Sessions
from .settings import Address, ForegroundSettings, Settings

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
        from . import asyncapi, openapi
        from .app import create_app

        app = create_app(Settings())
        for file, text in [(self.file, openapi.render(app)), (self.file.parent / STREAM, asyncapi.render(app))]:
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
