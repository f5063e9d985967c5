"""Durable sessions: what was answered is there for the next server, after a crash and after a stop in order.

Most tests are scenarios that run on the same servers. Some damage the files of a session, as a failing disk would.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import telegrad as tg

from .. import chaos
from ..in_process import telegrad
from . import golden_folders
from .conftest import Sent, SessionClient, served, served_with
from .test_health import slow_program

pytestmark = pytest.mark.one_process(
    "it is about the files that one server leaves for its next start; tests/service/cluster has workers that take over"
)
WAIT_S = 60
SERVERS = 3
"""How many servers, one after another, a scenario may use."""
SAFETENSORS = "application/vnd.safetensors"
LEAF = {"op": "tensor", "out": ["w"], "attrs": {"data": [1.0, 2.0, 3.0], "requires_grad": True}}
SQUARED = {"op": "mul", "in": ["w", "w"], "out": ["y"]}
SUMMED = {"op": "sum", "in": ["y"], "out": ["loss"]}
BACKWARD = {"op": "backward", "in": [["loss"]]}
DRAWN = {"op": "randn", "out": ["noise"], "attrs": {"size": [4]}}


def serving(folder: Path | str, *flags: str, **options: Any) -> Any:
    """A client of a server on the data folder, and its process.

    Unless flags say otherwise, no journal becomes long enough for a snapshot, not even where computations take long.
    """
    return served("--data-dir", str(folder), "--snapshot-after-s=600", *flags, **options)


def serving_here(folder: Path | str, **settings: object) -> Any:
    """A client of a server as that of :func:`serving`, which has no process that could be killed."""
    return served_with(data_dir=str(folder), **{"snapshot_after_s": 600, **settings})


def again(client: httpx.Client, old: SessionClient) -> SessionClient:
    """The session on a server that was started after the old one's."""
    return SessionClient.of(client, old.id)


# Scenarios ---------------------------------------------------------------------------------------

Steps = Generator[None, Any, None]
Scenario = Callable[[httpx.Client, Path], Steps]
"""Gets a client of the first server, and its folder. The first ``yield`` returns when that server has ended, the second
one returns a client of the next server, and so on."""
AFTER_A_CRASH: dict[str, Scenario] = {}
IN_ORDER: dict[str, Scenario] = {}


def after_a_crash(scenario: Scenario) -> Scenario:
    AFTER_A_CRASH[scenario.__name__] = scenario
    return scenario


def in_order(scenario: Scenario) -> Scenario:
    IN_ORDER[scenario.__name__] = scenario
    return scenario


def restart() -> Generator[None, Any, Any]:
    """The server ends, and the next one starts: a client of it."""
    yield
    return (yield)


def failures_of(scenarios: dict[str, Scenario], folder: Path | str, *flags: str, kill: bool) -> dict[str, Exception]:
    """Run scenarios side by side. Return what went wrong, by their names."""
    running: dict[str, Steps] = {}
    failures: dict[str, Exception] = {}

    def go_on(client: httpx.Client | None) -> None:
        for name, scenario in list(running.items()):
            try:
                scenario.send(client)
            except StopIteration:
                del running[name]
            except Exception as error:
                del running[name]
                failures[name] = error

    for number in range(SERVERS):
        with serving(folder, *flags) as (client, process):
            if number == 0:
                running |= {name: scenario(client, Path(folder)) for name, scenario in scenarios.items()}
            go_on(client if number else None)
            if kill:
                process.kill()
        go_on(None)
    assert not running, "more servers are needed"
    return failures


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exception]:
    """What went wrong where servers were killed."""
    return failures_of(AFTER_A_CRASH, tmp_path_factory.mktemp("killed"), kill=True)


@pytest.fixture(scope="module")
def failures_in_order(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exception]:
    """What went wrong where servers stopped in order."""
    return failures_of(IN_ORDER, tmp_path_factory.mktemp("stopped"), kill=False)


