"""The simulated cluster: laws that hold for every run, exact solutions where there are some, and the page's tables."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.scale import report, sizing
from benchmarks.scale.parameters import COMMITTED, Layout, Workload, costs
from benchmarks.scale.simulation import Cluster

COSTS = costs()
LAYOUT = Layout(20, gateways=2, directories=2, stores=2)
WORKLOAD = Workload(incident_share=0.3, mtbf_s=400.0)
SEED = 3
STATIONS = ("gateways", "directories", "stores")
UNDISTURBED = replace(
    Workload(bursts=1e9, burst_steps=1e12, pause_s=1e-9, durable_share=0.0, fresh_share=0.0, mtbf_s=1e15),
    fail_at_s=1e9, drain_at_s=2e9, add_at_s=3e9, ends_s=200.0,
)  # fmt: skip
"""Sessions that train all the time, on workers to which nothing happens."""
EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation"
PAGES = "".join((EXPLANATION / f"{name}.md").read_text() for name in ("scale", "simulation", "cluster-measured"))


@cache
def run() -> Cluster:
    """A small cluster in which workers fail, hang, are drained and are added."""
    return Cluster(COSTS, LAYOUT, WORKLOAD, SEED, trace=True).run()


def test_the_run_has_everything_that_may_happen() -> None:
    counts = run().counts
    happened = (counts.failures, counts.gone, counts.failed_over, counts.moved, counts.refused, counts.ended)
    assert all(happened) and counts.resume_s and counts.resume_hung_s and counts.move_s, happened


@pytest.mark.parametrize("kind", STATIONS)
def test_littles_law_and_the_conservation_of_work(kind: str) -> None:
    """The mean number in a station is its arrival rate times the mean time in it, each from counts of its own."""
    for station in getattr(run(), kind):
        law = station.law()
        assert law.in_system > 0
        assert law.in_system == pytest.approx(law.rate_times_time, rel=1e-6)
        assert station.busy() + station.remaining() == pytest.approx(station.demanded, rel=1e-6)


def test_each_session_is_with_the_one_worker_that_it_says() -> None:
    cluster = run()
    held = [(number, worker) for worker in cluster.workers for number in worker.sessions]
    assert all(worker.alive for _, worker in held)
    assert dict(held) == {n: session.worker for n, session in cluster.sessions.items() if session.worker is not None}
    assert len(held) == len(dict(held))


def test_sessions_are_conserved_and_only_volatile_ones_are_lost() -> None:
    cluster = run()
    counts = cluster.counts
    assert counts.arrived == counts.ended + counts.gone + len(cluster.sessions)
    lost = [session for session in cluster.finished if session.bursts > 0]
    assert len(lost) == counts.gone and not any(session.durable for session in lost)
    # Nobody has a durable session only while it waits for another worker.
    waiting = [session for session in cluster.sessions.values() if session.worker is None and session.epoch]
    assert all(session.durable for session in waiting)


def test_no_session_has_two_owners() -> None:
    cluster = run()
    now = cluster.env.now
    owners: dict[int, list[tuple[int, float, float, int]]] = {}
    for had in cluster.ownerships:
        owners.setdefault(had.session, []).append((had.epoch, had.since, had.until, had.worker))
    for session in cluster.sessions.values():
        if session.worker is not None:
            had_since = session.owned_since
            owners.setdefault(session.number, []).append((session.epoch, had_since, now, session.worker.number))
    assert any(len(each) > 1 for each in owners.values())
    for each in owners.values():
        each.sort()
        assert [epoch for epoch, *_ in each] == list(range(1, len(each) + 1))
        for earlier, later in pairwise(each):
            assert earlier[2] <= later[1] and earlier[3] != later[3]


def test_every_step_is_acknowledged_once() -> None:
    """Also if the worker that lost a session answers for it when it goes on."""
    cluster = run()
    for session in cluster.finished:
        if session.bursts == 0:
            assert session.acknowledged == session.planned
    for session in cluster.sessions.values():
        assert session.acknowledged <= session.planned


def test_a_worker_that_was_added_gets_only_sessions_that_are_new_or_have_no_worker() -> None:
    """Sessions leave a worker when it fails, when it is drained, or when they end."""
    cluster = run()
    ended = {session.number for session in cluster.finished}
    last = {had.session: had for had in cluster.ownerships}
    for had in cluster.ownerships:
        worker = cluster.workers[had.worker]
        assert not worker.alive or worker.draining or (had.session in ended and last[had.session] is had)
    assert sum(len(worker.sessions) for worker in cluster.workers if worker.added_s >= WORKLOAD.add_at_s) > 0


def test_the_seed_decides_everything() -> None:
    again = Cluster(COSTS, LAYOUT, WORKLOAD, SEED, trace=True).run()
    assert again.counts == run().counts and again.ownerships == run().ownerships
    assert Cluster(COSTS, LAYOUT, WORKLOAD, SEED + 1).run().counts != run().counts


@pytest.mark.parametrize("sessions", [1, 2, 8, 40])
def test_throughput_is_that_of_mean_value_analysis(sessions: int) -> None:
    """One gateway, one worker and a number of sessions that train all the time have an exact solution."""
    workload = replace(UNDISTURBED, sessions_per_worker=float(sessions))
    slow = replace(COSTS, gateway_message_s=COSTS.step_s)  # so that both stations matter
    layout = Layout(1)
    simulated = Cluster(slow, layout, workload, quantum_s=0.2).run()
    expected = mean_value_analysis(
        sessions, sizing.away_s(slow, workload), [sizing.gateway_step_s(slow, False), slow.step_s]
    )
    rate = simulated.counts.steps / (workload.ends_s - workload.counts_from_s)
    assert rate == pytest.approx(expected, rel=0.02)


def mean_value_analysis(population: int, think: float, demands: list[float]) -> float:
    """The throughput of a closed network of processor-sharing stations, by recursion over its population."""
    queues = [0.0 for _ in demands]
    throughput = 0.0
    for count in range(1, population + 1):
        times = [demand * (1.0 + queue) for demand, queue in zip(demands, queues, strict=True)]
        throughput = count / (think + sum(times))
        queues = [throughput * time for time in times]
    return throughput


def test_a_job_of_many_steps_stands_for_many_jobs_of_few() -> None:
    calm = replace(WORKLOAD, incident_share=0.0, mtbf_s=1e15, ends_s=100.0)
    rates = [Cluster(COSTS, LAYOUT, calm, SEED, quantum_s=quantum).run().counts.steps for quantum in (0.1, 3.0)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


# The pages ---------------------------------------------------------------------------------------


def test_the_pages_have_what_the_command_prints_about_capacity() -> None:
    assert report.per_worker(COSTS, Workload()) in PAGES
    assert "\n".join(report.saturation(COSTS, Workload())) in PAGES
    assert "\n".join(report.measured(COMMITTED)) in PAGES


@pytest.mark.parametrize("layout", report.LAYOUTS)
@pytest.mark.parametrize("workers", report.SIZES)
def test_the_pages_have_the_rows_that_the_command_prints(workers: int, layout: str) -> None:
    ((name, result),) = report.sizes(COSTS, Workload(), [workers], [layout])
    assert report.size_row(name, result) in PAGES


@pytest.mark.parametrize("setting", report.RECOVERIES)
def test_the_pages_have_the_times_to_resume_that_the_command_prints(setting: str) -> None:
    (row,) = report.recoveries(COSTS, Workload(), [setting])
    assert row in PAGES
