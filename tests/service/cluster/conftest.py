"""Clusters that tests share; each test gets two usual workers and two gateways."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from filelock import FileLock

from ..databases import PostgreSQL
from .processes import Cluster, cluster


@pytest.fixture(scope="module", autouse=True)
def ray_in_turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let one module of tests at a time use Ray, whose many processes would otherwise start too slowly."""
    uses_ray = "ray_processes" in Path(request.module.__file__ or "").read_text()
    with FileLock(Path(tempfile.gettempdir()) / "telegrad-tests-ray.lock") if uses_ray else nullcontext():
        yield


@pytest.fixture(scope="session")
def on_sqlite() -> Iterator[Cluster]:
    with cluster(gateways=2) as found:
        yield found


@pytest.fixture(scope="session")
def on_postgresql(postgresql: PostgreSQL) -> Iterator[Cluster]:
    with cluster(gateways=2, database=postgresql.new_database()) as found:
        yield found


@pytest.fixture
def shared(on_sqlite: Cluster) -> Cluster:
    """A cluster on SQLite. A test may do to it what it wants."""
    on_sqlite.restore(workers=2, gateways=2)
    return on_sqlite


@pytest.fixture
def stoppable(on_postgresql: Cluster) -> Cluster:
    """A cluster on PostgreSQL: on SQLite, a process that is stopped in a transaction keeps its lock."""
    on_postgresql.restore(workers=2, gateways=2)
    return on_postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def on_both(request: pytest.FixtureRequest) -> Cluster:
    """The same on SQLite and on PostgreSQL, for tests in which several processes change one row of the directory."""
    found: Cluster = request.getfixturevalue(f"on_{request.param}")
    found.restore(workers=2, gateways=2)
    return found