@in_order
@after_a_crash
def a_session_is_there(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True, name="run")
    other = SessionClient(client, name="volatile")
    assert session.run(LEAF, SQUARED, SUMMED, BACKWARD, DRAWN).status_code == 200
    noise, gradient = session.data("noise"), session.get("/tensors/w/grad").json()
    graph = session.get("/graph").json()
    client = yield from restart()
    session = again(client, session)
    names = [item["name"] for item in client.get("/v1/sessions", params={"limit": 1000}).json()["items"]]
    assert "run" in names and "volatile" not in names
    assert session.data("noise") == noise
    assert session.get("/tensors/w/grad").json() == gradient
    assert session.get("/graph").json() == graph
    assert session.get().json()["durable"] is True
    assert again(client, other).get().status_code == 404
    assert session.run(SQUARED | {"out": ["z"]}).status_code == 200
    client = yield from restart()
    assert again(client, session).data("z") == [1.0, 4.0, 9.0]


@after_a_crash
def random_numbers_go_on_where_they_stopped(client: httpx.Client, folder: Path) -> Steps:
    crashed, whole = (SessionClient(client, durable=True, seed=5) for _ in range(2))
    for session in (crashed, whole):
        assert session.run(DRAWN, {"op": "free", "in": [["noise"]]}).status_code == 200
    assert whole.run(DRAWN).status_code == 200
    expected = whole.data("noise")
    client = yield from restart()
    session = again(client, crashed)
    assert session.run(DRAWN).status_code == 200
    assert session.data("noise") == expected


def add(session: SessionClient, number: int, op: str = "add_") -> httpx.Response:
    """Add 1 to ``n`` by a numbered request."""
    return session.post(f"/ops/{op}", {"inputs": ["n", 1]}, headers={"Telegrad-Sequence": str(number)})


@in_order
@after_a_crash
def a_repeated_request_is_answered_from_the_record(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    session.tensor("n", [0.0])
    added, failed = add(session, 1), add(session, 2, "matmul")
    assert (added.status_code, failed.status_code) == (200, 422)
    client = yield from restart()
    session = again(client, session)
    assert add(session, 1).content == added.content
    assert add(session, 2, "matmul").content == failed.content
    assert add(session, 2).status_code == 409
    assert session.data("n") == [1.0]
    assert add(session, 3).status_code == 200
    client = yield from restart()
    session = again(client, session)
    assert session.get().json()["sequence"] == 3
    assert session.data("n") == [2.0]


@after_a_crash
def a_program_that_failed_halfway_has_failed_halfway(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    refused = session.run(LEAF, SQUARED, {"op": "matmul", "in": ["w", 3]}, SUMMED)
    assert refused.status_code == 422
    client = yield from restart()
    session = again(client, session)
    assert session.data("y") == [1.0, 4.0, 9.0]
    assert session.get("/tensors/loss").status_code == 404


@after_a_crash
def a_function_that_only_the_last_server_had_is_in_the_journal(client: httpx.Client, folder: Path) -> Steps:
    body = {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["y"]}], "outputs": ["y"]}
    owner, session = SessionClient(client), SessionClient(client, durable=True)
    added = owner.post("/functions", {"name": "squared", "forward": body, "scope": "server"})
    assert added.status_code == 201, added.text
    session.tensor("x", [3.0])
    applied = session.post("/functions/squared/apply", {"inputs": ["x"], "outputs": ["y"]})
    assert applied.status_code == 200, applied.text
    client = yield from restart()
    session = again(client, session)
    assert session.data("y") == [9.0]
    assert session.post("/functions/squared/apply", {"inputs": ["x"]}).status_code == 404


