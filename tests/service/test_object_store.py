"""Durable sessions in an object store: what was answered is there for the next server, or the answer was an error.

Internals: objects are looked at, deleted and replaced as a failing store would.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, SessionLost, SessionMoved, UnknownSession
from telegrad_service.journal.data_folder import DataFolder
from telegrad_service.journal.session_files import SessionFiles

from .. import chaos
from ..client.cutting import Cutter
from ..in_process import telegrad
from . import test_durable
from .conftest import SessionClient, problem
from .s3_server import BUCKET, CREDENTIALS, s3_server
from .session_owner import last_number
from .test_durable import again, serving, serving_here
from .test_shared_folder import ID, check_owners, manifest

pytestmark = [
    pytest.mark.full,
    pytest.mark.one_process("it is about what one server leaves in the store for the next one"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks S3."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as found:
        yield found


@pytest.fixture
def s3(address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of an empty prefix, which this process and those that it starts can use."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": address}.items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    if not files.exists(BUCKET):
        files.mkdir(BUCKET)
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid))}"


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty store in this process."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield "memory://bucket/prefix"
    files.store.clear()


# A server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_sessions_are_there_for_the_next_server(s3: str, fsync: str) -> None:
    """After a crash if each program was written before its answer, and otherwise after a stop in order."""
    scenarios = (
        test_durable.a_session_is_there,
        test_durable.a_repeated_request_is_answered_from_the_record,
        test_durable.an_ended_session_does_not_come_back,
    )
    named = {scenario.__name__: scenario for scenario in scenarios}
    assert test_durable.failures_of(named, s3, "--fsync", fsync, kill=fsync == "always") == {}


def test_a_training_loop_goes_on_with_the_next_server(s3: str) -> None:
    def trained(url: str, first: int, last: int, **options: Any) -> Any:
        with tg.session("run", url, **options) if url != "local://" else tg.connect(url, **options) as session:
            model = tg.nn.Linear(6, 2)
            if first:
                model.load_state_dict(session.named())
            for step in range(first, last):
                loss = (model(tg.ones(3, 6) * step) ** 2).mean()
                model.zero_grad()
                loss.backward()
                with tg.no_grad():
                    for parameter in model.parameters():
                        assert parameter.grad is not None
                        parameter -= parameter.grad * 0.01
            session.keep(model.state_dict())
            return [parameter.tolist() for parameter in model.parameters()]

    twin = trained("local://", 0, 30, seed=4)
    with serving_here(s3, snapshot_after_s=0.01) as client:
        trained(str(client.base_url), 0, 15, seed=4)
    with serving_here(s3) as client:
        assert trained(str(client.base_url), 15, 30) == twin


@pytest.mark.parametrize("flags", [(), ("--snapshot-after-s", "0.01")], ids=["journals", "snapshots"])
def test_nothing_is_lost_and_nothing_runs_twice_when_a_server_is_killed_under_load(
    s3: str, flags: tuple[str, ...]
) -> None:
    assert chaos.run(2, 1, "--data-dir", s3, "--fsync", "always", *flags, clients=2) > 0


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_store_that_fails_refuses_programs_and_loses_nothing(
    s3: str, address: str, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cutter(address) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        with serving(s3, "--fsync", fsync) as (client, process):
            session = SessionClient(client, durable=True)
            session.tensor("n", [0.0])
            added, number = {"op": "add_", "in": ["n", 1]}, 0
            store.refusing = True
            store.kill()
            while (answer := session.run(added)).status_code == 200:  # everysec notices within a second
                assert fsync == "everysec"
                number += 1
            problem(answer, 503, "server-busy")
            assert address.rpartition(":")[2] not in answer.text and store.url not in answer.text
            problem(client.post("/v1/sessions", json={"durable": True}), 503, "server-busy")
            store.refusing = False
            assert session.data("n") == [number]
            assert session.run(added).status_code == 200
            if fsync == "always":
                process.kill()
        with serving_here(s3) as client:
            assert again(client, session).data("n") == [number + 1]


def test_a_server_does_not_start_on_a_store_that_it_cannot_use(s3: str) -> None:
    refused = telegrad("serve", "--port=0", "--data-dir=s3://no-such-bucket/x")
    assert refused.returncode == 1 and "the data folder s3://no-such-bucket/x cannot be used" in refused.stderr


STARTS = """
import sys
from telegrad_service.cli import main

sys.modules.update(s3fs=None, gcsfs=None)
for url in sys.argv[1:]:
    try:
        main(["serve", "--port=0", f"--data-dir={url}"])
    except SystemExit as end:
        print(end)
