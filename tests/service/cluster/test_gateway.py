"""Clients of a gateway get the same answers as from one server, although their sessions are on several workers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, TelegradError

from ...chaos import Trainer
from ..api_keys import WAIT_S, client_with, create_key, sqlite, wait_until
from ..conftest import Sent, SessionClient, problem
from ..raw_http import dial, read_answer, request, status
from ..streams import Raw
from ..test_memory import closing_code
from ..test_observation import LEAVES, STEP, observing, step_of, until
from ..test_usage import top
from .processes import Cluster, Started, cluster

pytestmark = pytest.mark.full

MIB = 2**20
LONG = [
    {"op": "zeros", "out": ["n"], "attrs": {"size": [1]}},
    {"op": "zeros", "out": ["big"], "attrs": {"size": [2**21]}},
    *[{"op": "add_", "in": ["big", 1]}] * 20_000,
    {"op": "add_", "in": ["n", 1]},
]
"""Half a minute of computation."""


def test_sessions_are_spread_and_listed_together(shared: Cluster) -> None:
    sessions = [SessionClient(shared.client, name=f"s{number}") for number in range(6)]
    assert all(any(shared.has(worker, each.id) for each in sessions) for worker in shared.workers)
    listed = shared.client.get("/v1/sessions").json()["items"]
    ours = [item for item in listed if item["id"] in {each.id for each in sessions}]
    assert [item["name"] for item in ours] == [f"s{number}" for number in range(6)]
    for item, each in zip(ours, sessions, strict=True):
        assert item["worker"] == each.get().json()["worker"] is not None and item["state"] == "idle"
    pages, cursor = [], ""
    while cursor is not None:
        page = shared.client.get(f"/v1/sessions?limit=2{cursor and f'&cursor={cursor}'}").json()
        pages.append([item["id"] for item in page["items"]])
        cursor = page["next_cursor"]
    assert [each for page in pages for each in page] == [item["id"] for item in listed]
    assert all(len(page) == 2 for page in pages[:-1])
    other = shared.client_of(shared.gateways[1])
    for each in sessions:
        each.client = other  # any gateway serves any session
        each.assert_usable()
        assert other.delete(each.path).status_code == 204
        problem(shared.client.get(each.path), 404, "unknown-session")
    assert not {each.id for each in sessions} & {item["id"] for item in other.get("/v1/sessions").json()["items"]}


def test_the_workers_are_listed(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    session.tensor("x", [1.0])
    listed = {item["name"]: item for item in shared.client.get("/v1/workers").json()["items"]}
    assert len(listed) == 2 and list(listed) == sorted(listed)
    own = listed[session.get().json()["worker"]]
    assert (own["state"], own["device"]) == ("ready", "cpu") and own["sessions"] >= 1 and own["used_bytes"] > 0
    assert {item["url"] for item in listed.values()} == {worker.url for worker in shared.workers}
    shared.client.delete(session.path)


def test_the_console_and_what_it_reads(shared: Cluster) -> None:
    page = shared.client.get("/", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    session = SessionClient(shared.client)
    session.run(*LEAVES)
    with observing(session) as events:
        session.run(*STEP)
        until(events, "scalars")
        until(events, "step")
    assert {box["label"] for box in step_of(session)["boxes"]} == {"w", "x", "matmul", "tanh", "sum"}
    assert session.get("/graph/folded").json()["source"] == "live"
    shared.client.delete(session.path)


def test_a_training_loop_has_the_losses_of_one_in_this_process(shared: Cluster) -> None:
    trainer = Trainer(shared.gateways[0].url, 5)
    trainer.start()
    trainer.wait_for(12)
    trainer.finish()
    with tg.connect(shared.gateways[0].url, stream=False) as session:
        assert (tg.ones(2) * 3).tolist() == [3.0, 3.0]
        assert session.id


def test_two_gateways_make_one_session_of_a_name(on_both: Cluster) -> None:
    clients = [on_both.client_of(gateway) for gateway in on_both.gateways]
    for number in range(5):
        with ThreadPoolExecutor(8) as pool:
            body = {"name": f"run {number}", "durable": True}
            answers = list(pool.map(lambda n: clients[n % 2].post("/v1/sessions", json=body), range(8)))  # noqa: B023
        [made] = [answer for answer in answers if answer.status_code == 201]
        for answer in answers:
            if answer is not made:
                assert problem(answer, 409, "session-exists")["session"] == made.json()["id"]
    first, second = (SessionClient(clients[0], durable=True, name=name) for name in ("one", "two"))
    taken = clients[1].patch(second.path, json={"name": "one"})
    assert problem(taken, 409, "session-exists")["session"] == first.id
    assert clients[1].patch(second.path, json={"name": "three"}).status_code == 200
    assert SessionClient(clients[0], durable=True, name="two").id != second.id


def test_a_request_repeated_at_another_gateway_creates_one_session(shared: Cluster) -> None:
    other, key = shared.client_of(shared.gateways[1]), {"Idempotency-Key": str(uuid4())}
    body = {"name": "once"}
    first, second = (each.post("/v1/sessions", json=body, headers=key) for each in (shared.client, other))
    assert first.status_code == 201 and first.content == second.content
    problem(other.post("/v1/sessions", json={"name": "twice"}, headers=key), 422, "idempotency-mismatch")


def test_a_request_repeated_after_the_worker_died_creates_one_session(shared: Cluster) -> None:
    def create() -> httpx.Response:
        return shared.client.post("/v1/sessions", json={"durable": True}, headers=key)

    key = {"Idempotency-Key": str(uuid4())}
    made = create()
    shared.owner(made.json()["id"]).kill()
    answers = [create()]

    def answered() -> bool:
        answers.append(create())
        return answers[-1].status_code != 503

    wait_until(answered)
    again = answers[-1]
    assert (again.status_code, again.headers["location"]) == (201, made.headers["location"])
    assert again.json()["id"] == made.json()["id"]


def test_a_device_that_no_worker_has_is_refused(shared: Cluster) -> None:
    refused = problem(shared.client.post("/v1/sessions", json={"device": "cuda:7"}), 503, "server-busy")
    assert "'cuda:7'" in refused["detail"] and "cpu" in refused["detail"]
    with pytest.raises(ServerBusy, match="cuda:7"):
        tg.connect(shared.gateways[0].url, device="cuda:7")
    for wrong in ("cuda:x", "tpu", ""):  # no worker will ever have it
        assert "available: cpu" in shared.client.post("/v1/sessions", json={"device": wrong}).json()["detail"]
    names = {item["name"] for item in shared.client.get("/v1/devices").json()["items"]}
    assert "cpu" in names


def test_a_function_of_the_server_is_on_all_workers_and_on_later_ones(shared: Cluster) -> None:
    body = {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["y"]}], "outputs": ["y"]}

    def applied(session: SessionClient) -> Any:
        session.tensor("x", [3.0])
        answer = session.post("/functions/squared/apply", {"inputs": ["x"]})
        return answer.status_code if answer.is_error else session.data(answer.json()["outputs"][0]["id"])

    def names(session: SessionClient) -> list[str]:
        return [item["name"] for item in session.get("/functions").json()["items"]]

    def add(session: SessionClient, name: str) -> int:
        return session.post("/functions", {"name": name, "forward": body, "scope": "server"}).status_code

    sessions = [SessionClient(shared.client) for _ in range(4)]
    assert all(any(shared.has(worker, session.id) for session in sessions) for worker in shared.workers)
    assert add(sessions[0], "squared") == 201
    assert [applied(session) for session in sessions] == [[9.0]] * 4
    for number in range(10):  # meanwhile each worker reads the directory at most once by itself
        assert add(sessions[0], "brief") == 201
        assert [names(session) for session in sessions] == [["brief", "squared"]] * 4
        assert sessions[number % 4].request("DELETE", "/functions/brief?scope=server").status_code == 204
        assert [names(session) for session in sessions] == [["squared"]] * 4
    assert {add(session, "squared") for session in sessions} == {409}
    for worker in shared.workers:
        worker.stop()
    shared.add_worker()
    shared.wait_for_workers(1)
    session = SessionClient(shared.client)
    assert applied(session) == [9.0]
    assert session.request("DELETE", "/functions/squared?scope=server").status_code == 204
    assert session.get("/functions/squared").status_code == 404
    assert add(session, "squared") == 201
    assert session.request("DELETE", "/functions/squared?scope=server").status_code == 204


def test_large_bodies_pass_in_both_directions(shared: Cluster) -> None:
    values = np.random.default_rng(0).standard_normal(8 * MIB).astype(np.float32)
    for stream in (True, False):
        with tg.connect(shared.gateways[0].url, stream=stream):
            assert np.array_equal(tg.tensor(values).add(0).numpy(), values)
    session = SessionClient(shared.client)
    body = values[: 4 * MIB].tobytes()

    def pieces() -> Any:
        for start in range(0, len(body), 100_001):
            yield body[start : start + 100_001]

    npy = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    npy += f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({4 * MIB},), }}".ljust(117).encode() + b"\n"

    def whole() -> Any:
        yield npy
        yield from pieces()

    made = session.request("POST", "/tensors?id=x", content=whole(), headers={"content-type": "application/x-npy"})
    assert made.status_code == 201, made.text
    read = session.get("/tensors/x", headers={"accept": "application/x-npy"})
    assert read.content.endswith(body)
    problem(session.request("POST", "/programs", content=b"{", headers={"content-type": "application/json"}), 400,
            "malformed-request")  # fmt: skip


def test_a_request_is_refused_before_its_body_has_arrived(shared: Cluster) -> None:
    programs = f"{SessionClient(shared.client).path}/programs"
    for path, expected in ((programs, 413), (f"{programs}/nothing", 404)):
        head = request("POST", path, "Content-Type: application/json", f"Content-Length: {2**40}")
        with dial(shared.gateways[0].url) as connection:
            connection.sendall(head + b"[")
            answer = read_answer(connection)
            assert status(answer) == expected, answer


def test_a_client_that_still_sends_gets_the_close_code_of_its_stream(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    too_large = bytes([0x82, 0x80 | 127]) + (2**40).to_bytes(8, "big") + bytes(4)
    for _ in range(10):
        with closing(Raw(session)) as raw:
            with suppress(OSError):
                raw.socket.sendall(too_large + bytes(16 * MIB))
            assert closing_code(raw) == 1009


def test_a_program_stops_when_its_client_goes_away(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    sent = Sent(session, *LONG)
    wait_until_computing(shared)
    sent.close()
    assert session.data("n") == [0.0]  # read after the program, which was stopped


def metrics_of(started: Started) -> str:
    return httpx.get(f"{started.url}/metrics", timeout=WAIT_S).text


def test_events_arrive_while_they_happen(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    with shared.client.stream("GET", f"{session.path}/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        session.assert_usable()
        assert any("program" in line for line in lines)


def test_hop_by_hop_headers_are_not_forwarded(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    host, port = shared.client.base_url.host, shared.client.base_url.port
    with socket.create_connection((host, port)) as connection, connection.makefile("rb") as file:
        lines = [
            f"GET {session.path} HTTP/1.1", f"Host: {host}", "Connection: close, X-Private", "X-Private: 1",
            "TE: trailers", "X-Forwarded-For: 203.0.113.9", "Telegrad-Client: 127.0.0.1:1", "X-Request-ID: mine",
            "", "",
        ]  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        head, _, body = file.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert sorted(names) == sorted(set(names)), "a header was sent twice"
    assert b"x-request-id: mine" in head.lower() and b"telegrad-fenced" not in head
    assert json.loads(body)["id"] == session.id


def test_the_connection_header_cannot_hide_the_length_of_a_body(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    inner = request("DELETE", session.path)  # never read as a request
    for size in (len(inner), 100_000):
        lines = "Connection: Content-Length", f"Content-Length: {size}", "Content-Type: application/json"
        with dial(shared.gateways[0].url) as connection:
            connection.sendall(request("POST", f"{session.path}/programs", *lines) + inner.ljust(size))
            assert status(read_answer(connection)) == 400
    session.assert_usable()


def test_a_page_of_another_site_is_refused_at_the_gateway(shared: Cluster) -> None:
    problem(shared.client.get("/v1/sessions", headers={"Origin": "https://evil.example"}), 403, "forbidden-origin")
    problem(shared.client.post("/v1/sessions", headers={"Host": "evil.example"}), 421, "unknown-host")
    session = SessionClient(shared.client)
    own = {"Origin": str(shared.client.base_url).rstrip("/")}
    assert session.get(headers=own).status_code == 200


def test_an_answer_that_a_gateway_does_not_pass_on_is_no_part_of_the_next(shared: Cluster) -> None:
    session = SessionClient(shared.client, durable=True)
    session.assert_usable()
    first, second = sorted(shared.workers, key=lambda worker: not shared.has(worker, session.id))
    others = [SessionClient(shared.client) for _ in range(4)]
    placed = shared.directory.find(session.id)
    [there] = [row.id for row in shared.directory.workers() if row.url == second.url and row.alive]
    assert placed is not None and shared.directory.assign(placed, there) is not None
    SessionClient.of(shared.client_of(shared.gateways[1]), session.id).assert_usable()
    session.assert_usable()  # the first worker, which was its owner here, says that it has moved
    assert any(shared.has(first, other.id) for other in others)
    for other in others:
        other.assert_usable()


def test_a_gateway_that_starts_again_has_lost_nothing(shared: Cluster) -> None:
    gateway = shared.add_gateway("--port", "0")
    trainer = Trainer(gateway.url, 2, 0.1, durable=True)
    trainer.start()
    for end in (Started.stop, Started.kill):
        trainer.wait_for(trainer.done + 5)
        end(gateway)
        gateway = shared.add_gateway("--port", gateway.url.rpartition(":")[2])
    trainer.wait_for(trainer.done + 5)
    trainer.finish()


def wait_until_computing(found: Cluster) -> None:
    wait_until(lambda: any("telegrad_busy_threads 1.0" in metrics_of(worker) for worker in found.workers))


def test_a_gateway_that_stops_lets_workers_answer_first(shared: Cluster) -> None:
    gateway = shared.add_gateway()
    shared.wait_for_workers(2)
    sent = Sent(SessionClient(shared.client_of(gateway)), *LONG[:1500], {"op": "fetch", "in": [["n"]]})
    wait_until_computing(shared)
    gateway.process.terminate()
    assert sent.answer().json()["values"]["n"]["data"] == [0.0]
    assert gateway.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("headers", ["", "Telegrad-Sequence: 1\r\n"])
def test_a_gateway_that_stops_answers_requests_that_take_longer_than_it_waits(shared: Cluster, headers: str) -> None:
    gateway = shared.add_gateway("--drain-s", "0.2")
    shared.wait_for_workers(2)
    sent = Sent(SessionClient(shared.client_of(gateway)), *LONG, headers=headers)
    wait_until_computing(shared)
    gateway.process.terminate()
    answer = sent.answer()
    assert "gateway stops" in problem(answer, 503, "server-busy")["detail"]
    assert ("retry-after" in answer.headers) == bool(headers)  # a numbered request can be repeated
    assert gateway.process.wait(WAIT_S) == 0


def test_a_gateway_without_a_worker_says_so_and_has_empty_lists() -> None:
    with cluster(0) as found:
        assert found.client.get("/healthz").status_code == 200
        for path in ("/v1/usage", "/v1/sessions", "/v1/devices", "/v1/keys", "/v1/workers"):
            assert found.client.get(path).json()["items"] == [], path
        for path in ("/readyz", "/openapi.json", "/v1/ops", "/v1/optimizers", "/v1/functions"):
            problem(found.client.get(path), 503, "server-busy")
        assert "no worker" in problem(found.client.get("/readyz"), 503, "server-busy")["detail"]
        refused = found.client.post("/v1/sessions")
        assert "no worker" in problem(refused, 503, "server-busy")["detail"] and "retry-after" in refused.headers
        shown = top("--once", "--url", found.gateways[0].url)
        assert shown.returncode == 0, shown.stderr
        assert "gateway: workers 0, sessions 0, streams 0" in shown.stdout and "threads" not in shown.stdout


def test_telegrad_top_shows_the_cluster(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    session.assert_usable()
    shown = top("--once", "--url", shared.gateways[0].url).stdout
    assert "gateway: workers 2, sessions " in shown and "threads" not in shown
    assert shown.splitlines()[-1].split()[0] == "local"


def test_health_and_metrics_are_the_gateways_own(shared: Cluster) -> None:
    assert shared.client.get("/healthz").json()["status"] == "ok"
    ready = shared.client.get("/readyz").json()
    assert ready["status"] == "ready" and ready["max_sessions"] == 512
    metrics = shared.client.get("/metrics").text
    assert 'telegrad_workers{state="ready"} 2.0' in metrics
    assert re.search(r"^telegrad_gateway_deaths_total \d", metrics, re.MULTILINE)
    session = SessionClient(shared.client)
    session.assert_usable()
    [usage] = shared.client.get("/v1/usage").json()["items"]
    assert usage["tenant"] == "local" and usage["programs"] > 0
    assert shared.client.get("/v1/ops/add").json()["name"] == "add"
    assert shared.client.get("/openapi.json").json()["info"]["title"] == "Telegrad"
    assert "text/html" in shared.client.get("/docs").headers["content-type"]


# API keys -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A database, and keys of it: of an administrator, of another tenant, and one that may only read."""
    database = sqlite(tmp_path_factory.mktemp("keys"))
    of = {"lab": ("lab", "sessions,admin"), "other": ("other", "sessions"), "reader": ("lab", "read")}
    return database, {name: create_key(database, tenant, scopes) for name, (tenant, scopes) in of.items()}


