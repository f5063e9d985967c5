"""Durable sessions: what was answered is there after a crash. Every server here is ended by SIGKILL.

Some tests damage the files of a session, as a failing disk would.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import telegrad as tg

from .. import chaos
from ..servers import running
from . import golden_folders
from .conftest import Sent, SessionClient
from .test_health import slow_program

pytestmark = pytest.mark.one_process(
    "it is about the files that one server leaves for its next start; tests/service/cluster has workers that take over"
)
WAIT_S = 60
SAFETENSORS = "application/vnd.safetensors"
LEAF = {"op": "tensor", "out": ["w"], "attrs": {"data": [1.0, 2.0, 3.0], "requires_grad": True}}
SQUARED = {"op": "mul", "in": ["w", "w"], "out": ["y"]}
SUMMED = {"op": "sum", "in": ["y"], "out": ["loss"]}
BACKWARD = {"op": "backward", "in": [["loss"]]}
DRAWN = {"op": "randn", "out": ["noise"], "attrs": {"size": [4]}}


@contextmanager
def served(folder: Path | str, *flags: str, **options: Any) -> Iterator[tuple[httpx.Client, Any]]:
    """A server on the data folder, and its process.

    Unless flags say otherwise, no journal is long enough for a snapshot, not even where computations take long.
    """
    with (
        running("--data-dir", str(folder), "--snapshot-after-s=600", *flags, **options) as (url, process),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client, process


def again(client: httpx.Client, old: SessionClient, id: str | None = None) -> SessionClient:
    """The session on a server that was started after the old one's, or the one with this id."""
    found = SessionClient.__new__(SessionClient)
    found.client, found.id = client, id or old.id
    found.path = f"/v1/sessions/{found.id}"
    return found


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_session_is_there_after_a_crash(tmp_path: Path, fsync: str) -> None:
    with served(tmp_path, "--fsync", fsync) as (client, process):
        session = SessionClient(client, durable=True, name="run")
        other = SessionClient(client)
        assert session.run(LEAF, SQUARED, SUMMED, BACKWARD, DRAWN).status_code == 200
        noise, gradient = session.data("noise"), session.get("/tensors/w/grad").json()
        graph = session.get("/graph").json()
        process.kill()
    with served(tmp_path) as (client, process):
        session = again(client, session)
        assert [item["name"] for item in client.get("/v1/sessions").json()["items"]] == ["run"]
        assert session.data("noise") == noise
        assert session.get("/tensors/w/grad").json() == gradient
        assert session.get("/graph").json() == graph
        assert session.get().json()["durable"] is True
        assert again(client, other).get().status_code == 404  # it was not durable
        assert session.run(SQUARED | {"out": ["z"]}).status_code == 200
        process.kill()
    with served(tmp_path) as (client, _):
        assert again(client, session).data("z") == [1.0, 4.0, 9.0]


@pytest.mark.full
def test_random_numbers_go_on_where_they_stopped(tmp_path: Path) -> None:
    drawn = []
    with served(tmp_path) as (client, process):
        crashed, whole = (SessionClient(client, durable=True, seed=5) for _ in range(2))
        for session in (crashed, whole):
            assert session.run(DRAWN, {"op": "free", "in": [["noise"]]}).status_code == 200
        assert whole.run(DRAWN).status_code == 200
        drawn.append(whole.data("noise"))
        process.kill()
    with served(tmp_path) as (client, _):
        session = again(client, crashed)
        assert session.run(DRAWN).status_code == 200
        assert session.data("noise") == drawn[0]


def test_a_request_repeated_after_a_crash_is_answered_from_the_record(tmp_path: Path) -> None:
    def add(session: SessionClient, number: int, op: str = "add_") -> httpx.Response:
        return session.post(f"/ops/{op}", {"inputs": ["n", 1]}, headers={"Telegrad-Sequence": str(number)})

    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("n", [0.0])
        added, failed = add(session, 1), add(session, 2, "matmul")
        assert (added.status_code, failed.status_code) == (200, 422)
        process.kill()
    with served(tmp_path) as (client, process):
        session = again(client, session)
        assert add(session, 1).content == added.content
        assert add(session, 2, "matmul").content == failed.content
        assert add(session, 2).status_code == 409
        assert session.data("n") == [1.0]
        assert add(session, 3).status_code == 200
        process.kill()
    with served(tmp_path) as (client, _):
        session = again(client, session)
        assert session.get().json()["sequence"] == 3
        assert session.data("n") == [2.0]


