"""Alive, ready, and a clean stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .. import in_process
from ..servers import STOP_S, computing, running, started, telegrad
from .conftest import Sent, SessionClient, problem, served


def slow_program(seconds: float, name: str = "x") -> list[dict[str, object]]:
    """Instructions that keep a session busy for about so long with a tensor, measured here with the same engine."""
    from telegrad_engine.program import parse_program
    from telegrad_engine.session.session import Session

    setup = [{"op": "randn", "out": [name], "attrs": {"size": [1000, 1000]}}]
    step = {"op": "lgamma", "in": [name]}  # tens of milliseconds on any machine
    session = Session()
    session.run(parse_program(setup))
    start = time.thread_time()  # a busy machine must not make it shorter
    session.run(parse_program([step] * 10))
    each = (time.thread_time() - start) / 10
    return setup + [step] * max(10, int(seconds / each))  # type: ignore[list-item, return-value]


def wait_until_taken(client: httpx.Client) -> None:
    """Wait until the one thread of a server computes."""
    deadline = time.monotonic() + STOP_S
    while all(each["state"] != "running" for each in client.get("/v1/sessions").json()["items"]):
        assert time.monotonic() < deadline, "the server never said that it computes"
        time.sleep(0.02)


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    ready = client.get("/readyz").json()
    assert ready["status"] == "ready" and ready["sessions"] < ready["max_sessions"]


def test_the_server_answers_while_a_session_computes(client: httpx.Client, session: SessionClient) -> None:
    other = SessionClient(client)
    program = slow_program(60)
    with ThreadPoolExecutor(1) as pool:
        computed = pool.submit(session.run, *program)
        for _ in range(10):
            assert client.get("/healthz").status_code == 200
            other.assert_usable()
        assert not computed.done()
        client.delete(session.path)
        problem(computed.result(), 409, "cancelled")
    client.delete(other.path)


def test_programs_of_a_session_run_in_order(session: SessionClient) -> None:
    session.tensor("x", [0.0])
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: session.run({"op": "add_", "in": ["x", 1]}, {"op": "fetch", "in": [["x"]]}),
                range(40),
            )
        )
    values = sorted(answer.json()["values"]["x"]["data"][0] for answer in answers)
    assert values == [float(i) for i in range(1, 41)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_a_stop_lets_programs_finish() -> None:
    with served("--drain-s", "120") as (client, process):
        session = SessionClient(client)
        program = [*slow_program(2), {"op": "sum", "in": ["x"], "out": ["s"]}, {"op": "fetch", "in": [["s"]]}]
        sent = Sent(session, *program)
        process.send_signal(signal.SIGTERM)
        while client.get("/readyz").status_code == 200:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)  # a supervisor may send several
        for path in ("/readyz", session.path):
            refused = client.get(path)
            problem(refused, 503, "server-busy")
            assert int(refused.headers["retry-after"]) >= 1
        problem(client.post("/v1/sessions"), 503, "server-busy")
        assert client.get("/healthz").status_code == 200
        assert sent.answer().status_code == 200
        assert process.wait(STOP_S) == 0
        assert process.stderr is not None and process.stderr.read() == ""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_a_stop_does_not_wait_for_ever() -> None:
    with served("--drain-s", "0.2", "--threads", "1") as (client, process):
        session = SessionClient(client)
        program = slow_program(60)

        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(session.run, *program)
            wait_until_taken(client)
            process.send_signal(signal.SIGTERM)
            problem(answer.result(), 503, "server-busy")
        assert process.wait(STOP_S) == 0


def test_the_command() -> None:
    assert telegrad("--version").stdout.startswith("telegrad 0.")
    help_text = in_process.telegrad("serve", "--help").stdout
    for flag in ("--host", "--port", "--max-body-bytes", "--max-sessions", "--session-ttl-s", "--drain-s"):
        assert flag in help_text
    wrong = in_process.telegrad("serve", "--port", "70000")
    assert wrong.returncode != 0 and "port" in wrong.stderr and "Traceback" not in wrong.stderr
    assert in_process.telegrad("serve", "--colour", "red").returncode != 0
    assert in_process.telegrad("dance").returncode != 0


@pytest.mark.parametrize("named", [False, True])
def test_a_server_without_keys_runs_without_the_libraries_of_databases(tmp_path: Path, named: bool) -> None:
    without = "import sys; sys.modules.update(sqlalchemy=None, alembic=None, ray=None); "
    database = [f"--database-url=sqlite:///{tmp_path / 'none.db'}"] if named else []
    arguments = ["-c", f"{without}from telegrad_service.cli import main; main()", "serve", "--port=0", *database]
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
    with started(arguments, environment, None) as (url, _), httpx.Client(base_url=url, timeout=STOP_S) as client:
        SessionClient(client).assert_usable()


def test_the_command_says_what_its_subcommands_do() -> None:
    help_text = " ".join(in_process.telegrad("--help").stdout.split())
    assert "serve Serve sessions over HTTP" in help_text and "health Ask a server" in help_text
    assert in_process.telegrad().stdout.split() == help_text.split()


def test_settings_come_from_the_environment_and_flags_win() -> None:
    environment = {
        "TELEGRAD_MAX_SESSIONS": "3",
        "TELEGRAD_SESSION_TTL_S": "77",
        "TELEGRAD_URL": "http://elsewhere",
    }
    with running("--session-ttl-s", "88", env=environment) as (url, _), httpx.Client(base_url=url) as client:
        assert client.get("/readyz").json()["max_sessions"] == 3 * len(computing(url))
        assert client.post("/v1/sessions").json()["ttl_s"] == 88
        assert url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken(url: str) -> None:
    port = url.rsplit(":", 1)[1]
    answer = telegrad("serve", "--port", port)
    assert answer.returncode != 0
    assert "in use" in answer.stderr and "--port" in answer.stderr and "Traceback" not in answer.stderr