@pytest.fixture(scope="module")
def keyed(keys: tuple[str, dict[str, str]]) -> Iterator[str]:
    """The address of a cluster where a tenant may have three sessions."""
    with cluster(0, database=keys[0]) as found:
        for _ in range(2):
            found.add_worker("--max-sessions-per-tenant", "3")
        found.wait_for_workers(2)
        yield found.gateways[0].url


def test_a_tenant_sees_only_its_own_sessions(keyed: str, keys: tuple[str, dict[str, str]]) -> None:
    problem(httpx.get(f"{keyed}/v1/sessions", timeout=WAIT_S), 401, "unauthenticated")
    assert httpx.get(f"{keyed}/docs", timeout=WAIT_S).status_code == 200
    ours, theirs, reading = (client_with(keyed, key) for key in keys[1].values())
    with ours, theirs, reading:
        session = SessionClient(ours)
        session.assert_usable()
        problem(theirs.get(session.path), 404, "unknown-session")
        problem(theirs.delete(session.path), 404, "unknown-session")
        assert theirs.get("/v1/sessions").json()["items"] == []
        assert reading.get(session.path).status_code == 200
        problem(reading.post("/v1/sessions"), 403, "missing-scope")
        problem(reading.delete(session.path), 403, "missing-scope")
        assert len(ours.get("/v1/keys").json()["items"]) == 2
        assert ours.delete(session.path).status_code == 204


