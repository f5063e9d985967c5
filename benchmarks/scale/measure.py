"""Measures the costs that the simulation is given, on this machine, and writes them as JSON.

Work is measured as the least processor time that it took in many short repetitions, because other processes on the
machine can add to a time but never shorten it. Waiting for a disk or a database is measured as the least time by the
clock.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import numpy as np

import telegrad as tg
from telegrad_service.cluster import placement
from telegrad_service.cluster.directory import Directory, Member, Placement, Report, Worker, WorkerState
from telegrad_service.database import Database
from telegrad_service.journal.format import decode_frames
from telegrad_service.launch import running_server

from ..compiling import settle
from ..machine import machine
from ..members import member
from ..mlp_http import Pairs, fresh, loop, network, resident_ours
from ..timing import Unavailable
from .parameters import Costs

MIB = 2**20
STEPS = 100
"""The steps of a repetition."""
REPEATS = 30
SERVER_USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package creates this user."""
KEYS = {"find": "lookup", "renew": "compare_and_set", "counts": "counts", "workers": "scan_row"}
"""The methods of the directory that are measured, and the names of their costs."""
ROWS = 1000
"""The workers in the directory, and its sessions, while it is measured."""


class Measured(NamedTuple):
    """A cost, and what it was measured against."""

    value: float
    unit: str
    of: str


Found = dict[str, Measured]


# Tools -------------------------------------------------------------------------------------------


def metrics(url: str) -> dict[str, float]:
    """What a server's ``/metrics`` says, summed over labels."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
    return found


def cpu_of(pid: int) -> float:
    """The processor seconds of another process, in nanoseconds' resolution (clock_getcpuclockid(3) on Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


def least(repeat: Callable[[], float], repeats: int = REPEATS) -> float:
    """The least result of several repetitions."""
    return min(repeat() for _ in range(repeats))


