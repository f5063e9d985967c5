"""Clusters on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .processes import Cluster, cluster


@pytest.fixture
def pair(database: str) -> Iterator[Cluster]:
    """Two workers and a gateway."""
    with cluster(database=database) as found:
        yield found


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Two workers and two gateways on SQLite, for tests that kill none of them."""
    with cluster(gateways=2) as found:
        yield found
