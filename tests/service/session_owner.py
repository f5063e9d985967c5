"""A process that writes the journal of a session as long as it owns it, for the tests of shared data folders.

It reads an epoch per line, opens the session under it, says what it found, and appends numbers, each of which it
acknowledges by printing it. After it has lost the session it tries to do damage, and waits for the next epoch.

Internals: a server's part is played by the class that keeps its sessions.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial

import pytest

from telegrad_engine.errors import SessionMoved, TelegradError
from telegrad_service.journal.data_folder import DataFolder
from telegrad_service.journal.session_files import SessionFiles

SNAPSHOT_EVERY = 40


def last_number(files: SessionFiles) -> int:
    """The last number in a session. Raises AssertionError if one before it is missing or there twice."""
    last = int(files.snapshot() or b"0")
    for frame in files.frames():
        if frame.payload:
            number = int(bytes(frame.payload))
            assert number == last + 1, (number, last)
            last = number
    return last


def write(files: SessionFiles, number: int) -> None:
    """Write the next number, into the journal or into a snapshot."""
    text = str(number).encode()
    if number % SNAPSHOT_EVERY:
        files.append([b" " * random.randrange(2**15), text])
    else:
        files.replace([text], [])


def refused(files: SessionFiles) -> None:
    """Try everything that could harm a session that another process owns."""
    for attempt in (
        files.check_owned,
        files.write_manifest,
        files.frames,
        files.withdraw,
        partial(files.append, [b"1"]),
        partial(files.replace, [b"1"], []),
    ):
        _refused(attempt)
    files.delete()


def _refused(attempt: Callable[[], object]) -> None:
    with pytest.raises(SessionMoved):
        attempt()


def main(location: str, session: str, fsync: str) -> None:
    """Own the session again and again."""
    data = DataFolder(location, fsync, shared=True)
    for line in sys.stdin:
        found = data.find(session)
        assert found is not None
        files = data.open(found, int(line))
        number = last_number(files)
        print("opened", number, flush=True)
        try:
            while True:
                write(files, number := number + 1)
                print(number, flush=True)
        except SessionMoved:
            refused(files)
            print("moved", flush=True)
        except TelegradError as error:
            print("failed", error, flush=True)
    data.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