"""


def test_a_package_that_is_missing_is_named() -> None:
    named = {"s3://bucket/x": "install telegrad-service[s3]", "gs://bucket/x": "gcsfs", "nope://x": "nope"}
    done = subprocess.run([sys.executable, "-c", STARTS, *named], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(named) and done.stderr == ""
    for text, line in zip(named.values(), lines, strict=True):
        assert text in line


# Several servers ------------------------------------------------------------------------------------


def test_an_earlier_owner_acknowledges_nothing_that_the_next_one_does_not_have(s3: str) -> None:
    data = DataFolder(s3, "always", shared=True)
    data.create(manifest())
    check_owners(data, s3, "always", rounds=8, most=20)


def test_a_session_is_taken_over_only_under_a_larger_epoch(memory: str) -> None:
    data = DataFolder(memory, "always", shared=True)
    old = data.create(manifest())
    old.append([b"1"])
    with pytest.raises(SessionMoved):
        data.open(manifest(), 0)
    old.append([b"2"])
    new = data.open(manifest(), 7)
    for epoch in (1, 7):
        with pytest.raises(SessionMoved):
            data.open(manifest(), epoch)
    assert (last_number(new), new.manifest.epoch) == (2, 7)
    for attempt in (lambda: old.append([b"3"]), old.frames, old.write_manifest, old.withdraw):
        with pytest.raises(SessionMoved):
            attempt()
    assert last_number(new) == 2
    new.append([b"3"])
    new.replace([b"3"], [])
    new.append([b"4"])
    assert last_number(data.open(manifest())) == 4
    data.close()


def test_a_session_that_was_ended_does_not_come_back(memory: str) -> None:
    data = DataFolder(memory, "always", shared=True)
    old = data.create(manifest())
    new = data.open(manifest())
    new.withdraw()
    new.delete()
    for attempt in (new.write_manifest, old.write_manifest, lambda: old.append([b"1"])):
        with pytest.raises(SessionMoved):
            attempt()
    assert data.find(ID) is None and data.manifests() == []
    with pytest.raises(UnknownSession):
        data.open(manifest())
    data.close()


# Objects --------------------------------------------------------------------------------------------


def objects(kind: str) -> list[str]:
    """The paths of the objects of a kind."""
    return sorted(path for path in fsspec.filesystem("memory").store if f"/{kind}" in path)


def test_a_session_has_few_objects(memory: str) -> None:
    data = DataFolder(memory, "always")
    files = data.create(manifest())
    for number in range(1, 200):
        files.append([str(number).encode()])
    assert len(objects("journal")) == 1
    files.append([b" " * 100_000, b"200"])
    files.append([b"201"])
    assert len(objects("journal")) == 2
    assert last_number(data.open(manifest())) == 201
    files = data.open(manifest())
    last_number(files)
    files.replace([b"201"], [])
    assert (len(objects("journal")), len(objects("snapshot")), len(objects("owners"))) == (1, 1, 2)
    data.close()


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_a_missing_object_loses_its_session(memory: str, kind: str) -> None:
    data = DataFolder(memory, "always")
    files = data.create(manifest())
    last_number(files)
    files.replace([b"1"], [])
    for number in range(2, 5):
        files.append([b" " * 100_000, str(number).encode()])
    fsspec.filesystem("memory").rm_file(objects(kind)[0])
    files = data.open(manifest())
    with pytest.raises(SessionLost):
        last_number(files)
    data.close()


class Failing:
    """A store whose writes fail when they are told to, before or after they have had their effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = self.after = ""
        """The substring of paths whose writes fail."""
        cls = type(fsspec.filesystem("memory"))
        whole = cls.pipe_file

        def pipe_file(files: Any, path: str, *arguments: Any, **options: Any) -> None:
            if self.before and self.before in path:
                raise ConnectionError("no route to the store")
            whole(files, path, *arguments, **options)
            if self.after and self.after in path:
                raise TimeoutError("the store's answer was lost")

        monkeypatch.setattr(cls, "pipe_file", pipe_file)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["journal-0", "journal-1", "snapshot", "owners"])
def test_what_was_refused_has_no_effect_later(
    memory: str, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    data = DataFolder(memory, "always")
    files = data.create(manifest())
    files.append([b"1"])
    store = Failing(monkeypatch)
    setattr(store, when, kind)
    for _ in range(2):
        with pytest.raises(ServerBusy):
            if kind == "journal-0":
                files.append([b"9"])
            else:
                files.replace([b"9"], [])
    setattr(store, when, "")
    files.append([b"2"])
    assert last_number(files) == 2
    assert last_number(data.open(manifest())) == 2
    data.close()


def test_nobody_waits_for_a_store_that_is_slow(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = type(fsspec.filesystem("memory"))
    whole, begun, goes_on = cls.pipe_file, threading.Event(), threading.Event()

    def pipe_file(files: Any, path: str, *arguments: Any, **options: Any) -> None:
        if "journal" in path:
            begun.set()
            goes_on.wait()
        whole(files, path, *arguments, **options)

    data = DataFolder(memory, "everysec")
    files = data.create(manifest())
    last_number(files)
    monkeypatch.setattr(cls, "pipe_file", pipe_file)
    files.append([b" " * 100_000, b"1"])
    begun.wait()
    files.append([b"2"])  # while the first one is on its way
    assert not files.waits
    goes_on.set()
    data.close()
    assert last_number(DataFolder(memory, "always").open(manifest())) == 2


def test_what_was_acknowledged_is_written_as_soon_as_the_store_works_again(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataFolder(memory, "everysec")
    files: SessionFiles = data.create(manifest())
    last_number(files)
    store = Failing(monkeypatch)
    store.before = "journal"
    number = 0
    with pytest.raises(ServerBusy):
        while True:
            files.append([str(number + 1).encode()])
            number += 1
    with pytest.raises(ServerBusy):  # rather than a session without what was acknowledged
        files.frames()
    store.before = ""
    files.append([str(number + 1).encode()])
    data.close()
    assert last_number(DataFolder(memory, "always").open(manifest())) == number + 1
