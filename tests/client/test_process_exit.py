"""A session ends with the process that opened it, a script, a prompt or the kernel of a notebook, however it ends.

Internals: the heartbeats are stopped, so that the open stream alone is a sign of life.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyter_client.manager import start_new_kernel

import telegrad as tg

from ..servers import running_server

pytestmark = pytest.mark.full

PATIENCE_S = 240
HTTP = httpx.Client(verify=False)
BRIEF_S = 0.5
"""The server's heartbeat_ttl_s in tests whose client dies without a word."""
OPENED = """
import os, signal, sys, threading, time
import telegrad as tg

session = tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 4.0, 6.0]
waiting = x * 3  # recorded and never sent
print(session.id, flush=True)
"""
ORDERLY = {
    "the end of the script": "",
    "sys.exit": "sys.exit(3)",
    "an exception": "raise ValueError",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "SIGTERM while a lock is held": """
        with session.recorder.lock:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    """,
    "a handler of SIGTERM": """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """,
    "a warning that is an error": """
        import warnings
        warnings.simplefilter("error")
        a = tg.linalg.inv(tg.zeros(2, 2))
        b = [tg.ones(1) for _ in range(2000)]
    """,
    "a thread that waits for an answer": """
        y = tg.ones(1200, 1200)
        for _ in range(40):
            y = (y @ y).clamp(max=1.0)
        threading.Thread(target=y.sum().item, daemon=True).start()
        time.sleep(0.1)
    """,
    "a second session": "tg.connect(sys.argv[1])",
}
ABRUPT = {
    "SIGHUP": "os.kill(os.getpid(), signal.SIGHUP); time.sleep(60)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)",
    "os._exit": "os._exit(0)",
    "another program": "os.execv(sys.executable, [sys.executable, '-c', ''])",
}


def both_paths(ways: Iterable[str], *by_requests: str) -> list[tuple[str, str]]:
    """All ways with a stream, and the given ones with requests."""
    return [("stream", way) for way in ways] + [("requests", way) for way in by_requests]


@pytest.fixture(params=["stream", "requests"])
def path(request: pytest.FixtureRequest) -> str:
    """The transport of programs."""
    return str(request.param)


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    """A server that waits a minute for a heartbeat, so a session that ends sooner was ended by its client."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """A server with a short heartbeat_ttl_s."""
    with running_server(heartbeat_ttl_s=BRIEF_S) as url:
        yield url


def sessions(url: str) -> list[str]:
    """The ids of a server's sessions."""
    return [item["id"] for item in HTTP.get(f"{url}/v1/sessions").json()["items"]]


