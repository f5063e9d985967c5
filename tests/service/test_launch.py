"""A server that a script starts ends with the script, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

STOP_S = 60
SCRIPT = """
import os, sys, time
from telegrad_service.launch import running_server

with running_server() as url:
    print(url, flush=True)
    {then}
"""
WAIT = "time.sleep(600)"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes in another way")


def start(then: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """A script that has started a server, and the server's address."""
    command, env = [sys.executable, "-c", SCRIPT.format(then=then)], {**os.environ, **environment}
    script = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert script.stdout is not None
    return script, script.stdout.readline().strip()


def ends(url: str) -> bool:
    """Whether the server stops answering, soon."""
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        try:
            httpx.get(url + "/healthz", timeout=5, verify=False)
        except httpx.ConnectError:
            return True
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_a_server_ends_when_its_script_is_killed(number: signal.Signals) -> None:
    script, url = start(WAIT)
    with script:
        assert httpx.get(url + "/healthz").status_code == 200
        script.send_signal(number)
        assert ends(url)


@pytest.mark.parametrize("then", ["1 / 0", "os._exit(4)", "os.abort()"])
def test_a_server_ends_when_its_script_ends(then: str) -> None:
    script, url = start(f"sys.stderr = open(os.devnull, 'w'); {then}")
    with script:
        assert ends(url)


def test_a_forked_child_does_not_keep_the_server_alive(tmp_path: Path) -> None:
    note = tmp_path / "child"
    child = f"time.sleep(120) if os.fork() == 0 else (open({str(note)!r}, 'w').close(), time.sleep(600))"
    script, url = start(child)
    with script:
        while not note.exists():
            time.sleep(0.05)
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        script.kill()
        try:
            assert ends(url)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if script.stdout is not None:
                script.stdout.close()


@pytest.mark.full
def test_a_scripts_server_requires_no_keys_of_its_user(tmp_path: Path) -> None:
    folder = {"XDG_DATA_HOME": str(tmp_path)}
    create = [sys.executable, "-m", "telegrad_service.cli", "keys", "create", "--tenant", "research"]
    subprocess.run(create, check=True, capture_output=True, env={**os.environ, **folder})
    others = {
        "TELEGRAD_DATABASE_URL": f"sqlite:///{tmp_path / 'telegrad' / 'telegrad.db'}",
        "TELEGRAD_REQUIRE_KEYS": "true",
        "TELEGRAD_HOST": "192.0.2.1",
        "TELEGRAD_TLS_CERT": str(tmp_path / "server.pem"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    script, url = start(WAIT, **folder, **others)
    with script:
        assert httpx.get(url + "/v1/sessions").status_code == 200
        assert len(list((tmp_path / "temporary").iterdir())) == 1, "a folder for a database of its own"
        script.terminate()
        assert ends(url)


def test_a_server_and_its_folder_end_with_its_script(tmp_path: Path) -> None:
    script, url = start("pass", TMPDIR=str(tmp_path))
    with script:
        assert ends(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_server_without_the_flag_does_not_read_its_input() -> None:
    command = [sys.executable, "-m", "telegrad_service.cli", "serve", "--port=0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert httpx.get(url + "/healthz").status_code == 200
        process.terminate()
