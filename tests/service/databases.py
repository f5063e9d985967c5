"""A real PostgreSQL for tests, which they start; skipped where it is not installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..servers import free_port
from .api_keys import WAIT_S, sqlite, wait_until

SERVER_USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package creates this user."""
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
"""How a server ends: it closes its connections and writes everything; or as if its machine had lost power."""


def binaries() -> Path | None:
    """The folder of initdb and postgres, which Debian does not add to PATH."""
    found = [Path(path).parent for path in (shutil.which("initdb"),) if path is not None]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class PostgreSQL:
    """A server on loopback, always at the same port, that can be stopped and started again."""

    def __init__(self, binaries: Path, data: Path, as_user: dict[str, Any]) -> None:
        self._binaries, self._folder, self._as_user = binaries, data, as_user
        setup = [str(binaries / "initdb"), "--auth=trust", "--username=tester", "--no-sync", "--no-locale"]
        subprocess.run(
            [*setup, "--pgdata", str(data)], check=True, capture_output=True, cwd=data, timeout=2 * WAIT_S, **as_user
        )
        self._port = free_port()
        self.url = f"postgresql://tester@127.0.0.1:{self._port}/postgres"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        flags = ["-h", "127.0.0.1", "-p", str(self._port), "-k", "", "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [str(self._binaries / "postgres"), "-D", str(self._folder), *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            **self._as_user,
        )
        wait_until(lambda: accepts(self._port) and self._process.poll() is None)

    def stop(self, how: signal.Signals = FAST) -> None:
        """End it, ``FAST`` or ``IMMEDIATE``, as pg_ctl does."""
        self._process.send_signal(how)
        self._process.wait(WAIT_S)

    def new_database(self) -> str:
        """The URL of an empty database."""
        import psycopg

        name = f"test_{os.urandom(6).hex()}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres", f"/{name}")


@contextmanager
def running_postgres() -> Iterator[PostgreSQL]:
    """A PostgreSQL of its own, which ends with the block."""
    folder = binaries()
    if folder is None:
        assert not os.environ.get("CI"), "continuous integration installs PostgreSQL"
        pytest.skip("PostgreSQL is not installed")
    as_user: dict[str, Any] = {"user": SERVER_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as made:
        data = Path(made) / "data"
        data.mkdir(mode=0o700)
        if as_user:
            os.chmod(made, 0o755)
            shutil.chown(data, SERVER_USER)
        server = PostgreSQL(folder, data, as_user)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL; it ends with the tests."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgresql: PostgreSQL) -> str:
    """The URL of an empty database of PostgreSQL."""
    return postgresql.new_database()


def accepts(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(host="127.0.0.1", port=port, user="tester", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    url: str = request.getfixturevalue("postgres")
    return url