def wait_until_gone(url: str, session: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while session in sessions(url):
        assert time.monotonic() < deadline, "the session has not ended"
        time.sleep(0.05)


def printed(code: str, *arguments: str) -> str:
    """Run a script until it ends in any way, and return its output."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert process.stdout, process.stderr
    return process.stdout


def run(code: str, *arguments: str) -> str:
    """Run a script until it ends, and return the id of its session."""
    return printed(code, *arguments).split()[0]


@pytest.mark.parametrize(
    ("path", "way"), both_paths(ORDERLY, "the end of the script", "SIGINT", "SIGTERM", "a second session")
)
def test_a_session_ends_with_its_script(own: str, path: str, way: str) -> None:
    session = run(OPENED + textwrap.dedent(ORDERLY[way]), own, path)
    assert session
    assert sessions(own) == []


@pytest.mark.parametrize(("path", "way"), both_paths(ABRUPT, "SIGKILL", "another program"))
def test_a_session_ends_soon_after_a_process_that_was_killed(impatient: str, path: str, way: str) -> None:
    session = run(OPENED + ABRUPT[way], impatient, path)
    wait_until_gone(impatient, session)


def test_a_killed_process_has_a_while_in_which_another_may_attach(own: str, path: str) -> None:
    session = run(OPENED + ABRUPT["SIGKILL"], own, path)
    with tg.connect(own, session=session, stream=path == "stream") as attached:
        assert attached.id == session
        assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]
    assert session in sessions(own)
    HTTP.delete(f"{own}/v1/sessions/{session}")


@pytest.mark.parametrize("path", ["requests"])
def test_a_process_that_only_lives_keeps_its_session(path: str) -> None:
    with running_server(heartbeat_ttl_s=3) as url, tg.connect(url, stream=path == "stream") as session:
        x = tg.ones(2)
        assert x.tolist() == [1.0, 1.0]
        time.sleep(4.5)
        assert sessions(url) == [session.id]
        assert (x + 1).tolist() == [2.0, 2.0]


def test_an_open_stream_is_a_sign_of_life(impatient: str) -> None:
    with tg.connect(impatient, stream=True) as session:
        transport: Any = session.recorder.transport
        transport._heartbeats.stop()
        x = tg.ones(2)
        assert x.tolist() == [1.0, 1.0]
        time.sleep(4 * BRIEF_S)
        assert (x + 1).tolist() == [2.0, 2.0]


# Interactive ------------------------------------------------------------------------------------


def test_a_session_ends_with_a_prompt_that_is_fed_by_a_pipe(own: str) -> None:
    lines = OPENED.replace("sys.argv[1]", repr(own)).replace('sys.argv[2] == "stream"', "True")
    command = [sys.executable, "-i", "-q"]
    process = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert process.returncode == 0
    assert process.stdout.strip(), process.stderr
    assert sessions(own) == []


PROMPT = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that the terminal's Ctrl-C is for this process
os.execv(sys.executable, [sys.executable, "-q"])
"""


class Terminal:
    """A Python prompt in its own terminal."""

    def __init__(self) -> None:
        self.end, child_end = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROMPT],
            stdin=child_end,
            stdout=child_end,
            stderr=child_end,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb", "PYTHON_BASIC_REPL": "1"},
        )
        os.close(child_end)
        self.shown = ""
        self.read_until(">>> ")

    def read_until(self, text: str) -> str:
        """Return the output of the prompt up to ``text``."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert select.select([self.end], [], [], deadline - time.monotonic())[0], self.shown
            self.shown += os.read(self.end, 1000).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def write(self, text: str) -> None:
        os.write(self.end, text.encode())

    def leave(self) -> None:
        """Press Ctrl-D, and wait for the prompt to end."""
        self.read_until(">>> ")  # before that, the terminal would take it as the end of a line
        self.write("\x04")
        self.process.wait(PATIENCE_S)


@contextmanager
def prompt(url: str) -> Iterator[tuple[Terminal, str]]:
    """Yield a prompt that has connected, and the id of its session."""
    terminal = Terminal()
    try:
        terminal.write(f"import telegrad as tg; session = tg.connect({url!r}); x = tg.ones(2); x; print(session.id)\n")
        terminal.read_until("tensor([1., 1.])")
        terminal.read_until(">>> ")
        (session,) = sessions(url)
        yield terminal, session
        terminal.leave()
    finally:
        os.close(terminal.end)


def test_an_interrupted_prompt_goes_on_and_ends_its_session(own: str) -> None:
    with prompt(own) as (terminal, _):
        terminal.write("import time; time.sleep(60)\n")
        terminal.read_until("sleep(60)\r\n")
        time.sleep(0.2)
        terminal.write("\x03")  # Ctrl-C
        terminal.read_until("KeyboardInterrupt")
        terminal.read_until(">>> ")
        terminal.write("x + 1\n")
        terminal.read_until("tensor([2., 2.])")
    assert sessions(own) == []


# Notebooks --------------------------------------------------------------------------------------

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


def connect(notebook: Notebook, url: str) -> str:
    """Use a session in a notebook and return its id."""
    printed = notebook.run(
        f"import telegrad as tg; session = tg.connect({url!r}); x = tg.ones(2); x.tolist(); print(session.id)"
    )
    assert sessions(url) == [printed.strip()]
    return printed.strip()


def test_a_kernel_that_is_restarted_ends_its_session(notebook: Notebook, own: str) -> None:
    first = connect(notebook, own)
    notebook.restart(now=False)
    assert sessions(own) == []
    assert connect(notebook, own) != first
    notebook.manager.shutdown_kernel()
    assert sessions(own) == []


def test_the_session_of_a_kernel_that_was_killed_ends_soon(notebook: Notebook, impatient: str) -> None:
    first = connect(notebook, impatient)
    notebook.restart(now=True)
    wait_until_gone(impatient, first)


def test_a_cell_that_is_interrupted_leaves_the_session_usable(notebook: Notebook, own: str) -> None:
    connect(notebook, own)
    notebook.client.execute(
        "y = tg.ones(700, 700)\nprint('begun', flush=True)\nwhile True:\n    y = (y @ y).clamp(max=1.0); y.sum().item()"
    )
    while "begun" not in notebook.client.get_iopub_msg(timeout=PATIENCE_S)["content"].get("text", ""):
        pass
    notebook.manager.interrupt_kernel()
    assert notebook.output() == "KeyboardInterrupt"
    assert notebook.run("print(y[0, 0].item(), (x + 1).tolist()); session.close()") == "1.0 [2.0, 2.0]\n"


# Threads ----------------------------------------------------------------------------------------


def test_a_session_that_a_thread_opened_ends_with_the_thread(own: str, path: str) -> None:
    code = """
        def work():
            with_me = tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
            (tg.ones(3) * 2).tolist()
            del with_me

        for _ in range(3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        import gc, httpx
        gc.collect()
        print([item["id"] for item in httpx.get(sys.argv[1] + "/v1/sessions").json()["items"]] == [session.id])
    """
    script = OPENED + textwrap.dedent(code)
    assert printed(script, own, path).split()[1:] == ["True"]
    assert sessions(own) == []


def test_threads_that_use_a_session_do_not_outlive_it(own: str, path: str) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(4)
        def work(_):
            tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
            return (tg.ones(3) * 2).sum().item()
        assert list(pool.map(work, range(8))) == [6.0] * 8
        waits = threading.Event()
        def wait():
            tg.connect(sys.argv[1])
            tg.ones(3).tolist()
            waits.set()
            time.sleep(60)
        threading.Thread(target=wait, daemon=True).start()
        waits.wait()
    """
    run(OPENED + textwrap.dedent(code), own, path)
    assert sessions(own) == []


# Other processes --------------------------------------------------------------------------------

FORKED = (
    OPENED
    + """
def use_own():
    with tg.connect(sys.argv[1], stream=sys.argv[2] == "stream"):
        assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]
    tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
    assert (tg.ones(2) + 2).tolist() == [3.0, 3.0]

def go_on():
    assert (x * 2).tolist() == [2.0, 4.0, 6.0]
    print("went on", flush=True)
"""
)
CHILDREN = ("sys.exit(0)", "raise ValueError", "os.kill(os.getpid(), signal.SIGTERM)", "use_own(); sys.exit(0)")
"""The ways in which a child ends."""


def test_a_forked_child_that_ends_does_not_end_its_parents_session(own: str, path: str) -> None:
    code = """
        for way in sys.argv[3:]:
            child = os.fork()
            if not child:
                exec(way)
                os._exit(1)
            os.waitpid(child, 0)
            go_on()
    """
    shown = printed(FORKED + textwrap.dedent(code), own, path, *CHILDREN)
    assert shown.count("went on") == len(CHILDREN)
    assert sessions(own) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_sessions_of_a_multiprocessing_worker_end_with_it(own: str, path: str, tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys
            import httpx
            import telegrad as tg

            def work(number):
                tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
                return (tg.ones(2) * number).tolist()

            if __name__ == "__main__":
                session = tg.connect(sys.argv[1], stream=sys.argv[2] == "stream")
                x = tg.ones(2)
                x.tolist()
                process = multiprocessing.get_context(sys.argv[3]).Process(target=work, args=(2,))
                process.start()
                process.join()
                assert process.exitcode == 0
                left = [item["id"] for item in httpx.get(sys.argv[1] + "/v1/sessions").json()["items"]]
                assert left == [session.id], left
                assert (x + 1).tolist() == [2.0, 2.0]
                print("went on")
            """
        )
    )
    command = [sys.executable, str(script), own, path, method]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert process.stdout == "went on\n", process.stderr
    assert sessions(own) == []


# Attaching --------------------------------------------------------------------------------------


def test_an_attached_session_is_the_same_and_stays(own: str, path: str) -> None:
    created = HTTP.post(f"{own}/v1/sessions", json={"dtype": "float64"}).json()["id"]
    address = f"{own}/v1/sessions/{created}"
    HTTP.post(f"{address}/tensors", json={"id": "x", "data": [1.0, 2.0]}).raise_for_status()
    for _ in range(2):  # the ids would collide if each client did not have its own
        with tg.connect(own, session=created, stream=path == "stream") as first:
            y = tg.ones(2)
            with tg.connect(own, session=created, stream=path == "stream") as second:
                assert first.id == second.id == created
                z = tg.zeros(2)
                assert z.dtype is tg.float64
                assert (z + 3).tolist() == [3.0, 3.0]
            assert (y + 1).tolist() == [2.0, 2.0]
    assert HTTP.get(f"{address}/tensors/x").json()["data"] == [1.0, 2.0]
    httpx.delete(address).raise_for_status()


def test_an_attached_client_leaves_nothing_behind(own: str, path: str) -> None:
    created = HTTP.post(f"{own}/v1/sessions").json()["id"]
    address = f"{own}/v1/sessions/{created}"
    HTTP.post(f"{address}/tensors", json={"id": "z", "data": [1.0]}).raise_for_status()
    for _ in range(3):
        with tg.connect(own, session=created, stream=path == "stream"):
            double = tg.compile(lambda x: x * 2)
            kept = [double(tg.full((2,), float(i))) for i in range(1200)]
            assert kept[-1].tolist() == [2398.0, 2398.0]
    assert [item["id"] for item in HTTP.get(f"{address}/tensors").json()["items"]] == ["z"]
    httpx.delete(address).raise_for_status()


def test_processes_that_share_a_session_compile_functions_of_their_own(own: str, path: str) -> None:
    created = HTTP.post(f"{own}/v1/sessions").json()["id"]
    code = """
        import os, signal, sys
        import telegrad as tg
        tg.connect(sys.argv[1], session=sys.argv[3], stream=sys.argv[2] == "stream")
        factor = float(sys.argv[4])
        scaled = tg.compile(lambda x: x * factor)
        print([scaled(tg.ones(1)).item() for _ in range(3)], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for factor in (2.0, 5.0):
        assert printed(textwrap.dedent(code), own, path, created, str(factor)) == f"{[factor] * 3}\n"
    HTTP.delete(f"{own}/v1/sessions/{created}").raise_for_status()


def test_tensors_of_two_clients_of_a_session_do_not_mix(own: str) -> None:
    with tg.connect(own) as session:
        x = tg.ones(2)
        with tg.connect(own, session=session.id):
            y = tg.ones(2)
            with pytest.raises(RuntimeError, match=f"found two clients of session {session.id}"):
                x + y
        assert (x + 1).tolist() == [2.0, 2.0]


def test_reprs_and_errors_name_the_session(own: str) -> None:
    with tg.connect(own) as session, tg.connect(own) as other:
        assert session.id in repr(session)
        x = tg.ones(2)
        other.close()
        y = tg.ones(2)
        with pytest.raises(RuntimeError, match=other.id):
            x.tolist()
        HTTP.delete(f"{own}/v1/sessions/{session.id}").raise_for_status()
        with pytest.raises(LookupError, match=session.id):
            y.tolist()
    with tg.connect("local://") as here:
        assert here.id in repr(here)


def test_a_session_that_cannot_be_attached_to_says_why(own: str, path: str) -> None:
    with tg.connect(own) as ended:
        pass
    with pytest.raises(LookupError, match=f"session {ended.id} is not at {own}: it has ended"):
        tg.connect(own, session=ended.id, stream=path == "stream")
    with pytest.raises(LookupError, match="is not at"):
        tg.connect(own, session="../healthz")
    with pytest.raises(ValueError, match="seed is a matter of new sessions"):
        tg.connect(own, session=ended.id, seed=1)
    with pytest.raises(ValueError, match="cannot be attached to"):
        tg.connect("local://", session="local-1")
    with pytest.raises(TypeError, match="a string, not int"):
        tg.connect(own, session=3)
    assert sessions(own) == []


def test_a_session_of_a_server_of_another_version_says_so() -> None:
    code = """
        import telegrad_service
        telegrad_service.__version__ = "0.0.7"
        from telegrad_service.cli import main
        main(["serve", "--port", "0"])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            session = HTTP.post(f"{url}/v1/sessions").json()["id"]
            with pytest.raises(RuntimeError, match=f"session {session} is on a server with Telegrad 0.0.7"):
                tg.connect(url, session=session)
        finally:
            server.terminate()
