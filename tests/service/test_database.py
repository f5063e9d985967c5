"""Several parts of a process open one SQLite database, and other processes write to it.

Internals: the locks of a transaction are seen only while it is open.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy import text

from telegrad_service.database import Database

from .api_keys import sqlite

WRITE = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
"""


def write_elsewhere(database: Database) -> str:
    """What keeps another process from writing; empty if nothing does."""
    tried = subprocess.run(
        [sys.executable, "-c", WRITE, str(database.file)], capture_output=True, text=True, timeout=240, check=False
    )
    return tried.stderr.strip().rpartition("\n")[2]


def test_who_opens_a_database_leaves_the_locks_of_others_alone(tmp_path: Path) -> None:
    first, second = Database(sqlite(tmp_path)), Database(sqlite(tmp_path))
    try:
        with first.transaction(writes=True) as session:
            session.execute(text("SELECT 1"))
            assert "database is locked" in write_elsewhere(first)
            second.open()
            assert "database is locked" in write_elsewhere(first)
        assert not write_elsewhere(first)
    finally:
        first.close()
        second.close()
