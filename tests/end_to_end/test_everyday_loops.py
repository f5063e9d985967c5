"""Loops as people write them come to torch's numbers, and what repeats in them runs as one plan.

Internals: only its recorder says which session a tensor is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from benchmarks.everyday import LOOPS, SMALL, Loop

import telegrad as tg

from ..conftest import SHARE

TURNS, COUNTED = 20, 40
"""How many turns are taken before programs are counted, and while they are: on a busy machine one more is sent now and
then."""
STRETCHES = 2
"""How many more times they are counted where too few ran planned: a busy machine may send one in two parts."""
PLANNED = 0.95
RANDOM_RTOL = 0.05
"""How far the mean of a loop's numbers may be from torch's where each library draws its own random numbers."""

WAITS = {
    "boolean mask": "the number of rows that a mask takes is a value, which the SDK waits for to know the shape",
    "Kalman filter": "each factorization is waited for, because pytest would catch its error, and adds to a long graph",
    "deep equilibrium": "a program that registers a hook, and one that resumes a pass, run one instruction at a time",
}
"""Loops of which no share is asked, because they wait by nature. They take a quarter of the turns."""

pytestmark = pytest.mark.filterwarnings("ignore:step was compiled for 8 kinds of calls:UserWarning")


class Outcome(NamedTuple):
    """What a loop came to: the number of each turn, the tensors it changed, and its programs after the first turns."""

    numbers: list[float]
    tensors: list[np.ndarray]
    planned: int = 0
    sent: int = 0
    reasons: frozenset[str] = frozenset()
    """Why the last runs of some programs were not planned, as far as the session says."""


class Programs:
    """Counts the programs of the sessions that some tensors are in: all that were sent, and those that ran planned."""

    def __init__(self, tensors: list[Any]) -> None:
        self._recorders = {tensor._recorder for tensor in tensors}
        self._sent_before, self._planned_before = self._sent(), self._planned()

    def since(self) -> tuple[int, int, frozenset[str]]:
        """How many programs ran planned since this was made, how many were sent, and why some were not."""
        sent = self._sent() - self._sent_before
        planned = sum(runs - self._planned_before.get(which, 0) for which, runs in self._planned().items())
        return planned, sent, frozenset(report["reason"] for _, report in self._reports() if report["reason"])

    def _sent(self) -> int:
        return sum(recorder.requests for recorder in self._recorders)

    def _planned(self) -> dict[tuple[str, str], int]:
        return {(session, report["digest"]): report["planned_runs"] for session, report in self._reports()}

    def _reports(self) -> list[tuple[str, dict[str, Any]]]:
        return [(each.transport.session_id, report) for each in self._recorders for report in each.transport.compiled()]


def number(value: Any) -> float:
    """What a loop yields, read if it is a tensor."""
    return value if isinstance(value, float) else float(value.item())


def outcome(loop: Loop, library: Any, count: Callable[[list[Any]], Programs | None]) -> Outcome:
    """Take the turns of a loop, each of which ends when its number is read."""
    run = loop.start(library, SMALL)
    tensors = next(run)
    part = 4 if loop.name in WAITS else 1
    numbers = [number(next(run)) for _ in range(TURNS // part)]
    programs = count(tensors)
    numbers += [number(next(run)) for _ in range(COUNTED // part)]
    counted = () if programs is None else programs.since()
    changed = [tensor.detach().numpy().copy() for tensor in tensors]
    for _ in range(STRETCHES if counted and loop.name not in WAITS else 0):
        if counted[0] >= PLANNED * counted[1]:
            break
        programs = count(tensors)
        for _ in range(COUNTED):
            number(next(run))
        counted = programs.since() if programs is not None else ()
    result = Outcome(numbers, changed, *counted)
    run.close()  # type: ignore[attr-defined]
    return result


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's threads wait for each other on a busy machine, for nothing where tensors are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=LOOPS.values(), ids=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop."""
    found: Loop = request.param
    return found


@pytest.fixture(scope="module", params=["on a server", "in this process"])
def where(request: pytest.FixtureRequest) -> str:
    """Where the session is."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def ours(loop: Loop, where: str, server: str) -> Outcome:
    """What the loop comes to in a session."""
    with tg.connect(server if where == "on a server" else "local://", seed=0):
        return outcome(loop, tg, Programs)


@pytest.fixture(scope="module")
def theirs(loop: Loop) -> Outcome:
    """What the loop comes to in torch."""
    torch.manual_seed(0)
    return outcome(loop, torch, lambda tensors: None)


def test_its_numbers_are_torchs(loop: Loop, ours: Outcome, theirs: Outcome) -> None:
    if loop.random:
        np.testing.assert_allclose(np.mean(ours.numbers), np.mean(theirs.numbers), rtol=RANDOM_RTOL)
        return
    np.testing.assert_allclose(ours.numbers, theirs.numbers, rtol=loop.rtol, atol=1e-6)
    for i, (mine, other) in enumerate(zip(ours.tensors, theirs.tensors, strict=True)):
        np.testing.assert_allclose(mine, other, rtol=loop.rtol, atol=1e-5, err_msg=f"tensor {i}")


def test_what_repeats_runs_planned(
    loop: Loop, where: str, ours: Outcome, record_property: Callable[[str, object], None]
) -> None:
    record_property(SHARE, (f"{loop.name}, {where}", ours.planned, ours.sent))
    assert ours.sent
    if loop.name not in WAITS:
        assert ours.sent >= COUNTED
        share = ours.planned / ours.sent
        assert share >= PLANNED, f"{ours.planned} of {ours.sent} programs; {'; '.join(sorted(ours.reasons))}"


def test_there_are_enough_loops_and_all_exceptions_are_loops() -> None:
    assert len(LOOPS) >= 45
    assert set(WAITS) <= set(LOOPS)
