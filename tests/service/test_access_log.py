"""What the log says: a line a request at info, and nothing alarming of what clients do wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import Any

import httpx
import pytest

from ..servers import STOP_S, running, said
from .conftest import SessionClient
from .raw_http import ask, document, leave, request, status, upgrade
from .streams import Raw, Talk, written

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
JSON = "Content-Type: application/json"


def log_of(process: subprocess.Popen[str]) -> str:
    """What the server has logged, after it has ended."""
    process.send_signal(signal.SIGTERM)
    log = process.communicate(timeout=STOP_S)[1]
    assert process.returncode == 0
    return log


def test_a_line_a_request_at_info() -> None:
    with running("--log-level", "info") as (url, process), httpx.Client(base_url=url, timeout=240) as client:
        session = SessionClient(client, name="secret name")
        session.tensor("weights", [8642097531.5])
        session.get("/tensors/nothing?data=true")
        client.get(session.path.replace("sessions", "%73essions"))
        talk = Talk(session)
        talk.socket.close()
        ask(url, b"nonsense\r\n\r\n")
        ask(url, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        log = log_of(process)
    short = re.escape(session.path.replace(session.id, session.id[:6]) + "...")
    stamp = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ INFO telegrad_service.access: 127.0.0.1 "
    for line in (
        "POST /v1/sessions 201",
        f"POST {short}/tensors 201",
        f"GET {short}/tensors/nothing 404",
        f"WEBSOCKET {short}/stream 101",
        f"WEBSOCKET {short}/stream closed",
    ):
        assert re.search(rf"{stamp}{line} \d+\.\d ms \[[0-9a-f]{{16}}\]$", log, re.MULTILINE), (line, log)
    assert "400 not an HTTP request" in log
    assert max(map(len, log.splitlines())) < 400
    for secret in (session.id, "secret name", "8642097531", "data=true"):
        assert secret not in log


@pytest.mark.full
def test_a_json_object_a_record() -> None:
    flags = ("--log-level", "info", "--log-format", "json")
    with running(*flags) as (url, process), httpx.Client(base_url=url, timeout=240) as client:
        session = SessionClient(client, name="secret name")
        client.get(
            f"{session.path}/tensors/nothing?data=true", headers={"X-Request-ID": "mine", "Authorization": "key"}
        )
        Talk(session).socket.close()
        ask(url, b"nonsense\r\n\r\n")
        log = log_of(process)
    records = [json.loads(line) for line in log.splitlines()]
    for record in records:
        assert {"time", "level", "logger", "message", "request_id"} <= record.keys()
    # A gateway logs the request, too: it knows the route as far as the session.
    *_, found = sorted((each for each in records if each["request_id"] == "mine"), key=lambda each: len(each["route"]))
    short = f"{session.path[: -len(session.id) + 6]}..."
    route = "/v1/sessions/{session}/tensors/{id}"
    expected: dict[str, Any] = {
        "level": "INFO",
        "logger": "telegrad_service.access",
        "client": "127.0.0.1",
        "method": "GET",
    }
    expected |= {"path": f"{short}/tensors/nothing", "route": route, "status": 404, "problem": "unknown-tensor"}
    assert expected.items() <= found.items() and found["duration_ms"] >= 0 and found["tenant"] == "local"
    streams = [record for record in records if "stream" in record]
    assert {each["stream"] for each in streams} == {"opened", "closed"}
    assert len({each["request_id"] for each in streams}) == 1
    for secret in (session.id, "secret name", "data=true", "Authorization", '"key"'):
        assert secret not in log


def json_lines(*outputs: str) -> list[dict[str, Any]]:
    """The records that all lines of a process's output are."""
    return [json.loads(line) for output in outputs for line in output.splitlines()]


@pytest.mark.one_process("what starts the workers in tests prints their addresses as text")
def test_all_that_a_server_says_is_json() -> None:
    with running("--log-level", "debug", "--log-format", "json") as (url, process):
        assert httpx.get(url + "/healthz").status_code == 200
        announced = said(process)  # they may have come with the address
        process.send_signal(signal.SIGTERM)
        messages = [record["message"] for record in json_lines(announced, *process.communicate(timeout=STOP_S))]
    assert any("API key" in message for message in messages)
    assert len([message for message in messages if message.startswith("SIGTERM: ")]) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("from telegrad_service.cli import main; main(['serve', '--log-format=json', '--host=192.0.2.1'])", "API keys"),
        (
            "from telegrad_service.cli import main; main(['serve', '--log-format=json', '--data-dir=/dev/null'])",
            "folder",
        ),
        ("import warnings; warnings.warn('old')", "old"),
        ("import threading; threading.Thread(target=lambda: 1 / 0).start()", "uncaught"),
        ("class Odd:\n    def __del__(self): 1 / 0\nOdd()", "uncaught"),
        ("1 / 0", "uncaught"),
    ],
)
def test_whatever_goes_wrong_is_json(code: str, word: str) -> None:
    code = f"from telegrad_service.observability import logs; logs.configure('warning', 'json')\n{code}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    (record,) = json_lines(run.stdout, run.stderr)
    assert word in record["message"] and record["level"] in ("WARNING", "ERROR", "CRITICAL")


