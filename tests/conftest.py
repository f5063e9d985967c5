"""Selects which tests run, and provides sessions. SDK tests run against a local session and a server.

``make test`` runs a selection in a few minutes: of each test at most ``SETS`` sets of its parameters, those that are
spread evenly, besides all that run on the engine alone, and no test marked ``full``. ``make test-all`` runs everything,
and so does a run that names files.
A test marked ``every`` keeps all its sets.

Internals: the age at which instructions are sent is no setting.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

# Several processes test at once. Threads of OpenMP and BLAS that wait for work keep the cores from the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

import telegrad as tg
from telegrad.tape import flush_policy

from .servers import Gateways, running_server

SETS = 2
"""How many sets of parameters a test keeps in ``make test``."""
SILENCE_S = 5
"""Until the first result, a line says each time so many seconds have passed that the tests are being prepared."""
HELD, SHARE, RESUMED = "held", "share of programs planned", "time to resume"
"""Properties that tests record for the summary: a number of comparisons; a loop's name, programs planned, and all; what
happened, how many sessions went on after it, and the median and the most of the seconds that they took."""
BLOCKS = "blocks of code on a page"
"""A property that tests of the documentation record for the summary: how many ran, and why others were skipped."""

# What is imported or collected is no garbage; to look for some would take a third of the time until the first test.
gc.disable()

# The API keys of whoever runs the tests would close the servers that they start.
os.environ["XDG_DATA_HOME"] = os.path.join(tempfile.gettempdir(), "telegrad-tests-have-no-keys")

# No deadline: on a busy machine the first example of a test, which imports and compiles, is slow.
# Continuous integration must give the same answer twice; elsewhere every run looks somewhere new.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Read ``--all``, ``--device`` and ``--through-gateway``."""
    parser.addoption("--all", action="store_true", dest="everything", help="all tests, with all sets of parameters")
    parser.addoption("--device", default="cpu", help="where the engine's tensors live: cpu or cuda")
    parser.addoption(
        "--through-gateway",
        type=int,
        nargs="?",
        const=2,
        metavar="WORKERS",
        help="servers that tests start are gateways with two workers, or as many as this says",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take a run that names files or tests for one that wants all of them."""
    Gateways.workers = config.option.through_gateway
    if hasattr(config, "workerinput"):
        config.option.everything = config.workerinput["everything"]
    elif config.args_source is config.ArgsSource.ARGS:
        config.option.everything = True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist, which is always given files."""
    node.workerinput["everything"] = node.config.option.everything


_has_result = threading.Event()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say that the tests are being prepared, which takes long where nothing has been imported yet."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return

    def say() -> None:
        for seconds in count(SILENCE_S, SILENCE_S):
            if _has_result.wait(SILENCE_S):
                return
            reporter.write_line(f"preparing the tests, {seconds} s")

    threading.Thread(target=say, daemon=True).start()


def pytest_runtest_logreport() -> None:
    """End the preparations."""
    _has_result.set()


def pytest_sessionfinish() -> None:
    """End the preparations of a run without results."""
    _has_result.set()


@pytest.hookimpl(tryfirst=True)  # what is not run needs no other hook's attention
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the selection. Through gateways, keep what needs a server, and skip what is about one process."""
    if Gateways.workers is not None:
        kept = [item for item in items if needs_server(item)]
        config.hook.pytest_deselected(items=list(set(items).difference(kept)))
        items[:] = kept
        for item in items:
            if (marker := item.get_closest_marker("one_process")) is not None:
                item.add_marker(pytest.mark.skip(reason=marker.args[0]))
    if config.option.everything:
        return
    sets: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        sets[item.nodeid.partition("[")[0]].append(item)
    kept = []
    for same in sets.values():
        if same[0].get_closest_marker("full"):
            continue
        quick = [item for item in same if place_of(item) == "engine"]
        kept += quick
        others = [item for item in same if place_of(item) != "engine"]
        step = 1 if same[0].get_closest_marker("every") else max(1, len(others) / SETS)
        kept += [others[int(i * step)] for i in range(int(len(others) / step))]
    config.hook.pytest_deselected(items=list(set(items).difference(kept)))
    items[:] = kept


def pytest_collection_finish() -> None:
    """Keep what all tests share out of garbage collections: tests ask for many, and each would take a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


def place_of(item: pytest.Item) -> Any:
    """Where a test runs: on the engine, in a session here, or in one on a server; None if its parameters do not say."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("everywhere", parameters.get("address"))


def needs_server(item: pytest.Item) -> bool:
    """Whether a test uses a server, or is beside tests that start one."""
    if place_of(item) in ("engine", "local"):
        return False
    starts = any(getattr(getattr(item, "module", None), name, None) for name in ("running", "running_server", "served"))
    return starts or not {"server", "url", "address", "everywhere"}.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the share of planned programs of each everyday loop, how many blocks of the documentation ran, and how many
    comparisons with torch were held."""
    reports = [report for kind in ("passed", "xfailed", "failed") for report in terminalreporter.getreports(kind)]
    found: dict[str, list[Any]] = defaultdict(list)
    for report in reports:
        for name, value in report.user_properties:
            found[name].append(value)
    if shares := found[SHARE]:
        terminalreporter.section("everyday loops: programs planned or compiled after 20 turns")
        for name, runs, sent in sorted(shares):
            terminalreporter.write_line(f"{name:58} {runs:4} of {sent:4} {runs / sent:5.0%}")
    if resumed := found[RESUMED]:
        terminalreporter.section("time to resume: seconds until a session's next step was acknowledged")
        for name, count, middle, most in resumed:
            terminalreporter.write_line(f"{name:58} {count:4} sessions: median {middle:.1f} s, at most {most:.1f} s")
    if pages := found[BLOCKS]:
        terminalreporter.section("blocks of code on the pages of the documentation")
        reasons = Counter(reason for _, skipped in pages for reason in skipped)
        ran = sum(ran for ran, _ in pages)
        count = ran + reasons.total()
        other = sum(reasons.pop(reason) for reason in list(reasons) if reason.startswith("tests/"))
        terminalreporter.write_line(
            f"{ran} of {count} blocks on {len(pages)} pages ran, {other} run in other tests, "
            f"{reasons.total()} were skipped:"
        )
        for reason, each in reasons.most_common():
            terminalreporter.write_line(f"{each:4} {reason}")
    if held := sum(found[HELD]):
        terminalreporter.write_line(f"held against torch: {held} of (op, case, dtype, order)")


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Whether this run wants all that a test can check."""
    wanted: bool = request.config.option.everything
    return wanted


# A process in the background may have these ignored, and so would every process that a test starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_old() -> Iterator[None]:
    """Have no instructions sent because of their age, as a busy machine would, in a message that a test may count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush_policy, "AHEAD_S", math.inf)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a real server, started once for all tests."""
    with running_server() as url:
        yield url


@pytest.fixture(params=["local", "http"])
def address(request: pytest.FixtureRequest) -> str:
    """Where to connect to: first this process, then the server."""
    if request.param == "local":
        return "local://"
    url: str = request.getfixturevalue("server")
    return url


@pytest.fixture
def session(address: str) -> Iterator[tg.Session]:
    """A fresh session, the current one while the test runs."""
    with tg.connect(address, seed=0) as session:
        yield session


@pytest.fixture(params=["engine", "local", "http"])
def everywhere(request: pytest.FixtureRequest) -> Iterator[tg.Session | None]:
    """Where a comparison with PyTorch runs: on the engine, then in a session in this process and in one on a server."""
    if request.param == "engine":
        from .client.parity import ENGINE, library  # not above: tests of other versions run without PyTorch

        with library(ENGINE), np.errstate(all="ignore"):
            yield None
    else:
        url = "local://" if request.param == "local" else request.getfixturevalue("server")
        with tg.connect(url, seed=0) as session:
            yield session


@pytest.fixture
def remote(server: str) -> Iterator[tg.Session]:
    """A fresh session on the server: in this process programs are not packed, sent ahead or foreseen."""
    with tg.connect(server, seed=0) as session:
        yield session
