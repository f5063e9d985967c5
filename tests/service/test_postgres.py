"""API keys in a real PostgreSQL, which the tests start; skipped where it is not installed.

Internals: the tables are compared with their declarations, which are not public.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import update

from telegrad_service.cli import main
from telegrad_service.cluster import directory, functions, tokens
from telegrad_service.database import Base, Database, DatabaseUnavailable
from telegrad_service.tenants import store

from ..in_process import server_with
from .api_keys import WAIT_S, client_with, command, create_key, id_of, wait_until


@pytest.mark.full
def test_processes_that_start_at_once_create_one_database(database: str) -> None:
    def create(number: int) -> str:
        flags = ["keys", "create", "--tenant", f"team{number % 2}", "--database-url", database]
        run = [sys.executable, "-W", "error", "-m", "telegrad_service.cli", *flags]
        return subprocess.run(run, capture_output=True, text=True, timeout=2 * WAIT_S, check=True).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(create, range(4)))
    listed = command(database, "list")
    assert len(set(keys)) == 4 and all(id_of(key) in listed for key in keys)


@pytest.mark.every
def test_the_tables_are_those_that_are_declared(database: str) -> None:
    opened = Database(database)
    try:
        with opened.open().connect() as connection:
            options = {"compare_type": True, "compare_server_default": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata) == []
        for declared in (store.Tenant, directory.SessionRow, functions.FunctionRow, tokens.ClusterSecret):
            assert declared.__tablename__ in Base.metadata.tables
    finally:
        opened.close()


@pytest.mark.full
def test_a_process_that_stands_still_in_a_transaction_keeps_no_lock(postgres: str) -> None:
    """Or a worker that stops while it renews its lease could not be declared dead."""
    report = directory.Report(sessions=0, max_sessions=1, load=0.0, free_bytes=0)
    with Database(postgres) as still, Database(postgres) as other:
        member = directory.Member("http://127.0.0.1:1", "1", ["cpu"], keeps_sessions=False)
        directory.Directory(still).join("worker", member, 1.0, report)
        with pytest.raises(DatabaseUnavailable, match="idle-in-transaction"), still.transaction(writes=True) as session:
            session.execute(update(directory.WorkerRow).values(load=0.5))
            assert directory.Directory(other).leave("worker")
        [worker] = directory.Directory(still).workers()
        assert not worker.alive and worker.report.load == 0.0


@pytest.mark.full
def test_a_server_with_keys_in_postgresql(postgres: str) -> None:
    key, other = create_key(postgres, "research", "sessions"), create_key(postgres, "lab", "sessions,admin")
    with (
        server_with(database_url=postgres) as url,
        server_with(database_url=postgres) as second,
        client_with(url, key) as client,
        client_with(second, other) as admin,
    ):
        path = client.post("/v1/sessions").headers["location"]
        assert client.get(path).status_code == 200
        assert admin.get(path).status_code == 404
        made = admin.post("/v1/keys", json={"scopes": ["read"], "name": "né"}).json()
        with client_with(url, made["key"]) as both:
            assert both.get("/v1/sessions").status_code == 200
            assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204
            wait_until(lambda: both.get("/v1/sessions").status_code == 401)
        command(postgres, "revoke", id_of(key))
        wait_until(lambda: client.get(path).status_code == 401)
    with pytest.raises(SystemExit, match="no key"):
        command(postgres, "revoke", "x\x00y")
    wrong = f"{postgres}_missing".replace("tester@", "tester:geheim@")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--database-url", wrong])
    assert "missing" in str(ended.value) and "geheim" not in str(ended.value)
