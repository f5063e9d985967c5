"""The directory of a cluster on each database, and what several processes do to it at once.

Internals: the directory's methods are called without a cluster around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import update

from telegrad_engine.errors import SessionExists, TelegradError
from telegrad_service.cluster.directory import Directory, Member, Placement, Report, WorkerRow, WorkerState
from telegrad_service.cluster.functions import ClusterLibrary
from telegrad_service.database import Database

pytestmark = pytest.mark.every
PROCESSES, ROUNDS = 4, 5
REPORT = Report(sessions=1, max_sessions=2, load=0.5, free_bytes=2**40)
DOUBLED = {
    "name": "doubled",
    "forward": {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", 2], "out": ["y"]}], "outputs": ["y"]},
}


@pytest.fixture
def databases(database: str) -> Iterator[list[Database]]:
    """One database, opened as by several processes."""
    with ExitStack() as stack:
        yield [stack.enter_context(Database(database)) for _ in range(PROCESSES)]


@pytest.fixture
def directory(databases: list[Database]) -> Directory:
    return Directory(databases[0])


def join(directory: Directory, *names: str, lease_s: float = 600) -> None:
    for name in names:
        directory.join(name, Member(f"http://{name}", "1", ["cpu"], True), lease_s, REPORT)


def placed(id: str, worker: str | None = "a", *, tenant: str = "lab", durable: bool = True) -> Placement:
    return Placement(id, tenant, worker, 1, durable, "cpu", {"id": id})


def found(directory: Directory, id: str) -> Placement:
    session = directory.find(id)
    assert session is not None
    return session


def at_once(call: Callable[[int], object]) -> Counter[str]:
    """How often each result or error comes of calls in several threads at once, each of which gets its number."""

    def outcome(number: int) -> str:
        try:
            return str(call(number))
        except TelegradError as error:
            return type(error).__name__

    with ThreadPoolExecutor(PROCESSES) as pool:
        return Counter(pool.map(outcome, range(PROCESSES)))


def test_the_states_and_leases_of_workers(directory: Directory) -> None:
    join(directory, "a", "b")
    join(directory, "late", lease_s=-1)
    a, _, late = directory.workers()
    assert (a.id, a.url, a.version, a.devices, a.report) == ("a", "http://a", "1", ("cpu",), REPORT)
    assert -600 <= a.overdue_s < 0 < late.overdue_s
    assert not directory.declare_dead("a", 5, 600) and not directory.declare_dead("late", 600, 5)
    assert directory.declare_dead("late", 5, 5) and not directory.declare_dead("late", 5, 5)
    assert directory.renew("late", 5, REPORT) is WorkerState.DEAD
    assert directory.renew("b", 600, REPORT._replace(sessions=2)) is WorkerState.READY
    assert directory.drain("b") and not directory.drain("late")
    assert directory.renew("b", 600, REPORT) is WorkerState.DRAINING
    assert directory.leave("b") and not directory.leave("b")
    assert [each.state for each in directory.workers()] == [WorkerState.READY, WorkerState.DEAD, WorkerState.DEAD]


def test_what_is_forgotten_of_workers_that_were_dead_for_long(directory: Directory) -> None:
    join(directory, "a", "b", "c")
    directory.add(placed("lost", "b", durable=False), None)
    directory.add(placed("kept", "c"), None)
    for name in ("b", "c"):
        directory.leave(name)
    directory.forget_dead()
    assert len(directory.workers()) == 3
    with directory.database.transaction(writes=True) as session:
        session.execute(update(WorkerRow).values(lease_until=0.0))
    directory.forget_dead()
    assert [each.id for each in directory.workers()] == ["a", "c"]
    assert directory.find("lost") is None and found(directory, "kept").worker == "c"


def test_sessions_are_found_moved_and_removed(directory: Directory) -> None:
    join(directory, "a", "b", "gone")
    directory.leave("gone")
    for session in (placed("1"), placed("2", "b", durable=False), placed("3", "gone", durable=False)):
        directory.add(session, None, creation_key=f"key {session.id}")
    directory.add(placed("4", tenant="other"), None)
    assert [each.id for each in directory.sessions("lab")] == ["1", "2"], "the third is lost with its worker"
    assert directory.counts("lab") == {"a": 1, "b": 1, "gone": 1} and directory.session_count("a") == 2
    assert directory.created_with("lab", "key 1") == found(directory, "1") == placed("1")._replace(number=1)
    assert directory.created_with("other", "key 1") is directory.find("none") is directory.find("\x00") is None
    first = found(directory, "1")
    moved = directory.assign(first, "b")
    assert moved is not None and (moved.worker, moved.epoch) == ("b", 2) and found(directory, "1") == moved
    assert directory.assign(first, "a") is None, "it has been moved since"
    assert directory.assign(moved, "gone") is None, "a dead worker gets none"
    assert not directory.release("1", "b", 1) and directory.release("1", "b", 2)
    assert directory.release("2", "b", 1)
    [waiting] = directory.handed_over()
    assert (waiting.id, waiting.worker) == ("2", None)
    assert directory.epochs() == {"1": 2, "2": 1, "3": 1, "4": 1}
    assert directory.assign(waiting, "a") is not None and not directory.remove_unmoved(waiting)
    assert directory.remove_unmoved(found(directory, "1"))
    directory.remove("2", "b")
    assert directory.find("2") is not None, "another worker has it"
    directory.remove("2", "a")
    assert directory.epochs().keys() == {"3", "4"}


def test_a_tenant_has_one_durable_session_of_a_name(directory: Directory) -> None:
    join(directory, "a")
    directory.add(placed("1"), "run")
    for same in (placed("2", durable=False), placed("3", tenant="other")):
        directory.add(same, "run")
    directory.add(placed("4"), None)
    for refused in (
        lambda: directory.add(placed("5"), "run"),
        lambda: directory.add_found(placed("5"), "run"),
        lambda: directory.rename("4", "lab", "a", "run"),
    ):
        with pytest.raises(SessionExists) as taken:
            refused()
        assert taken.value.context["session"] == "1"
    directory.rename("1", "lab", "a", "other")
    directory.rename("4", "lab", "a", "run")


def test_a_session_of_the_data_folder_is_added_or_brought_up_to_date(directory: Directory) -> None:
    join(directory, "a")
    for epoch, expected in ((3, 3), (2, 3), (4, 4)):
        directory.add_found(placed("1", None)._replace(epoch=epoch), "run")
        assert found(directory, "1").epoch == expected


def test_of_several_processes_one_creates_a_session(databases: list[Database]) -> None:
    directories = [Directory(each) for each in databases]
    join(directories[0], "a")
    for number in range(ROUNDS):
        ids = [f"{number}-{process}" for process in range(PROCESSES)]
        named = at_once(lambda n: directories[n].add(placed(ids[n]), f"run {number}"))  # noqa: B023
        assert named == {"None": 1, "SessionExists": PROCESSES - 1}
        keyed = at_once(
            lambda n: directories[n].add(placed(f"key-{ids[n]}", durable=False), None, f"key {number}")  # noqa: B023
        )
        assert keyed == {"None": 1, "IdempotencyConflict": PROCESSES - 1}
        at_once(lambda n: directories[n].add_found(placed(f"found-{number}", None), None))  # noqa: B023
        counted = at_once(
            lambda n: directories[n].add(placed(f"most-{ids[n]}", tenant=f"t{number}"), None, None, 2)  # noqa: B023
        )
        assert counted == {"None": 2, "SessionLimit": PROCESSES - 2}


def test_of_several_processes_one_moves_a_session(databases: list[Database]) -> None:
    directories = [Directory(each) for each in databases]
    join(directories[0], "a", "b", "c")
    directories[0].add(placed("1"), None)
    for number in range(ROUNDS):
        before = found(directories[0], "1")
        moved = at_once(lambda n: directories[n].assign(before, "bc"[n % 2]) is not None)  # noqa: B023
        assert moved == {"True": 1, "False": PROCESSES - 1}
        assert found(directories[0], "1").epoch == number + 2
    declared = at_once(lambda n: directories[n].leave("c"))
    assert declared == {"True": 1, "False": PROCESSES - 1}


def test_functions_of_the_server_are_in_each_process(databases: list[Database]) -> None:
    libraries = [ClusterLibrary(each) for each in databases]

    def names() -> set[tuple[Any, ...]]:
        return {tuple(library.latest()) for library in libraries}

    added = at_once(lambda n: libraries[n].add(libraries[n].read(DOUBLED)))
    assert added == {"None": 1, "FunctionExists": PROCESSES - 1}
    assert names() == {("doubled",)} and "doubled" in ClusterLibrary(databases[0])
    libraries[1].remove("doubled")
    assert names() == {()}