def test_an_idle_server_stops_at_once_and_says_so_in_one_line() -> None:
    with running("--drain-s", str(10 * STOP_S)) as (url, process):
        assert httpx.get(url + "/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=STOP_S)
    assert process.returncode == 0
    assert [line for line in output.splitlines() if "SIGTERM" in line] == [
        f"SIGTERM: stopping; running programs get {10 * STOP_S} s to finish"
    ]
    assert errors == ""


@pytest.mark.full
def test_by_default_neither_requests_nor_mistakes_of_clients_are_logged() -> None:
    with running() as (url, process), httpx.Client(base_url=url, timeout=240) as client:
        session = SessionClient(client)
        programs, stream = f"{session.path}/programs", f"{session.path}/stream"
        wrong = [
            upgrade("/v1/sessions/vanished/stream"),
            upgrade("/nowhere"),
            upgrade("/healthz"),
            upgrade("/docs/swagger-ui.css"),
            upgrade(stream + "?compress=what"),
            upgrade(stream, "Origin: http://evil.example"),
            upgrade(stream).replace(b"Sec-WebSocket-Key", b"Sec-WebSocket-Lock"),
            upgrade(stream).replace(b"GET", b"POST"),
            upgrade("/v1/sessions/\xff/stream"),
            request("GET", "/healthz", "Connection: Upgrade", "Upgrade: h2c"),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            request("OPTIONS", "*"),
            request("TRACE", "/"),
            request("GET", "/%ff%00"),
            request("GET", "/docs/%2e%2e/%2e%2e/etc/passwd%00"),
            request("GET", "/healthz", "Accept: \xff"),
            request("POST", programs, "Content-Length: abc"),
            request("POST", programs, JSON, "Transfer-Encoding: chunked") + b"zz\r\n",
            request("POST", programs, JSON, "Content-Length: 100") + b"{",
            request("POST", programs, JSON, "Telegrad-Sequence: " + "9" * 40, body=b"[]"),
            request("POST", programs, JSON, body=b"nonsense"),
        ]
        for data in wrong:
            for abruptly in (False, True):
                leave(url, data, abruptly)
        assert status(ask(url, wrong[0])) == 404
        for data in wrong[:9]:
            assert 400 <= status(ask(url, data)) < 500, data
        text, short, close = written(0x81, b"text"), written(0x82, b"too short"), written(0x88, b"\x03\xe8")
        for frames in (text, short * 50, close * 3, b"\xff" * 20):
            for wait in (False, True):
                raw = Raw(session)
                raw.socket.sendall(frames)
                if wait:
                    raw.message()
                raw.socket.shutdown(2)
                raw.close()
            leave(url, upgrade(stream) + frames, abruptly=True)
        # A text frame is answered by closing, but the client is gone by then.
        for _ in range(20):
            leave(url, upgrade(stream), abruptly=True)
            raw = Raw(session)
            raw.socket.sendall(short * 3 + text)
            raw.close()
        session.assert_usable()
        assert log_of(process) == ""


@pytest.mark.parametrize("path", ["/nowhere", "/healthz", "/v1/sessions"])
def test_a_stream_where_there_is_none_is_a_problem_document(url: str, path: str) -> None:
    answer = ask(url, upgrade(path))
    assert (status(answer), document(answer)["type"]) == (404, "urn:telegrad:problem:not-found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("", "DELETE, GET, HEAD, PATCH"),
        ("/tensors", "GET, HEAD, POST"),
        ("/tensors/x", "DELETE, GET, HEAD, PATCH"),
        ("/tensors/x/grad", "DELETE, GET, HEAD"),
        ("/programs", "POST"),
    ],
)
def test_a_405_lists_every_method_of_the_path(session: SessionClient, path: str, methods: str) -> None:
    answer = session.request("PUT", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
