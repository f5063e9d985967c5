"""The command ``telegrad``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, CliSubCommand, SettingsConfigDict

from . import __version__
from .settings import Address, Settings

DOCUMENT = Path("openapi/openapi.json")
"""The path of the OpenAPI document in the repository."""


class Serve(Settings):
    """Serve sessions over HTTP, on loopback unless told otherwise."""

    end_with_stdin: bool = Field(
        default=False, description="stop when standard input ends, for a script that holds the other end of a pipe"
    )

    def cli_cmd(self) -> None:
        """Run the server in the foreground."""
        from .app import create_app
        from .server import serve

        logging.basicConfig(level=self.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        if self.end_with_stdin:
            threading.Thread(target=_stop_after, args=(sys.stdin.fileno(),), name="stdin", daemon=True).start()
        app = create_app(self)
        gc.freeze()  # garbage collection skips the objects that exist already
        serve(app, self, _announce)


def _stop_after(descriptor: int) -> None:
    """Read a file to its end, then send SIGTERM to this process.

    It does not read through ``sys.stdin``: the interpreter aborts if it exits while a thread holds that object's lock.
    """
    with suppress(OSError):
        while os.read(descriptor, 2**16):
            pass
    signal.raise_signal(signal.SIGTERM)


def _announce(url: str) -> None:
    print(f"Telegrad {__version__} serves at {url}", f"Docs at {url}/docs", sep="\n", flush=True)


class Health(Address):
    """Ask a server on this machine whether it is alive, for health checks; end with 1 if it is not."""

    timeout_s: float = Field(default=5, gt=0, description="seconds to wait for the answer")

    def cli_cmd(self) -> None:
        """Ask, and end the process."""
        url = f"http://{_reachable(self.host)}:{self.port}/healthz"
        # No proxy: the server is the one on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=self.timeout_s) as answer:
                print(answer.read().decode())
        except OSError as error:
            sys.exit(f"telegrad: {url}: {getattr(error, 'reason', error)}")


def _reachable(host: str) -> str:
    """The address at which to reach a server that listens on ``host``: loopback if it listens on every interface."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


class OpenAPI(BaseSettings):
    """Write the OpenAPI document, or compare it with the file; end with 1 if it differs."""

    check: bool = Field(default=False, description="compare instead of writing")
    file: Path = Field(default=DOCUMENT, description="the document's file")

    def cli_cmd(self) -> None:
        """Write or compare, and end the process."""
        from .app import create_app
        from .openapi import render

        text = render(create_app(Settings()))
        if not self.check:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(text, encoding="utf-8")
        elif not self.file.exists() or self.file.read_text(encoding="utf-8") != text:
            sys.exit(f"{self.file} is not what the app says; run `make openapi`")


class Telegrad(BaseSettings):
    """Gradients over the wire."""

    model_config = SettingsConfigDict(
        cli_prog_name="telegrad",
        cli_kebab_case=True,
        cli_enforce_required=False,
        cli_hide_none_type=True,
        cli_use_class_docs_for_groups=True,  # each subcommand is listed with its docstring
    )

    serve: CliSubCommand[Serve]
    health: CliSubCommand[Health]
    openapi: CliSubCommand[OpenAPI]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


def main(arguments: list[str] | None = None) -> None:
    """Run the command with the given arguments, by default those of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    if "--version" in given:
        print(f"telegrad {__version__}")
        return
    try:
        CliApp.run(Telegrad, cli_args=given or ["--help"])
    except ValidationError as error:
        for each in error.errors():
            print(f"telegrad: {each['loc'][-1]}: {each['msg']}, not {each['input']!r}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
