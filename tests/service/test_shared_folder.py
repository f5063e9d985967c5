"""A data folder that several servers share: a session belongs to the one that opened it last.

Internals: two processes write to one journal without servers around it, to stop them between any two steps.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from telegrad_engine.errors import SessionMoved, UnknownSession
from telegrad_service.journal.data_folder import DataFolder
from telegrad_service.journal.session_files import Manifest

from . import golden_folders
from .conftest import SessionClient, problem
from .session_owner import last_number
from .streams import Talk, fetch
from .test_durable import LEAF, SQUARED, serving

ID = "a-session_1"


def manifest(id: str = ID) -> Manifest:
    return Manifest(id=id, tenant="", seed=1, ttl_s=60, created_at=1, last_used_at=1, server_version="0")


class Owner:
    """A process that can own the session."""

    def __init__(self, location: str, fsync: str) -> None:
        command = [sys.executable, "-m", "tests.service.session_owner", location, ID, fsync]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = 0
        """The last number that it acknowledged."""

    def open(self, epoch: int) -> int:
        """Let it open the session. Return the last number that it found."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{epoch}\n")
        self.process.stdin.flush()
        word, _, number = self.line().partition(" ")
        assert word == "opened"
        self.last = int(number)
        return self.last

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the process ended"
        return line

    def write(self, count: int) -> None:
        """Wait until it has acknowledged so many numbers more."""
        for _ in range(count):
            self.last = int(self.line())

    def lose(self) -> None:
        """Wait until it knows that the session is lost."""
        while (line := self.line()).isdecimal():
            self.last = int(line)
        assert line == "moved"

    def stop(self) -> None:
        """Stop it, wherever it is."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        """Let it go on after :meth:`stop`."""
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def owners(location: str, fsync: str) -> Iterator[list[Owner]]:
    """Two processes that can own the session."""
    found = [Owner(location, fsync) for _ in range(2)]
    try:
        yield found
    finally:
        for owner in found:
            owner.process.kill()
            owner.process.communicate()


@pytest.mark.full
@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_an_earlier_owner_acknowledges_nothing_that_the_next_one_does_not_have(tmp_path: Path, fsync: str) -> None:
    data = DataFolder(tmp_path, "everysec", shared=True)
    data.create(manifest())
    check_owners(data, str(tmp_path), fsync, rounds=22, most=100)
    [folder] = (tmp_path / "sessions").iterdir()
    assert len(list(folder.iterdir())) <= 3  # nothing is left over


def check_owners(data: DataFolder, location: str, fsync: str, rounds: int, most: int) -> None:
    """Let two processes take a session over from each other, one of them stopped anywhere."""
    chance = random.Random(fsync)
    with owners(location, fsync) as (owner, other):
        owner.open(1)
        for epoch in range(2, rounds + 2):
            owner.write(chance.randrange(1, most))
            stops = chance.random() < 0.7  # otherwise the two race
            if stops:
                owner.stop()
            found = other.open(epoch)
            if stops:
                owner.go_on()
            owner.lose()
            assert owner.last <= found
            owner, other = other, owner
        owner.write(1)
        owner.stop()
        files = data.open(manifest(), rounds + 2)
        assert last_number(files) >= owner.last
        owner.go_on()
        owner.lose()
    files.close()
    data.close()


def test_a_session_is_taken_over_only_under_a_larger_epoch(tmp_path: Path) -> None:
    data = DataFolder(tmp_path, "everysec", shared=True)
    old = data.create(manifest())
    old.append([b"1"])
    with pytest.raises(SessionMoved):
        data.open(manifest(), 0)
    assert old.owned
    new = data.open(manifest(), 7)
    for epoch in (1, 7):
        with pytest.raises(SessionMoved):
            data.open(manifest(), epoch)
    assert (old.owned, new.owned) == (False, True)
    assert (last_number(new), new.manifest.epoch) == (1, 7)
    new.append([b"2"])
    found = data.find(ID)
    assert found is not None and found.epoch == 7
    new.withdraw()
    assert data.find(ID) is None and list(data.manifests()) == []
    with pytest.raises(UnknownSession):
        data.open(manifest(), 8)
    new.delete()
    assert list((tmp_path / "sessions").iterdir()) == []
    data.close()


@pytest.mark.parametrize("id", ["..", "../x", "a.b", "", "*"])
def test_an_id_names_no_other_folder(tmp_path: Path, id: str) -> None:
    data = DataFolder(tmp_path, "everysec", shared=True)
    data.create(manifest())
    assert data.find(id) is None
    with pytest.raises(UnknownSession):
        data.open(manifest(id), 5)
    data.close()


def test_the_folder_of_a_single_server_can_be_shared_later_and_back(tmp_path: Path) -> None:
    [golden, *_] = golden_folders.FOLDER.iterdir()
    shutil.copytree(golden, tmp_path, dirs_exist_ok=True)
    frames: dict[str, list[bytes]] = {}
    for shared in (False, True, True, False, False):
        data = DataFolder(tmp_path, "everysec", shared)
        for number, found in enumerate(data.manifests()):
            files = data.open(found)
            assert files.manifest.epoch == found.epoch + 1
            content = [bytes(frame.payload) for frame in files.frames()]
            assert frames.setdefault(found.id, content) == content
            files.append([b"%d" % number])
            frames[found.id].append(b"%d" % number)
            files.close()
        data.close()
    assert len(frames) == 3


@pytest.mark.one_process("in a cluster the directory says who has a session")
def test_a_server_that_has_lost_a_session_answers_nothing_for_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        session, other = (SessionClient(client, durable=True) for _ in range(2))
        for each in (session, other):
            assert each.run(LEAF, SQUARED).status_code == 200
        talk = Talk(session)
        talk.ask(1, fetch("w"))
        data = DataFolder(tmp_path, "everysec", shared=True)
        found = data.find(session.id)
        assert found is not None
        files = data.open(found, found.epoch + 1)
        before = [bytes(frame.payload) for frame in files.frames()]
        files.append([b"new"])
        talk.send(2, SQUARED | {"out": ["z"]})
        assert talk.closed() == 1001
        talk.socket.close()
        numbered = {"Telegrad-Sequence": "1", "Telegrad-Sender": "other"}
        for answer in (
            session.get("/tensors/w"),
            session.run(SQUARED | {"out": ["z"]}),
            session.post("/ops/sum", {"inputs": ["w"]}, headers=numbered),
            session.request("DELETE"),
        ):
            problem(answer, 503, "session-moved")
            assert "retry-after" in answer.headers
        assert other.data("y") == [1.0, 4.0, 9.0]
    assert [bytes(frame.payload) for frame in files.frames()] == [*before, b"new"]
    files.close()
    data.close()
