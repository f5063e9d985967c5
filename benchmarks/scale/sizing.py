"""What a worker's sessions ask of gateways, directory and stores, by arithmetic, and how many of them are enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from .parameters import Costs, Layout, Workload

MIB = 2**20
TARGET = 0.6
"""The utilization that a layout is sized for."""
QUANTUM_S = 5.0
"""The seconds of undisturbed training that one job of the simulation stands for."""
MEAN_STATE = math.exp(0.5)
"""The mean of a log-normal size with sigma 1, in medians."""


class Demand(NamedTuple):
    """The seconds of service that one worker's sessions need per second, while nothing holds them up."""

    steps: float
    """Steps per second."""
    training: float
    """Sessions that train at a time."""
    worker: float
    gateway: float
    directory: float
    """Without the lists of workers that gateways read."""
    store: float


def gateway_step_s(costs: Costs, fresh: bool) -> float:
    """The gateway's work for a step."""
    size = costs.fresh_bytes if fresh else costs.resident_bytes
    return costs.messages_per_step * costs.gateway_message_s + size / MIB * costs.gateway_mib_s


def away_s(costs: Costs, workload: Workload) -> float:
    """The time of a step that is spent in the client and on the network."""
    return costs.client_step_s + workload.network_s * costs.messages_per_step


def step_s(costs: Costs, workload: Workload, layout: Layout, fresh: bool) -> float:
    """A step that meets no other work."""
    gateway = 0.0 if layout.direct else gateway_step_s(costs, fresh)
    return away_s(costs, workload) + gateway + costs.step_s


def journal_step_s(costs: Costs, fresh: bool) -> float:
    """The store's work for the journal of a step, without syncs."""
    return (costs.fresh_journal_bytes if fresh else costs.resident_journal_bytes) / MIB * costs.store_write_mib_s


def cycle_s(costs: Costs, workload: Workload, layout: Layout, fresh: bool) -> float:
    """The mean time of a burst of training and the pause before it."""
    return workload.burst_steps * step_s(costs, workload, layout, fresh) + workload.pause_s


def life_s(costs: Costs, workload: Workload, layout: Layout) -> float:
    """The mean life of a session."""
    share = workload.fresh_share
    cycles = [cycle_s(costs, workload, layout, fresh) for fresh in (True, False)]
    return workload.bursts * (share * cycles[0] + (1.0 - share) * cycles[1])


def demand(costs: Costs, workload: Workload, layout: Layout) -> Demand:
    """The demand of one worker's sessions."""
    steps = gateway = store = bursts = sessions_training = 0.0
    mean_mib = workload.state_mib * MEAN_STATE
    for fresh, share in ((True, workload.fresh_share), (False, 1.0 - workload.fresh_share)):
        sessions = workload.sessions_per_worker * share
        cycle = cycle_s(costs, workload, layout, fresh)
        rate = sessions * workload.burst_steps / cycle
        training = rate * step_s(costs, workload, layout, fresh)  # sessions that train now
        snapshots = rate * costs.step_s / layout.snapshot_after_s
        steps += rate
        bursts += sessions / cycle
        sessions_training += training
        gateway += 0.0 if layout.direct else rate * gateway_step_s(costs, fresh)
        store += workload.durable_share * (
            rate * journal_step_s(costs, fresh)
            + training * costs.store_sync_s
            + snapshots * (costs.store_sync_s + mean_mib * costs.store_write_mib_s)
        )
    created = workload.sessions_per_worker / life_s(costs, workload, layout)
    tokens = sessions_training / layout.token_s
    lookups = tokens if layout.direct else bursts * workload.reconnect_share
    request = costs.gateway_request_s
    placing = costs.counts_gateway_s + layout.workers * costs.placement_row_s
    gateway += created * (2 * request + placing) + lookups * (request + costs.lookup_gateway_s)
    directory = (1.0 / layout.renew_s + created * 2) * costs.compare_and_set_s
    directory += created * costs.counts_s + lookups * costs.lookup_s
    return Demand(steps, sessions_training, steps * costs.step_s, gateway, directory, store)


def scans(costs: Costs, layout: Layout) -> tuple[float, float]:
    """The work per second for lists of workers: in each gateway that reads them, and in all directories."""
    rows = layout.workers / layout.scan_s
    return rows * costs.scan_row_gateway_s, rows * costs.scan_row_s * (layout.scanners or layout.gateways)


def loads(costs: Costs, workload: Workload, layout: Layout) -> dict[str, float]:
    """The demand for each resource of a layout, in its capacities."""
    each = demand(costs, workload, layout)
    gateway, directory = scans(costs, layout)
    workers = layout.workers
    return {
        "gateways": workers * each.gateway / layout.gateways + gateway,
        "directories": (workers * each.directory + directory) / (layout.directories * layout.directory_cores),
        "stores": workers * each.store / layout.stores,
        "workers": each.worker / layout.worker_cores,
    }


def enough(costs: Costs, workload: Workload, workers: int, direct: bool) -> Layout:
    """A layout whose resources are used to at most ``TARGET``. One gateway reads the list of workers for all."""
    layout = Layout(workers, direct=direct, scanners=1)
    asked = loads(costs, workload, layout)
    gateways, directories, stores = (
        max(1, math.ceil(asked[kind] / TARGET)) for kind in ("gateways", "directories", "stores")
    )
    return replace(layout, gateways=gateways, directories=directories, stores=stores)


def most(costs: Costs, workload: Workload, kind: str, layout: Callable[[int], Layout]) -> int:
    """The most workers for which a resource of a layout is enough."""
    low, high = 0, 10**6
    while low < high:
        workers = (low + high + 1) // 2
        fits = loads(costs, workload, layout(workers))[kind] <= 1.0
        low, high = (workers, high) if fits else (low, workers - 1)
    return low


def quantum_s(costs: Costs, workload: Workload, layout: Layout) -> float:
    """How much training a job stands for: less if a resource is overloaded, so that jobs end within the run."""
    return QUANTUM_S / max(1.0, *loads(costs, workload, layout).values())
