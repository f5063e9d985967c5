"""Small versions of ``make load``: what happens is right, and memory stays bounded; times are not asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..load import bombs, flood, sessions
from ..load.server import Figure

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc"),
]
MEMORY = frozenset({"MiB", "KiB each"})


def exceeded(figures: list[Figure]) -> list[str]:
    """The figures of memory that exceed their bounds."""
    return [str(figure) for figure in figures if figure.unit in MEMORY and not figure.held]


def test_open_and_active_sessions_cost_little_and_leave_nothing() -> None:
    assert exceeded(sessions.run(open_sessions=200, active=10, seconds=2)) == []


def test_a_flood_is_refused_and_takes_no_memory() -> None:
    found = flood.run(seconds=3)
    figures = {figure.name: figure.value for figure in found}
    assert exceeded(found) == []
    assert figures["refused with 429"] + figures["refused with 503"] > 0


def test_bombs_are_refused_and_take_no_more_memory_than_a_session_may() -> None:
    assert exceeded(bombs.run(full=False, session_mib=64)) == []
