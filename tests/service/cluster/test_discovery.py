"""Durable sessions move from a single server to a cluster and back, and to a cluster whose database is new."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ...servers import running
from ..api_keys import client_with, sqlite
from ..conftest import SessionClient, problem
from ..streams import ADD
from .processes import cluster


@contextmanager
def alone(data: Path) -> Iterator[httpx.Client]:
    """A client of a server without a cluster."""
    with running("--data-dir", str(data)) as (url, _), client_with(url, None) as client:
        yield client


@contextmanager
def workers(database: str, data: Path, count: int = 2) -> Iterator[httpx.Client]:
    """A client of a cluster."""
    with cluster(0, gateways=1, database=database) as found:
        with ThreadPoolExecutor() as pool:  # at the same time, as `telegrad serve --workers 2` does
            for _ in range(count):
                pool.submit(found.add_worker, "--data-dir", str(data), data=False)
        found.wait_for_workers(count)
        yield found.client


def add(client: httpx.Client, session_id: str) -> float:
    """The value of ``x`` after another 1 was added to it."""
    session = SessionClient.of(client, session_id)
    answer = session.run(ADD, {"op": "fetch", "in": [["x"]]})
    assert answer.status_code == 200, answer.text
    [value] = answer.json()["values"]["x"]["data"]
    return float(value)


def created(client: httpx.Client, name: str) -> str:
    session = SessionClient(client, durable=True, name=name)
    session.tensor("x", [0.0])
    return session.id


def names(client: httpx.Client) -> dict[str, str]:
    return {item["name"]: item["id"] for item in client.get("/v1/sessions").json()["items"]}


@pytest.mark.full
def test_durable_sessions_move_from_a_server_to_a_cluster_and_back(tmp_path: Path) -> None:
    database, data = sqlite(tmp_path), tmp_path / "data"
    with alone(data) as client:
        kept = {name: created(client, name) for name in ("a", "b")}
        assert add(client, kept["a"]) == 1
    with workers(database, data) as client:
        assert names(client) == kept
        assert [add(client, kept["a"]) for _ in range(2)] == [2, 3]
        taken = problem(client.post("/v1/sessions", json={"durable": True, "name": "a"}), 409, "session-exists")
        assert taken["session"] == kept["a"]
        kept["c"] = created(client, "c")
    with alone(data) as client:
        assert names(client) == kept
        assert [add(client, kept[name]) for name in "abc"] == [4, 1, 1]
    with workers(database, data) as client:
        assert names(client) == kept
        assert [add(client, kept[name]) for name in "abc"] == [5, 2, 2]


@pytest.mark.full
def test_durable_sessions_outlive_the_database(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with workers(sqlite(tmp_path / "lost"), data, 1) as client:
        kept = {"a": created(client, "a")}
    with workers(sqlite(tmp_path / "new"), data) as client:
        assert names(client) == kept
        assert add(client, kept["a"]) == 1


@pytest.mark.full
def test_a_session_whose_name_was_taken_meanwhile_is_found_after_it_is_renamed(tmp_path: Path) -> None:
    database, data = sqlite(tmp_path), tmp_path / "data"
    with workers(database, tmp_path / "elsewhere", 1) as client:
        taken = created(client, "a")
    with alone(data) as client:
        left = created(client, "a")
    with workers(database, data, 1) as client:
        assert names(client) == {"a": taken}
        problem(client.get(f"/v1/sessions/{left}"), 404, "unknown-session")
    with alone(data) as client:
        assert client.patch(f"/v1/sessions/{left}", json={"name": "b"}).status_code == 200
    with workers(database, data, 1) as client:
        assert add(client, left) == 1
