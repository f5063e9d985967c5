"""A busy server's clients wait as long as it asks, send again what had no effect, and give up in time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

import telegrad as tg
from telegrad_engine.errors import ServerBusy, SessionLimit

from ..servers import running_server

REFUSALS = 3


class Front(ThreadingHTTPServer):
    """Stands before a server and refuses each new request ``REFUSALS`` times with a status and a ``Retry-After``."""

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.client = httpx.Client(base_url=url)
        self.status, self.headers = 503, {"retry-after": "0"}
        self.problem = {"type": "urn:telegrad:problem:server-busy", "detail": "busy"}
        self.refused = self.left = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Front

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self) -> None:
        front = self.server
        if self.headers.get("transfer-encoding"):
            raise NotImplementedError
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if front.left:
            front.left -= 1
            front.refused += 1
            status, headers, content = front.status, front.headers, json.dumps(front.problem).encode()
        else:
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            found = front.client.request(self.command, self.path, content=body, headers=kept)
            status, headers, content = (
                found.status_code,
                {"content-type": found.headers.get("content-type", "")},
                found.content,
            )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer


@contextmanager
def standing_before(url: str) -> Iterator[Front]:
    with Front(url) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()
            front.client.close()


@pytest.fixture
def front(server: str) -> Iterator[Front]:
    with standing_before(server) as found:
        yield found


@pytest.mark.parametrize("status", [429, 503])
def test_what_a_busy_server_refuses_is_sent_again_and_runs_once(front: Front, status: int) -> None:
    front.status, front.left = status, REFUSALS
    with tg.connect(front.url, stream=False):
        assert front.refused == REFUSALS
        x = tg.zeros(())
        for count in range(1, 4):
            front.left = 1
            x.add_(1)
            assert x.item() == count
    assert front.refused == REFUSALS + 3


@pytest.mark.full
@pytest.mark.parametrize("headers", [{}, {"retry-after": "3600"}])
def test_an_error_is_raised_if_repeating_does_not_help_or_takes_too_long(front: Front, headers: dict[str, str]) -> None:
    front.headers, front.left = headers, 10**6
    with pytest.raises(ServerBusy, match="busy"):
        tg.connect(front.url)
    assert front.refused == 1


@pytest.mark.parametrize("quota", ["memory", "sessions", "requests"])
def test_a_quota_that_only_its_user_can_free_is_reported_soon(
    front: Front, quota: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    front.status, front.headers, front.left = 429, {"retry-after": "11"}, 1
    front.problem = {"type": "urn:telegrad:problem:quota-exceeded", "detail": "too many", "quota": quota}
    if quota == "requests":  # which others' answers free
        tg.connect(front.url, stream=False).close()
        assert pauses and pauses[0] >= 11
    else:
        with pytest.raises(SessionLimit, match="too many"):
            tg.connect(front.url, stream=False)
        assert not pauses


@pytest.mark.full
def test_a_full_server_and_a_used_up_quota_are_reported_at_once_if_asked_for() -> None:
    with running_server(max_sessions=1) as url, tg.connect(url), pytest.raises(ServerBusy):
        tg.connect(url, retry_s=0)
    with running_server(max_sessions_per_peer=1) as url, tg.connect(url), pytest.raises(SessionLimit):
        tg.connect(url, retry_s=0)


@pytest.mark.full
def test_ctrl_c_ends_the_wait(front: Front) -> None:
    front.headers, front.left = {"retry-after": "50"}, 10**6
    script = "import sys, telegrad as tg; tg.connect(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", script, front.url], stderr=subprocess.PIPE, text=True) as process:
        while not front.refused:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=40)
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.full
def test_a_connection_waits_for_room_on_the_server() -> None:
    with running_server(max_sessions=1) as url:
        first = tg.connect(url)
        found: list[tg.Session] = []
        waiting = threading.Thread(target=lambda: found.append(tg.connect(url)))
        waiting.start()
        first.close()
        waiting.join()
        assert len(found) == 1
        found[0].close()
