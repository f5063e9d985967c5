"""API keys for tests, made as an operator makes them, and clients that have one."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx

from telegrad_service.cli import main

ALL = "sessions,functions,admin"
WAIT_S = 240


def command(database: str, *arguments: str) -> str:
    """Run ``telegrad keys`` on a database and return its standard output."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        main(["keys", *arguments, "--database-url", database])
    return output.getvalue().strip()


def create_key(database: str, tenant: str, scopes: str = ALL, *flags: str) -> str:
    """Create a key and return it."""
    return command(database, "create", "--tenant", tenant, "--scopes", scopes, *flags)


def id_of(key: str) -> str:
    return key.split("_")[1]


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'keys.db'}"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def client_with(url: str, key: str | None, **options: Any) -> httpx.Client:
    """A client; without TLS, as it takes longer to read the system's certificates than to send many requests."""
    headers = {} if key is None else bearer(key)
    return httpx.Client(base_url=url, headers=headers, timeout=WAIT_S, verify=False, **options)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most ``WAIT_S`` seconds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