@pytest.mark.full
def test_a_numbered_request_is_in_the_journal_with_its_answer_or_not_at_all(tmp_path: Path) -> None:
    def add(name: str) -> dict[str, Any]:
        return {"op": "add_", "in": [name, 1]}

    numbered = [add("n"), *slow_program(2, "big")]
    with served(tmp_path, "--threads", "1") as (client, process):
        session = SessionClient(client, durable=True)
        for name in ("n", "m"):
            session.tensor(name, [0.0])
        first = Sent(session, *numbered, headers="Telegrad-Sequence: 1\r\n")
        other, endless = Sent(session, add("m")), Sent(session, *slow_program(WAIT_S, "huge"))
        assert other.answer().status_code == 200
        # Other requests wait until the answer to the first one is written, and not only its commands.
        process.kill()
        for each in (first, endless):
            each.close()
    with served(tmp_path) as (client, _):
        session = again(client, session)
        assert session.run(*numbered, headers={"Telegrad-Sequence": "1"}).status_code == 200
        assert (session.data("n"), session.data("m")) == ([1.0], [1.0])


@pytest.mark.full
def test_what_failed_halfway_failed_halfway(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        refused = session.run(LEAF, SQUARED, {"op": "matmul", "in": ["w", 3]}, SUMMED)
        assert refused.status_code == 422
        process.kill()
    with served(tmp_path) as (client, _):
        session = again(client, session)
        assert session.data("y") == [1.0, 4.0, 9.0]
        assert session.get("/tensors/loss").status_code == 404


@pytest.mark.full
def test_a_function_that_the_server_lost_since_is_still_the_journals(tmp_path: Path) -> None:
    body = {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["y"]}], "outputs": ["y"]}
    with served(tmp_path) as (client, process):
        owner, session = SessionClient(client), SessionClient(client, durable=True)
        added = owner.post("/functions", {"name": "squared", "forward": body, "scope": "server"})
        assert added.status_code == 201, added.text
        session.tensor("x", [3.0])
        applied = session.post("/functions/squared/apply", {"inputs": ["x"], "outputs": ["y"]})
        assert applied.status_code == 200, applied.text
        process.kill()
    with served(tmp_path) as (client, _):
        session = again(client, session)
        assert session.data("y") == [9.0]
        assert session.post("/functions/squared/apply", {"inputs": ["x"]}).status_code == 404