@after_a_crash
def what_a_crash_left_half_written_is_cut_off(client: httpx.Client, folder: Path) -> Steps:
    sessions = [SessionClient(client, durable=True) for _ in range(5)]
    for session in sessions:
        session.tensor("a", [1.0])
    yield
    journals = [folder / "sessions" / session.id / "journal-0.log" for session in sessions]
    whole = [journal.read_bytes() for journal in journals]
    first = whole[0]
    half = first[: len(first) // 2]
    tails = half, half + b"\0" * 100, first[:9] + b"\0" * 100, b"\0" * 100, b"\xff" * 10
    for journal, content, tail in zip(journals, whole, tails, strict=True):
        journal.write_bytes(content + tail)
    client = yield
    for session, journal, content in zip(sessions, journals, whole, strict=True):
        assert again(client, session).data("a") == [1.0]
        assert journal.read_bytes() == content


@after_a_crash
def a_long_journal_has_space_reserved_until_it_is_closed(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    journal = folder / "sessions" / session.id / "journal-0.log"
    for number in range(8):
        session.tensor(f"x{number}", [float(number)] * 2**16)
    yield
    content = journal.read_bytes()
    assert content.endswith(b"\0" * 2**20)
    client = yield
    assert again(client, session).data("x7") == [7.0] * 2**16
    yield
    assert journal.read_bytes() == content.rstrip(b"\0")


@after_a_crash
def a_damaged_journal_loses_its_session_and_no_other(client: httpx.Client, folder: Path) -> Steps:
    damaged, sound = (SessionClient(client, durable=True) for _ in range(2))
    for session in (damaged, sound):
        session.tensor("a", [1.0])
        session.tensor("b", [2.0])
    yield
    journal = folder / "sessions" / damaged.id / "journal-0.log"
    content = bytearray(journal.read_bytes())
    content[len(content) // 4] ^= 1
    journal.write_bytes(content)
    client = yield
    lost = again(client, damaged).get("/tensors/a")
    assert (lost.status_code, lost.json()["type"]) == (410, "urn:telegrad:problem:session-lost")
    assert again(client, sound).data("b") == [2.0]
    assert again(client, damaged).request("DELETE").status_code == 204


@after_a_crash
def an_ended_session_does_not_come_back(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    session.tensor("a", [1.0])
    assert session.request("DELETE").status_code == 204
    client = yield from restart()
    assert again(client, session).get().status_code == 404


@after_a_crash
def a_fork_and_an_imported_session_can_be_durable_too(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, name="to be forked")
    assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
    file, url = session.get("/snapshot").content, "/v1/sessions/import?durable=true"
    made = [
        session.post("/fork", {"durable": True, "name": "fork"}),
        client.post(url, content=file, headers={"content-type": SAFETENSORS}),
    ]
    assert [answer.status_code for answer in made] == [201, 201]
    copies = [SessionClient.of(client, answer.json()["id"]) for answer in made]
    for copy in copies:
        assert copy.run(BACKWARD).status_code == 200
    damaged = client.post(f"{url}&name=damaged", content=file[:-8], headers={"content-type": SAFETENSORS})
    assert damaged.status_code == 400
    client = yield from restart()
    listed = client.get("/v1/sessions", params={"limit": 1000}).json()["items"]
    assert "damaged" not in [item["name"] for item in listed]
    for copy in copies:
        gradient = again(client, copy).get("/tensors/w/grad")
        assert gradient.json()["data"] == [2.0, 4.0, 6.0], gradient.text


@in_order
@after_a_crash
def the_time_until_a_session_expires_goes_on(client: httpx.Client, folder: Path) -> Steps:
    elapsed = {1000: 2600, -(10**7): 3600, 10**7: 60}
    """The seconds since the last use by the clock on the wall, which may jump, and those until the session expires."""
    sessions = [SessionClient(client, durable=True, ttl_s=3600) for _ in elapsed]
    for session in sessions:
        assert session.run(LEAF).status_code == 200
    created = [session.get().json()["created_at"] for session in sessions]
    used_at = time.time()
    yield
    for session, seconds in zip(sessions, elapsed, strict=True):
        manifest = folder / "sessions" / session.id / "manifest.json"
        noted = json.loads(manifest.read_text())
        assert abs(noted["last_used_at"] - used_at) < WAIT_S
        noted["last_used_at"] = time.time() - seconds
        manifest.write_text(json.dumps(noted))
    begun = time.time()
    client = yield
    listed = client.get("/v1/sessions", params={"limit": 1000}).json()["items"]  # which is no use of them
    found = {item["id"]: item for item in listed}
    for session, created_at, left in zip(sessions, created, elapsed.values(), strict=True):
        assert found[session.id]["created_at"] == created_at
        ends = datetime.fromisoformat(found[session.id]["expires_at"]).timestamp()
        assert left - 1 < ends - begun < left + WAIT_S


@after_a_crash
def a_tenant_has_one_durable_session_of_a_name(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True, name="unique")
    taken = client.post("/v1/sessions", json={"durable": True, "name": "unique"})
    assert (taken.status_code, taken.json()["session"]) == (409, session.id)
    other = SessionClient(client, durable=True)
    assert other.request("PATCH", json={"name": "unique"}).status_code == 409
    assert session.request("PATCH", json={"name": "unique"}).status_code == 200
    assert SessionClient(client, name="unique").get().status_code == 200  # a name for people only
    yield


@after_a_crash
def arguments_of_every_kind_are_in_the_journal(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    session.tensor("long", [0.5] * 20_000)
    session.tensor("nan", ["NaN", -0.0, "Infinity"])
    assert session.post("/ops/sum", {"inputs": ["long"], "attrs": {"dim": [0]}, "outputs": ["s"]}).status_code == 200
    assert session.request("PATCH", "/tensors/nan", json={"data": [1, 2, 3]}).status_code == 200
    assert session.run(LEAF, {"op": "sum", "in": ["w"], "out": ["l"]}).status_code == 200
    assert session.post("/grad", {"outputs": ["l"], "inputs": ["w"], "names": ["g"]}).status_code == 200
    names = ("long", "nan", "s", "g")
    expected = [session.data(name) for name in names]
    client = yield from restart()
    assert [again(client, session).data(name) for name in names] == expected


def trained(url: str, **options: Any) -> Any:
    """The weights after many steps whose programs recur, so that they are planned."""
    with tg.connect(url, seed=1, **options) as opened:
        weights = tg.ones(4, requires_grad=True)
        for step in range(60):
            loss = (weights * weights).sum() * 0.01 * step
            loss.backward()
            with tg.no_grad():
                weights -= weights.grad
            weights.grad = None
            loss.item()
        opened.keep({"weights": weights})
        assert any(report["planned_runs"] for report in opened.compiled()) or url == "local://"
        return weights.tolist()


@after_a_crash
def programs_that_recur_and_are_planned_survive(client: httpx.Client, folder: Path) -> Steps:
    twin = trained("local://")
    assert trained(str(client.base_url), durable=True, name="planned") == twin
    listed = client.get("/v1/sessions", params={"limit": 1000}).json()["items"]
    [id] = [item["id"] for item in listed if item["name"] == "planned"]
    client = yield from restart()
    assert client.get(f"/v1/sessions/{id}/tensors/weights").json()["data"] == twin


@in_order
def snapshots_are_saved(client: httpx.Client, folder: Path) -> Steps:
    session = SessionClient(client, durable=True)
    assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
    client = yield from restart()
    assert (folder / "sessions" / session.id / "snapshot-1.safetensors").exists()
    assert again(client, session).run(BACKWARD).status_code == 200


@pytest.mark.every
@pytest.mark.parametrize("scenario", AFTER_A_CRASH)
def test_after_a_crash(failures: dict[str, Exception], scenario: str) -> None:
    if scenario in failures:
        raise failures[scenario]


@pytest.mark.every
@pytest.mark.parametrize("scenario", IN_ORDER)
def test_after_a_stop_in_order(failures_in_order: dict[str, Exception], scenario: str) -> None:
    if scenario in failures_in_order:
        raise failures_in_order[scenario]


# Servers with other flags ------------------------------------------------------------------------


@pytest.mark.full
def test_a_session_is_there_after_a_crash_when_each_program_was_written_to_the_disk(tmp_path: Path) -> None:
    scenario = {"it is there": a_session_is_there}
    assert failures_of(scenario, tmp_path, "--fsync", "always", kill=True) == {}


@pytest.mark.full
def test_programs_that_recur_and_are_planned_survive_in_snapshots(tmp_path: Path) -> None:
    scenario = {"they survive": programs_that_recur_and_are_planned_survive}
    assert failures_of(scenario, tmp_path, "--snapshot-after-s", "0.001", kill=True) == {}


def add_to(name: str) -> dict[str, Any]:
    return {"op": "add_", "in": [name, 1]}


@pytest.mark.full
def test_a_numbered_request_is_in_the_journal_with_its_answer_or_not_at_all(tmp_path: Path) -> None:
    numbered = [add_to("n"), *slow_program(2, "big")]
    with serving(tmp_path, "--threads", "1") as (client, process):
        session = SessionClient(client, durable=True)
        for name in ("n", "m"):
            session.tensor(name, [0.0])
        first = Sent(session, *numbered, headers="Telegrad-Sequence: 1\r\n")
        other, endless = Sent(session, add_to("m")), Sent(session, *slow_program(WAIT_S, "huge"))
        assert other.answer().status_code == 200
        # Other requests wait until the answer to the first one is written, and not only its commands.
        process.kill()
        for each in (first, endless):
            each.close()
    with serving_here(tmp_path) as client:
        session = again(client, session)
        assert session.run(*numbered, headers={"Telegrad-Sequence": "1"}).status_code == 200
        assert (session.data("n"), session.data("m")) == ([1.0], [1.0])


def test_a_full_disk_refuses_a_program_and_keeps_what_was_answered(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))

    with serving(tmp_path, prepare=small_files) as (client, _):
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
    with serving(tmp_path):
        refused = telegrad("serve", "--port=0", f"--data-dir={tmp_path}")
        assert refused.returncode == 1 and "another server uses the data folder" in refused.stderr


def test_without_a_data_folder_a_durable_session_is_refused(client: httpx.Client) -> None:
    refused = client.post("/v1/sessions", json={"durable": True})
    assert refused.status_code == 422
    assert "--data-dir" in refused.json()["detail"]


def test_nothing_is_lost_and_nothing_runs_twice_when_a_server_is_killed_under_load() -> None:
    assert chaos.run(2, 1, "--snapshot-after-s", "0.01") > 0


@pytest.mark.full
def test_nor_when_it_is_killed_often() -> None:
    assert chaos.run(6, 2) > 0


def test_a_cancelled_program_stays_where_it_was_stopped(tmp_path: Path) -> None:
    steps = [{"op": "add_", "in": ["n", 1]}] * 50_000
    with serving(tmp_path, "--max-program-s", "0.2") as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("n", [0.0])
        stopped = session.run(*steps)
        assert stopped.json()["type"] == "urn:telegrad:problem:time-limit-exceeded"
        count = session.data("n")
        assert 0 < count[0] < len(steps)
        process.kill()
    with serving_here(tmp_path) as client:
        assert again(client, session).data("n") == count


@pytest.mark.full
def test_an_idle_session_is_on_the_disk_only_and_comes_back(tmp_path: Path) -> None:
    with serving_here(tmp_path, unload_s=0.1) as client:
        session = SessionClient(client, durable=True)
        assert session.run(LEAF, SQUARED, SUMMED).status_code == 200
        snapshot = tmp_path / "sessions" / session.id / "snapshot-1.safetensors"
        while not snapshot.exists():  # the test's time limit ends this
            time.sleep(0.01)
        while client.get("/v1/sessions").json()["items"][0]["state"] != "unloaded":  # this is no use of the session
            time.sleep(0.01)
        assert session.run(BACKWARD).status_code == 200
        assert session.get("/tensors/w/grad").json()["data"] == [2.0, 4.0, 6.0]


@pytest.mark.full
def test_a_server_that_ran_a_long_journal_saves_a_snapshot_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, process):
        session = SessionClient(client, durable=True)
        session.tensor("x", [1.0])
        process.kill()
    snapshot = tmp_path / "sessions" / session.id / "snapshot-1.safetensors"
    with serving_here(tmp_path, snapshot_after_s=1e-6) as client:
        assert not snapshot.exists()
        assert again(client, session).data("x") == [1.0]
        assert snapshot.exists()


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
    with serving_here(tmp_path) as client:
        found = {path: client.get(path).json() for path in expected}
        assert members_of(found, expected) == expected
