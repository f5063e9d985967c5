"""What clients of a gateway get: the same as from one server, though their sessions are on several workers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, TelegradError

from ... import chaos
from ..api_keys import WAIT_S, client_with, create_key, sqlite, wait_until
from ..conftest import Sent, SessionClient, problem
from ..raw_http import dial, read_answer, request, status
from ..streams import Raw
from ..test_memory import closing_code
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
    ours = [item["name"] for item in listed if item["id"] in {each.id for each in sessions}]
    assert ours == [f"s{number}" for number in range(6)]
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


def test_a_training_loop_has_the_losses_of_one_in_this_process(shared: Cluster) -> None:
    remote, local = (chaos.Trainer(url, 5, 60) for url in (shared.gateways[0].url, "local://"))
    remote.train()
    local.train()
    assert remote.losses == local.losses
    with tg.connect(shared.gateways[0].url, stream=False) as session:
        assert (tg.ones(2) * 3).tolist() == [3.0, 3.0]
        assert session.id


@pytest.mark.every
def test_two_gateways_make_one_session_of_a_name(database: str) -> None:
    with cluster(gateways=2, database=database) as found:
        clients = [found.client_of(gateway) for gateway in found.gateways]
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


@pytest.mark.full
def test_a_request_repeated_after_the_worker_died_creates_one_session() -> None:
    with cluster(2) as found:
        key = {"Idempotency-Key": str(uuid4())}
        made = found.client.post("/v1/sessions", json={"durable": True}, headers=key)
        owner = found.owner(made.json()["id"])
        assert owner is not None
        owner.kill()
        answers = [found.client.post("/v1/sessions", json={"durable": True}, headers=key)]

        def answered() -> bool:
            answers.append(found.client.post("/v1/sessions", json={"durable": True}, headers=key))
            return answers[-1].status_code != 503

        wait_until(answered)
        again = answers[-1]
        assert (again.status_code, again.headers["location"]) == (201, made.headers["location"])
        assert again.json()["id"] == made.json()["id"]


def test_no_worker_has_the_device(shared: Cluster) -> None:
    refused = problem(shared.client.post("/v1/sessions", json={"device": "cuda:7"}), 503, "server-busy")
    assert "'cuda:7'" in refused["detail"] and "cpu" in refused["detail"]
    with pytest.raises(ServerBusy, match="cuda:7"):
        tg.connect(shared.gateways[0].url, device="cuda:7")
    for wrong in ("cuda:x", "tpu", ""):  # no worker will ever have it
        assert "available: cpu" in shared.client.post("/v1/sessions", json={"device": wrong}).json()["detail"]
    names = {item["name"] for item in shared.client.get("/v1/devices").json()["items"]}
    assert "cpu" in names


@pytest.mark.full
def test_a_function_of_the_server_is_on_all_workers_and_on_later_ones(database: str) -> None:
    body = {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["y"]}], "outputs": ["y"]}

    def applied(session: SessionClient, name: str) -> Any:
        session.tensor("x", [3.0])
        answer = session.post(f"/functions/{name}/apply", {"inputs": ["x"]})
        return answer.status_code if answer.is_error else session.data(answer.json()["outputs"][0]["id"])

    def names(session: SessionClient) -> list[str]:
        return [item["name"] for item in session.get("/functions").json()["items"]]

    def add(session: SessionClient, name: str) -> httpx.Response:
        return session.post("/functions", {"name": name, "forward": body, "scope": "server"})

    with cluster(database=database) as found:
        sessions = [SessionClient(found.client) for _ in range(4)]
        assert all(any(found.has(worker, each.id) for each in sessions) for worker in found.workers)
        assert add(sessions[0], "squared").status_code == 201
        assert [applied(each, "squared") for each in sessions] == [[9.0]] * 4
        for number in range(10):  # in which each worker reads the directory once of its own accord, at most
            assert add(sessions[0], "brief").status_code == 201
            assert [names(each) for each in sessions] == [["brief", "squared"]] * 4
            assert sessions[number % 4].request("DELETE", "/functions/brief?scope=server").status_code == 204
            assert [names(each) for each in sessions] == [["squared"]] * 4
        assert {add(each, "squared").status_code for each in sessions} == {409}
        found.workers[0].stop()
        found.workers[1].stop()
        found.add_worker()
        later: list[SessionClient] = []

        def created() -> bool:
            if found.client.post("/v1/sessions").status_code == 201:
                later.append(SessionClient(found.client))
            return bool(later)

        wait_until(created)
        [session] = later
        assert applied(session, "squared") == [9.0]
        assert session.request("DELETE", "/functions/squared?scope=server").status_code == 204
        assert session.get("/functions/squared").status_code == 404
        assert add(session, "squared").status_code == 201


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


@pytest.mark.full
def test_a_client_that_goes_on_sending_learns_why_its_stream_was_closed(shared: Cluster) -> None:
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
    wait_until(lambda: any("telegrad_busy_threads 1.0" in metrics_of(worker) for worker in shared.workers))
    sent.close()
    assert session.data("n") == [0.0]  # which is read after the program, that was stopped


def metrics_of(started: Started) -> str:
    return httpx.get(f"{started.url}/metrics", timeout=WAIT_S).text


def test_events_arrive_while_they_happen(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    with shared.client.stream("GET", f"{session.path}/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        session.assert_usable()
        assert any("program" in line for line in lines)


def test_headers_of_the_connection_stay_with_it(shared: Cluster) -> None:
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


def test_a_length_that_is_called_a_header_of_the_connection_is_still_the_bodys(shared: Cluster) -> None:
    session = SessionClient(shared.client)
    inner = request("DELETE", session.path)  # in no case a request of its own
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


@pytest.mark.full
def test_a_gateway_that_starts_again_has_lost_nothing() -> None:
    with cluster(2) as found:
        gateway = found.add_gateway("--port", "0")
        port = gateway.url.rpartition(":")[2]
        trainer = chaos.Trainer(gateway.url, 2, 400, durable=True)
        trainer.start()
        assert trainer.connected.wait(WAIT_S)
        for again in range(2):
            wait_until(lambda: len(trainer.losses) > 5 * (again + 1) or trainer.failure is not None)  # noqa: B023
            (gateway.kill if again else gateway.stop)()
            gateway = found.add_gateway("--port", port)
        trainer.join(2 * WAIT_S)
        assert trainer.failure is None and not trainer.is_alive()
        twin = chaos.Trainer("local://", 2, 400)
        twin.train()
        assert trainer.losses == twin.losses


@pytest.mark.full
def test_a_gateway_that_stops_lets_workers_answer_first() -> None:
    with cluster(1) as found:
        session = SessionClient(found.client)
        sent = Sent(session, *LONG[:1500], {"op": "fetch", "in": [["n"]]})
        wait_until(lambda: "telegrad_busy_threads 1.0" in metrics_of(found.workers[0]))
        found.gateways[0].process.terminate()
        assert sent.answer().json()["values"]["n"]["data"] == [0.0]
        assert found.gateways[0].process.wait(WAIT_S) == 0


@pytest.mark.full
@pytest.mark.parametrize("headers", ["", "Telegrad-Sequence: 1\r\n"])
def test_a_gateway_that_stops_answers_what_it_would_wait_for(headers: str) -> None:
    with cluster(1, gateways=0) as found:
        gateway = found.add_gateway("--drain-s", "0.2")
        found.wait_for_workers(1)
        session = SessionClient(found.client_of(gateway))
        sent = Sent(session, *LONG, headers=headers)
        wait_until(lambda: "telegrad_busy_threads 1.0" in metrics_of(found.workers[0]))
        gateway.process.terminate()
        answer = sent.answer()
        assert "gateway stops" in problem(answer, 503, "server-busy")["detail"]
        assert ("retry-after" in answer.headers) == bool(headers)  # a numbered request can be repeated
        assert gateway.process.wait(WAIT_S) == 0


def test_a_gateway_without_a_worker_says_so_and_has_empty_lists() -> None:
    with cluster(0) as found:
        paths = httpx.get(f"{found.gateways[0].url}/openapi.json")
        problem(paths, 503, "server-busy")
        for path in ("/v1/usage", "/v1/sessions", "/v1/devices", "/v1/keys"):
            assert found.client.get(path).json()["items"] == [], path
        for path in ("/readyz", "/v1/ops", "/v1/optimizers", "/v1/functions"):
            problem(found.client.get(path), 503, "server-busy")
        problem(found.client.post("/v1/sessions"), 503, "server-busy")
        shown = top("--once", "--url", found.gateways[0].url)
        assert shown.returncode == 0, shown.stderr
        assert "gateway: workers 0, sessions 0, streams 0" in shown.stdout and "threads" not in shown.stdout


def test_the_table_at_a_gateway_is_about_the_cluster(shared: Cluster) -> None:
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
    assert 'telegrad_workers{state="ready"} 2.0' in metrics and "telegrad_gateway_deaths_total 0.0" in metrics
    session = SessionClient(shared.client)
    session.assert_usable()
    [usage] = shared.client.get("/v1/usage").json()["items"]
    assert usage["tenant"] == "local" and usage["programs"] > 0
    assert shared.client.get("/v1/ops/add").json()["name"] == "add"
    assert shared.client.get("/openapi.json").json()["info"]["title"] == "Telegrad"
    assert "text/html" in shared.client.get("/docs").headers["content-type"]


@pytest.mark.full
def test_without_a_worker_a_gateway_says_so() -> None:
    with cluster(0) as empty:
        assert empty.client.get("/healthz").status_code == 200
        assert "no worker" in problem(empty.client.get("/readyz"), 503, "server-busy")["detail"]
        refused = empty.client.post("/v1/sessions")
        assert "no worker" in problem(refused, 503, "server-busy")["detail"]
        assert "retry-after" in refused.headers
        assert empty.client.get("/v1/sessions").json()["items"] == []


@pytest.mark.full
def test_without_a_data_folder_durable_sessions_are_refused(tmp_path: Any) -> None:
    with cluster(0) as found:
        found.add_worker(data=False)
        found.wait_for_workers(1)
        refused = found.client.post("/v1/sessions", json={"durable": True})
        assert "--data-dir" in problem(refused, 422, "invalid-value")["detail"]


@pytest.mark.full
def test_tenants_are_apart(tmp_path: Any) -> None:
    database = sqlite(tmp_path)
    key, other, reader = (
        create_key(database, tenant, scopes)
        for tenant, scopes in (("lab", "sessions,admin"), ("other", "sessions"), ("lab", "read"))
    )
    with cluster(database=database) as found:
        url = found.gateways[0].url
        problem(httpx.get(f"{url}/v1/sessions", timeout=WAIT_S), 401, "unauthenticated")
        assert httpx.get(f"{url}/docs", timeout=WAIT_S).status_code == 200
        with client_with(url, key) as ours, client_with(url, other) as theirs, client_with(url, reader) as reading:
            session = SessionClient(ours)
            session.assert_usable()
            problem(theirs.get(session.path), 404, "unknown-session")
            problem(theirs.delete(session.path), 404, "unknown-session")
            assert theirs.get("/v1/sessions").json()["items"] == []
            assert reading.get(session.path).status_code == 200
            problem(reading.post("/v1/sessions"), 403, "missing-scope")
            problem(reading.delete(session.path), 403, "missing-scope")
            assert len(ours.get("/v1/keys").json()["items"]) == 2
            with tg.connect(url, api_key=key) as stream:
                assert tg.ones(2).sum().item() == 2.0
                made = ours.post("/v1/keys", json={"scopes": ["sessions"], "name": "soon revoked"}).json()
                assert stream.id
            with tg.connect(url, api_key=made["key"]):
                x = tg.ones(2)
                assert x.sum().item() == 2.0
                assert ours.delete(f"/v1/keys/{made['id']}").status_code == 204
                ended = threading.Event()

                def refused() -> bool:
                    try:
                        (x + 1).sum().item()
                    except TelegradError as error:
                        assert error.status in (401, 502), error
                        ended.set()
                    return ended.is_set()

                wait_until(refused)


@pytest.mark.every
def test_the_sessions_of_a_tenant_are_counted_on_all_workers(database: str) -> None:
    key, other = (create_key(database, tenant) for tenant in ("lab", "other"))
    with cluster(0, database=database) as found:
        for _ in range(2):
            found.add_worker("--max-sessions-per-tenant", "3")
        found.wait_for_workers(2)
        with client_with(found.gateways[0].url, key) as ours, client_with(found.gateways[0].url, other) as theirs:
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: ours.post("/v1/sessions"), range(8)))
            made = [answer.headers["location"] for answer in answers if answer.status_code == 201]
            assert len(made) == 3 and len(ours.get("/v1/sessions").json()["items"]) == 3
            for answer in answers:
                if answer.status_code != 201:
                    assert problem(answer, 429, "quota-exceeded")["quota"] == "sessions"
            fork = ours.post(f"{made[0]}/fork")
            problem(fork, 429, "quota-exceeded")
            SessionClient(theirs).assert_usable()
            assert ours.delete(made[0]).status_code == 204
            SessionClient(ours).assert_usable()


def test_a_gateway_needs_nothing_that_computes() -> None:
    program = "import sys, telegrad_service.cluster.gateway_app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "telegrad_service.cluster.gateway" in loaded
    assert not {"cupy", "ray", "scipy"}.intersection(loaded)
    assert not [name for name in loaded if name.startswith(("telegrad_engine.compile", "telegrad_service.hosting.in_"))]
