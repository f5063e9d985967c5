"""A session ends with the kernel of the notebook that opened it: shut down, restarted or killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyter_client.manager import start_new_kernel

from ..servers import running_server

pytestmark = pytest.mark.full

PATIENCE_S = 60
CELL = "execute_request"


class Notebook:
    """A kernel in its own process, and a client that runs cells in it."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(startup_timeout=PATIENCE_S)

    def run(self, code: str) -> str:
        """Run a cell and return its output, or the name of the error that it raised."""
        self.client.execute(code, store_history=False)
        return self.output()

    def output(self) -> str:
        """Return the output of the running cell when it ends."""
        printed = ""
        while True:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=PATIENCE_S)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            elif kind == "error":
                printed += content["ename"]
            elif content.get("execution_state") == "idle" and message["parent_header"]["msg_type"] == CELL:
                return printed

    def restart(self, now: bool) -> None:
        """Restart the kernel after a regular shutdown, or with ``now``, after killing it."""
        self.manager.restart_kernel(now=now)
        self.client.wait_for_ready(timeout=PATIENCE_S)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = Notebook()
    yield notebook
    notebook.client.stop_channels()
    if notebook.manager.is_alive():
        notebook.manager.shutdown_kernel(now=True)
    notebook.manager.cleanup_resources()


def sessions(url: str) -> list[str]:
    return [item["id"] for item in httpx.get(f"{url}/v1/sessions").json()["items"]]


def connect(notebook: Notebook, url: str) -> str:
    """Use a session in a notebook and return its id."""
    printed = notebook.run(
        f"import telegrad as tg; session = tg.connect({url!r}); x = tg.ones(2); x.tolist(); print(session.id)"
    )
    assert sessions(url) == [printed.strip()]
    return printed.strip()


def test_a_kernel_that_is_restarted_ends_its_session(notebook: Notebook) -> None:
    with running_server() as url:  # its heartbeat_ttl_s is a minute
        first = connect(notebook, url)
        notebook.restart(now=False)
        assert sessions(url) == []
        assert connect(notebook, url) != first
        notebook.manager.shutdown_kernel()
        assert sessions(url) == []


def test_the_session_of_a_kernel_that_was_killed_ends_soon(notebook: Notebook) -> None:
    with running_server(heartbeat_ttl_s=0.5) as url:
        first = connect(notebook, url)
        notebook.restart(now=True)
        deadline = time.monotonic() + PATIENCE_S
        while first in sessions(url):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_cell_that_is_interrupted_leaves_the_session_usable(notebook: Notebook) -> None:
    with running_server() as url:
        connect(notebook, url)
        notebook.client.execute(
            "y = tg.ones(700, 700)\n"
            "print('begun', flush=True)\n"
            "while True:\n    y = (y @ y).clamp(max=1.0); y.sum().item()"
        )
        while "begun" not in notebook.client.get_iopub_msg(timeout=PATIENCE_S)["content"].get("text", ""):
            pass
        notebook.manager.interrupt_kernel()
        assert notebook.output() == "KeyboardInterrupt"
        assert notebook.run("print(y[0, 0].item(), (x + 1).tolist())") == "1.0 [2.0, 2.0]\n"