def timed(call: Callable[[], object], count: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds of one of ``count`` calls."""
    began = clock()
    for _ in range(count):
        call()
    return (clock() - began) / count


# A plain server ----------------------------------------------------------------------------------


def server() -> Found:
    """A training step on a plain server: the work of both sides, the bytes of the stream and of the journal."""
    what = "784-128-10 step, batch 64, loss read every 10 steps, a durable session of a plain server over loopback"
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder, running_server(data_dir=folder, snapshot_after_s=600) as url:
        for kind, batches in (("resident", resident_ours), ("fresh", partial(fresh, tg))):
            sizes, work = _trained(url, Path(folder), batches)
            dataset = "dataset uploaded once" if kind == "resident" else "a batch of 200 kB sent with each step"
            found[f"{kind}_bytes"] = Measured(sizes["stream"], "B", f"both directions of the stream, {dataset}; {what}")
            found[f"{kind}_journal_bytes"] = Measured(sizes["journal"], "B", f"the journal's frames, {dataset}; {what}")
            if kind == "resident":
                found["messages_per_step"] = Measured(sizes["messages"], "1", f"frames of the journal; {what}")
                found["step_s"] = Measured(work["server"], "s", f"time in programs, by the server's metrics; {what}")
                found["client_step_s"] = Measured(work["client"], "s", f"processor time of the SDK; {what}")
        create = partial(_created_and_deleted, url)
        create()
        of = "creating and deleting an empty session over HTTP, processor time of the server"
        found["create_s"] = Measured(least(create, 10), "s", of)
    return found


def _trained(url: str, folder: Path, batches: Callable[[], Pairs]) -> tuple[dict[str, float], dict[str, float]]:
    """Train for a while: medians of what a step sends, and the least work it takes."""
    sizes: dict[str, list[float]] = {"stream": [], "journal": [], "messages": []}
    work: dict[str, list[float]] = {"server": [], "client": []}
    with tg.connect(url, durable=True) as opened:
        turn = loop(network(tg)[1], batches(), 10)
        settle(opened, turn)
        files = folder / "sessions" / opened.id
        for _ in range(REPEATS):
            before, held, clock = metrics(url), _journal(files), time.process_time()
            for _ in range(STEPS):
                turn()
            used = time.process_time() - clock
            after, holds = metrics(url), _journal(files)
            delta = {name: after[name] - before.get(name, 0.0) for name in after}
            work["client"].append(used / STEPS)
            work["server"].append(delta["telegrad_program_duration_seconds_sum"] / STEPS)
            streamed = delta["telegrad_received_bytes_total"] + delta["telegrad_sent_bytes_total"]
            sizes["stream"].append(streamed / STEPS)
            sizes["journal"].append((holds[1] - held[1]) / STEPS)
            sizes["messages"].append((holds[0] - held[0]) / STEPS)
    return {k: statistics.median(v) for k, v in sizes.items()}, {k: min(v) for k, v in work.items()}


def _journal(files: Path) -> tuple[int, int]:
    """The number of frames in a session's journal, and their bytes."""
    (path,) = files.glob("journal-*.log")
    data = path.read_bytes()
    return sum(1 for _ in decode_frames(data)), len(data)


def _created_and_deleted(url: str, count: int = 100) -> float:
    before = metrics(url)["process_cpu_seconds_total"]
    for _ in range(count):
        session = json.loads(_request(url, "POST", "/v1/sessions", b"{}"))["id"]
        _request(url, "DELETE", f"/v1/sessions/{session}")
    return (metrics(url)["process_cpu_seconds_total"] - before) / count


def _request(url: str, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise Unavailable(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content
    finally:
        connection.close()


def start() -> Found:
    """The time until a server is ready."""

    def once() -> float:
        began = time.perf_counter()
        with running_server():
            return time.perf_counter() - began

    of = "from the start of `telegrad serve` until it listens"
    return {"worker_start_s": Measured(least(once, 5), "s", of)}


# Snapshots and the disk --------------------------------------------------------------------------


def snapshots() -> Found:
    """Exporting and importing sessions of two sizes, in this process."""
    found: Found = {}
    times: dict[int, tuple[float, float]] = {}
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None  # memory, so that no disk is measured
    for size in (0, 64):
        with tempfile.TemporaryDirectory(dir=shared) as folder, tg.connect("local://") as opened:
            step = network(tg)[1]
            step(*next(fresh(tg))).item()
            held = [tg.tensor(np.zeros(MIB // 4, np.float32)) for _ in range(size)]
            path = Path(folder) / "snapshot"
            opened.export(path)
            saved = least(partial(timed, partial(opened.export, path), clock=time.process_time))

            def load(path: Path = path) -> None:
                tg.import_session(path, "local://").close()

            times[size] = saved, least(partial(timed, load, clock=time.process_time))
            del held
    for name, (small, large), what in zip(
        ("snapshot", "restore"), zip(times[0], times[64], strict=True), ("exporting", "importing"), strict=True
    ):
        of = f"{what} a session in this process, processor time"
        found[f"{name}_s"] = Measured(small, "s", f"{of}; a 784-128-10 network after a step")
        found[f"{name}_mib_s"] = Measured((large - small) / 64, "s/MiB", f"{of}; 64 more tensors of 1 MiB")
    return found


def disk(folder: Path) -> Found:
    """Writing, reading and syncing on the disk of a folder."""
    data, path = os.urandom(64 * MIB), folder / "store"

    def write() -> float:
        began = time.perf_counter()
        with path.open("wb") as file:
            file.write(data)
            os.fdatasync(file.fileno())
        return time.perf_counter() - began

    def read() -> float:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            while file.read(MIB):
                pass
            return time.perf_counter() - began

    def syncs(number: int, count: int = 20) -> None:
        with (folder / f"journal-{number}").open("wb", buffering=0) as file:
            for _ in range(count):
                file.write(bytes(1000))
                os.fdatasync(file.fileno())

    def together() -> float:
        threads = [threading.Thread(target=syncs, args=(number,)) for number in range(8)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - began) / (8 * 20)

    of = "on this machine's disk (ext4)"
    return {
        "store_write_mib_s": Measured(least(write, 10) / 64, "s/MiB", f"writing and syncing a file of 64 MiB {of}"),
        "store_read_mib_s": Measured(least(read, 10) / 64, "s/MiB", f"reading it, not from the page cache, {of}"),
        "store_sync_s": Measured(least(together, 10), "s", f"fdatasync of 1,000 new bytes, eight files at once, {of}"),
    }


# The directory -----------------------------------------------------------------------------------


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A PostgreSQL on loopback, with its default settings. Raises Unavailable if it is not installed."""
    binaries = [Path(path).parent for path in (shutil.which("initdb"),) if path is not None]
    binaries += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not binaries:
        raise Unavailable("PostgreSQL is not installed")
    as_user: dict[str, Any] = {"user": SERVER_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    data = Path(tempfile.mkdtemp(dir=folder))
    if as_user:
        folder.chmod(0o755)
        shutil.chown(data, SERVER_USER)
    setup = [str(binaries[0] / "initdb"), "--auth=trust", "--username=bench", "--no-sync", "--pgdata", str(data)]
    subprocess.run(setup, check=True, capture_output=True, cwd=data, **as_user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binaries[0] / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=data, **as_user)
    try:
        url = f"postgresql://bench@127.0.0.1:{port}/postgres"
        deadline = time.monotonic() + 30
        while not _opens(url):
            if time.monotonic() > deadline or process.poll() is not None:
                raise Unavailable("PostgreSQL did not start")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _opens(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _fill(directory: Directory) -> list[Placement]:
    """Add workers and sessions, and return the sessions."""
    report = Report(8, 256, 0.5, 2**33)
    for number in range(ROWS):
        worker = f"{number:032}"
        member = Member(f"http://10.0.{number // 256}.{number % 256}:8000", "0.1.0", ["cpu"], True)
        directory.join(worker, member, 1e6, report)
        where = worker, 1, True, "cpu", {"name": "x" * 20}
        directory.add(Placement(f"session-{number:040}", f"tenant-{number % 50}", *where), None)
    found = [directory.find(f"session-{number:040}") for number in range(ROWS)]
    return [placed for placed in found if placed is not None]


def directory(folder: Path) -> Found:
    """Lookups, compare-and-sets and the list of workers, in PostgreSQL and in SQLite."""
    import psycopg

    found: Found = {}
    with postgresql(folder) as url, psycopg.connect(url, autocommit=True) as watching:
        opened = Database(url)
        table = Directory(opened)
        sessions = _fill(table)

        def database_cpu() -> float:
            with watching.cursor() as cursor:
                rows = cursor.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
            return sum(cpu_of(pid) for (pid,) in rows)

        what = f"`Directory` on PostgreSQL, default settings, {ROWS} workers and sessions"
        for name, call in _calls(table, sessions):
            rows = ROWS if name == "workers" else 1
            count = 3 if name == "workers" else 100
            scanned = f" for each of {ROWS} workers in the list" if name == "workers" else ""
            key = KEYS[name]
            of = f"`{name}()` of {what}{scanned}"
            databases = least(partial(timed, call, count, database_cpu)) / rows
            found[f"{key}_s"] = Measured(databases, "s", f"processor time of the database server; {of}")
            gateways = least(partial(timed, call, count, time.process_time)) / rows
            found[f"{key}_gateway_s"] = Measured(gateways, "s", f"processor time of the gateway; {of}")
            if name in ("find", "renew"):
                waited = least(partial(timed, call), 500)
                found[f"{key}_latency_s"] = Measured(waited, "s", f"by the clock; {of}")
        opened.close()
    opened = Database(f"sqlite:///{folder / 'directory.db'}")
    table = Directory(opened)
    sessions = _fill(table)
    for name, call in _calls(table, sessions):
        if name in ("find", "renew"):
            key = KEYS[name]
            of = f"`{name}()` of `Directory` on SQLite on this machine's disk, by the clock"
            found[f"sqlite_{key}_s"] = Measured(least(partial(timed, call), 300), "s", of)
    opened.close()
    return found


def _calls(table: Directory, sessions: list[Placement]) -> list[tuple[str, Callable[[], object]]]:
    """The calls that are measured, by name."""
    report, turns = Report(8, 256, 0.5, 2**33), iter(range(10**9))
    return [
        ("find", lambda: table.find(sessions[next(turns) % ROWS].id)),
        ("renew", lambda: table.renew(f"{next(turns) % ROWS:032}", 1e6, report)),
        ("counts", lambda: table.counts(f"tenant-{next(turns) % 50}")),
        ("workers", table.workers),
    ]


def placing() -> Found:
    """Choosing a worker for a session, which looks at all workers."""
    report = Report(8, 256, 0.5, 2**33)
    workers = [
        Worker(f"{number:032}", "http://10.0.0.1:8000", WorkerState.READY, "1", -1.0, True, ("cpu",), report, 0.0)
        for number in range(ROWS)
    ]
    own = {worker.id: 1 for worker in workers[:20]}

    def place() -> None:
        placement.choose(placement.candidates(workers, "1", "cpu", durable=True), own, own, None)

    of = f"`placement` for each of {ROWS} workers, processor time of the gateway"
    taken = least(partial(timed, place, 5, time.process_time)) / ROWS
    return {"placement_row_s": Measured(taken, "s", of)}


# The gateway -------------------------------------------------------------------------------------


def gateway(folder: Path) -> Found:
    """What requests, small messages and long messages cost `telegrad gateway`."""
    of = "processor time of `telegrad gateway` with one worker and PostgreSQL, over loopback"
    with ExitStack() as stack:
        database = f"--database-url={stack.enter_context(postgresql(folder))}"
        stack.enter_context(member("worker", database))
        url, pid = stack.enter_context(member("gateway", database))
        with tg.connect(url) as opened:
            x = tg.tensor([1.0, 2.0, 3.0, 4.0])

            def message() -> None:
                (x * 2).sum().item()

            settle(opened, message)
            small = least(partial(timed, message, 200, partial(cpu_of, pid)))
            values = np.zeros(4 * MIB // 4, np.float32)

            def upload() -> None:
                tg.tensor(values).sum().item()

            upload()
            large = least(partial(timed, upload, 5, partial(cpu_of, pid)))
        with httpx.Client(base_url=url) as client:
            path = client.post("/v1/sessions", json={}).raise_for_status().headers["location"]

            def request() -> None:
                client.get(path).raise_for_status()

            request()
            requested = least(partial(timed, request, 50, partial(cpu_of, pid)))
    return {
        "gateway_message_s": Measured(small, "s", f"a small message of a stream and its answer; {of}"),
        "gateway_mib_s": Measured((large - small) / 4, "s/MiB", f"uploading 4 MiB in a message; {of}"),
        "gateway_request_s": Measured(requested, "s", f"`GET /v1/sessions/{{session}}`; {of}"),
    }


def write(path: Path) -> int:
    """Measure everything and write it to a file."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # on a disk, as /tmp may be memory
        found = {**server(), **start(), **snapshots(), **disk(Path(folder)), **directory(Path(folder))}
        found |= {**placing(), **gateway(Path(folder))}
    record = {
        "machine": machine(),
        "measured_on": datetime.now(UTC).date().isoformat(),
        "how": (__doc__ or "").partition("\n\n")[2].replace("\n", " ").strip(),
        "costs": {field.name: found[field.name]._asdict() for field in fields(Costs)},
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    return 0