def test_a_revoked_key_ends_a_stream(keyed: str, keys: tuple[str, dict[str, str]]) -> None:
    with client_with(keyed, keys[1]["lab"]) as ours:
        made = ours.post("/v1/keys", json={"scopes": ["sessions"], "name": "soon revoked"}).json()
        with tg.connect(keyed, api_key=made["key"]):
            x = tg.ones(2)
            assert x.sum().item() == 2.0
            assert ours.delete(f"/v1/keys/{made['id']}").status_code == 204

            def refused() -> bool:
                try:
                    (x + 1).sum().item()
                except TelegradError as error:
                    assert error.status in (401, 502), error
                    return True
                return False

            wait_until(refused)
        for item in ours.get("/v1/sessions").json()["items"]:
            ours.delete(f"/v1/sessions/{item['id']}")


def test_the_sessions_of_a_tenant_are_counted_on_all_workers(keyed: str, keys: tuple[str, dict[str, str]]) -> None:
    with client_with(keyed, keys[1]["lab"]) as ours, client_with(keyed, keys[1]["other"]) as theirs:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ours.post("/v1/sessions"), range(8)))
        made = [answer.headers["location"] for answer in answers if answer.status_code == 201]
        assert len(made) == 3 and len(ours.get("/v1/sessions").json()["items"]) == 3
        for answer in answers:
            if answer.status_code != 201:
                assert problem(answer, 429, "quota-exceeded")["quota"] == "sessions"
        problem(ours.post(f"{made[0]}/fork"), 429, "quota-exceeded")
        SessionClient(theirs).assert_usable()
        assert ours.delete(made[0]).status_code == 204
        SessionClient(ours).assert_usable()


def test_a_gateway_needs_nothing_that_computes() -> None:
    program = "import sys, telegrad_service.cluster.gateway_app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "telegrad_service.cluster.gateway" in loaded
    assert not {"cupy", "ray", "scipy"}.intersection(loaded)
    assert not [name for name in loaded if name.startswith(("telegrad_engine.compile", "telegrad_service.hosting.in_"))]