@pytest.mark.full
def test_what_a_crash_left_half_written_is_cut_off(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("a", [1.0])
        process.kill()
    journal = tmp_path / "sessions" / session.id / "journal-0.log"
    whole = journal.read_bytes()
    half = whole[: len(whole) // 2]
    for tail in (half, half + b"\0" * 100, whole[:9] + b"\0" * 100, b"\0" * 100, b"\xff" * 10):
        journal.write_bytes(whole + tail)
        with served(tmp_path) as (client, process):
            session = again(client, session)
            assert session.data("a") == [1.0]
            assert journal.read_bytes() == whole
            process.kill()


def test_a_long_journal_has_space_reserved_until_it_is_closed(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        journal = tmp_path / "sessions" / session.id / "journal-0.log"
        for number in range(8):
            session.tensor(f"x{number}", [float(number)] * 2**16)
        process.kill()
    content = journal.read_bytes()
    assert content.endswith(b"\0" * 2**20)
    with served(tmp_path) as (client, process):
        assert again(client, session).data("x7") == [7.0] * 2**16
        process.kill()
    assert journal.read_bytes() == content.rstrip(b"\0")


def test_a_damaged_journal_loses_its_session_and_no_other(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        damaged, sound = (SessionClient(client, durable=True) for _ in range(2))
        for session in (damaged, sound):
            session.tensor("a", [1.0])
            session.tensor("b", [2.0])
        process.kill()
    journal = tmp_path / "sessions" / damaged.id / "journal-0.log"
    content = bytearray(journal.read_bytes())
    content[len(content) // 4] ^= 1
    journal.write_bytes(content)
    with served(tmp_path) as (client, _):
        lost = again(client, damaged).get("/tensors/a")
        assert (lost.status_code, lost.json()["type"]) == (410, "urn:telegrad:problem:session-lost")
        assert again(client, sound).data("b") == [2.0]
        assert again(client, damaged).request("DELETE").status_code == 204


def test_a_full_disk_refuses_a_program_and_keeps_what_was_answered(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))

    with served(tmp_path, prepare=small_files) as (client, _):
        session = SessionClient(client, durable=True)
        session.tensor("a", [1.0])
        data = {"op": "tensor", "out": ["big"], "attrs": {"data": [0.5] * 2**14}}
        refused = session.run(data)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:telegrad:problem:server-busy")
        assert "journal" in refused.json()["detail"]
        assert session.get("/tensors/big").status_code == 404
        assert session.data("a") == [1.0]
        session.tensor("b", [2.0])


@pytest.mark.full
def test_one_server_has_a_data_folder(tmp_path: Path) -> None:
    with served(tmp_path), pytest.raises(AssertionError, match="another server uses the data folder"), served(tmp_path):
        pass


@pytest.mark.full
def test_a_session_that_was_ended_does_not_come_back(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("a", [1.0])
        assert session.request("DELETE").status_code == 204
        process.kill()
    with served(tmp_path) as (client, _):
        assert again(client, session).get().status_code == 404


def test_without_a_data_folder_a_durable_session_is_refused(client: httpx.Client) -> None:
    refused = client.post("/v1/sessions", json={"durable": True})
    assert refused.status_code == 422
    assert "--data-dir" in refused.json()["detail"]


def test_nothing_is_lost_and_nothing_runs_twice_when_a_server_is_killed_under_load() -> None:
    assert chaos.run(2, 1, "--snapshot-after-s", "0.01") > 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 6))
def test_nor_when_it_is_killed_often(seed: int) -> None:
    assert chaos.run(5, seed) > 0


@pytest.mark.full
def test_a_fork_and_an_imported_session_can_be_durable_too(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, name="run")
        assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
        file = session.get("/snapshot").content
        made = [
            session.post("/fork", {"durable": True, "name": "fork"}),
            client.post("/v1/sessions/import?durable=true", content=file, headers={"content-type": SAFETENSORS}),
        ]
        assert [answer.status_code for answer in made] == [201, 201]
        copies = [again(client, session, answer.json()["id"]) for answer in made]
        for copy in copies:
            assert copy.run(BACKWARD).status_code == 200
        damaged = client.post(
            "/v1/sessions/import?durable=true", content=file[:-8], headers={"content-type": SAFETENSORS}
        )
        assert damaged.status_code == 400
        process.kill()
    with served(tmp_path) as (client, _):
        assert len(client.get("/v1/sessions").json()["items"]) == 2
        for copy in copies:
            gradient = again(client, copy).get("/tensors/w/grad")
            assert gradient.json()["data"] == [2.0, 4.0, 6.0], gradient.text


def test_a_cancelled_program_stays_where_it_was_stopped(tmp_path: Path) -> None:
    steps = [{"op": "add_", "in": ["n", 1]}] * 50_000
    with served(tmp_path, "--max-program-s", "0.2") as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("n", [0.0])
        stopped = session.run(*steps)
        assert stopped.json()["type"] == "urn:telegrad:problem:time-limit-exceeded"
        count = session.data("n")
        assert 0 < count[0] < len(steps)
        process.kill()
    with served(tmp_path) as (client, _):
        assert again(client, session).data("n") == count


@pytest.mark.full
def test_an_idle_session_is_on_the_disk_only_and_comes_back(tmp_path: Path) -> None:
    with served(tmp_path, "--unload-s", "0.1") as (client, _):
        session = SessionClient(client, durable=True)
        assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
        snapshot = tmp_path / "sessions" / session.id / "snapshot-1.safetensors"
        while not snapshot.exists():  # the test's time limit ends this
            time.sleep(0.01)
        assert session.run(BACKWARD).status_code == 200
        assert session.get("/tensors/w/grad").json()["data"] == [2.0, 4.0, 6.0]


@pytest.mark.full
@pytest.mark.parametrize("stop", ["killed", "in order"])
def test_the_time_until_a_session_expires_goes_on_after_a_restart(tmp_path: Path, stop: str) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True, ttl_s=3600)
        assert session.run(LEAF).status_code == 200
        before = session.get().json()
        if stop == "killed":
            process.kill()
    used_at = time.time()
    manifest = tmp_path / "sessions" / session.id / "manifest.json"
    noted = json.loads(manifest.read_text())
    assert abs(noted["last_used_at"] - used_at) < 60

    def left(elapsed_s: float) -> float:
        """The seconds until it expires, on a server that starts so long after the last use."""
        noted["last_used_at"] = time.time() - elapsed_s
        manifest.write_text(json.dumps(noted))
        begun = time.time()
        with served(tmp_path) as (client, process):
            (found,) = client.get("/v1/sessions").json()["items"]  # which is no use of the session
            process.kill()
        assert found["created_at"] == before["created_at"]
        ends = datetime.fromisoformat(found["expires_at"]).timestamp()
        noted.update(json.loads(manifest.read_text()))
        return ends - begun

    assert 2600 - 1 < left(1000) < 2600 + WAIT_S
    # The clock on the wall has jumped back, or on.
    assert 3600 - 1 < left(-(10**7)) < 3600 + WAIT_S
    assert 60 - 1 < left(10**7) < 60 + WAIT_S


@pytest.mark.full
def test_a_server_that_stops_in_order_saves_snapshots(tmp_path: Path) -> None:
    with served(tmp_path) as (client, _):
        session = SessionClient(client, durable=True)
        assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
    with served(tmp_path) as (client, _):
        assert (tmp_path / "sessions" / session.id / "snapshot-1.safetensors").exists()
        assert again(client, session).run(BACKWARD).status_code == 200


@pytest.mark.full
def test_a_server_that_ran_a_long_journal_saves_a_snapshot_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("x", [1.0])
        process.kill()
    snapshot = tmp_path / "sessions" / session.id / "snapshot-1.safetensors"
    with served(tmp_path, "--snapshot-after-s", "1e-6") as (client, process):
        assert not snapshot.exists()
        assert again(client, session).data("x") == [1.0]
        assert snapshot.exists()
        process.kill()


@pytest.mark.full
def test_a_tenant_has_one_durable_session_of_a_name(tmp_path: Path) -> None:
    with served(tmp_path) as (client, _):
        session = SessionClient(client, durable=True, name="run")
        taken = client.post("/v1/sessions", json={"durable": True, "name": "run"})
        assert (taken.status_code, taken.json()["session"]) == (409, session.id)
        other = SessionClient(client, durable=True)
        assert other.request("PATCH", json={"name": "run"}).status_code == 409
        assert session.request("PATCH", json={"name": "run"}).status_code == 200
        assert SessionClient(client, name="run").get().status_code == 200  # a name for people only


def members_of(found: Any, expected: Any) -> Any:
    """What was found, without the members of objects that later versions added."""
    if isinstance(expected, dict):
        return {name: members_of(found[name], expected[name]) for name in expected}
    if isinstance(expected, list) and len(found) == len(expected):
        return [*map(members_of, found, expected)]
    return found


@pytest.mark.parametrize("golden", sorted(golden_folders.FOLDER.iterdir()), ids=lambda path: path.name)
def test_the_sessions_of_earlier_versions_are_restored(tmp_path: Path, golden: Path) -> None:
    shutil.copytree(golden, tmp_path, dirs_exist_ok=True)
    expected = json.loads((golden / golden_folders.EXPECTED).read_text())
    with served(tmp_path) as (client, _):
        found = {path: client.get(path).json() for path in expected}
        assert members_of(found, expected) == expected


@pytest.mark.parametrize("flags", [(), ("--snapshot-after-s", "0.001")], ids=["journal", "snapshots"])
def test_programs_that_recur_and_are_planned_survive(tmp_path: Path, flags: tuple[str, ...]) -> None:
    def trained(url: str, **options: Any) -> Any:
        opened = tg.connect(url, seed=1, **options)
        weights = tg.ones(4, requires_grad=True)
        for step in range(60):
            loss = (weights * weights).sum() * 0.01 * step
            loss.backward()
            with tg.no_grad():
                weights -= weights.grad
            weights.grad = None
            loss.item()
        opened.keep({"weights": weights})
        values = weights.tolist()
        assert any(report["planned_runs"] for report in opened.compiled()) or url == "local://"
        opened.close()
        return values

    twin = trained("local://")
    with served(tmp_path, *flags) as (client, process):
        assert trained(str(client.base_url), durable=True, name="run") == twin
        [found] = client.get("/v1/sessions").json()["items"]
        process.kill()
    with served(tmp_path) as (client, _):
        assert client.get(f"/v1/sessions/{found['id']}/tensors/weights").json()["data"] == twin


def test_a_snapshot_has_the_recorded_answers(tmp_path: Path) -> None:
    def add(session: SessionClient) -> httpx.Response:
        return session.post("/ops/add_", {"inputs": ["n", 1]}, headers={"Telegrad-Sequence": "1"})

    with served(tmp_path) as (client, _):
        session = SessionClient(client, durable=True)
        session.tensor("n", [0.0])
        added = add(session)
    with served(tmp_path) as (client, _):  # from a snapshot, because the server stopped in order
        session = again(client, session)
        assert add(session).content == added.content
        assert session.data("n") == [1.0]


def test_arguments_of_every_kind_are_in_the_journal(tmp_path: Path) -> None:
    numbers = [0.5] * 20_000
    with served(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("long", numbers)
        session.tensor("nan", ["NaN", -0.0, "Infinity"])
        assert (
            session.post("/ops/sum", {"inputs": ["long"], "attrs": {"dim": [0]}, "outputs": ["s"]}).status_code == 200
        )
        assert session.request("PATCH", "/tensors/nan", json={"data": [1, 2, 3]}).status_code == 200
        grad = {"outputs": ["l"], "inputs": ["w"], "names": ["g"]}
        assert session.run(LEAF, {"op": "sum", "in": ["w"], "out": ["l"]}).status_code == 200
        assert session.post("/grad", grad).status_code == 200
        names = ("long", "nan", "s", "g")
        expected = [session.data(name) for name in names]
        process.kill()
    with served(tmp_path) as (client, _):
        assert [again(client, session).data(name) for name in names] == expected
