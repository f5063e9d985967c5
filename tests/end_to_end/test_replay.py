"""The load generator of the benchmarks: replayed sessions do what the recorded one did."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from benchmarks.replay import Load, Recording, record
from benchmarks.timing import Call

import telegrad as tg
from telegrad_service.launch import running_server

STEPS, SESSIONS = 20, 3


@pytest.fixture(scope="module")
def recording() -> Recording:
    def prepare() -> Call:
        weight = tg.ones(3, requires_grad=True)

        def turn() -> None:
            (weight * 2).sum().backward()
            weight.grad.sum().item()

        return turn

    return record(prepare, STEPS)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


def programs(url: str) -> float:
    """How many programs a server has run, by its metrics."""
    with urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith("telegrad_program_duration_seconds_count")
    )


def test_each_session_runs_all_programs(recording: Recording, server: str) -> None:
    before = programs(server)
    assert Load(server, recording, SESSIONS).seconds(STEPS * SESSIONS) > 0
    assert programs(server) - before == SESSIONS * (len(recording.first) + len(recording.then))


def test_a_program_that_fails_ends_the_measurement(recording: Recording, server: str) -> None:
    without_beginning = recording._replace(first=())
    with pytest.raises(RuntimeError, match="not an answer"):
        Load(server, without_beginning, 1).seconds(STEPS)


@pytest.mark.full
def test_only_whole_recordings_are_replayed(recording: Recording, server: str) -> None:
    with pytest.raises(ValueError, match="20 steps, not 10"):
        Load(server, recording, 1).seconds(10)
