"""What the simulation is given: costs that were measured, a workload that is assumed, and the layout of a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parent / "parameters.json"
"""The costs from which the tables of docs/explanation/scale.md were made."""


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes that ``python -m benchmarks.scale measure`` measures. Seconds are of one core unless it says
    otherwise."""

    step_s: float
    """The server's work for a training step of a 784-128-10 network, batch 64."""
    client_step_s: float
    """The client's work for the step, on a machine of its own."""
    messages_per_step: float
    resident_bytes: float
    """Bytes of a step in both directions, if the dataset was uploaded once."""
    fresh_bytes: float
    """The same if each step sends its batch."""
    resident_journal_bytes: float
    fresh_journal_bytes: float
    create_s: float
    """The worker's work for a new session."""
    gateway_message_s: float
    """A message of a stream and its answer in the gateway."""
    gateway_mib_s: float
    """A MiB of a stream in the gateway."""
    gateway_request_s: float
    """A small HTTP request in the gateway."""
    lookup_s: float
    """Finding a session's worker, in the database server."""
    lookup_gateway_s: float
    """The same in the gateway."""
    lookup_latency_s: float
    """What the gateway waits for a lookup."""
    compare_and_set_s: float
    """Moving a session or renewing a lease, in the database server."""
    compare_and_set_gateway_s: float
    compare_and_set_latency_s: float
    scan_row_s: float
    """A worker in the list of all workers that a gateway reads, in the database server."""
    scan_row_gateway_s: float
    counts_s: float
    """How many sessions of a tenant each worker has, which a gateway asks before it places a session."""
    counts_gateway_s: float
    placement_row_s: float
    """A worker among those from which a gateway chooses, in the gateway."""
    sqlite_lookup_s: float
    sqlite_compare_and_set_s: float
    """The same in SQLite, where one writer at a time waits for the disk."""
    snapshot_s: float
    """Making a snapshot of a session with one small network."""
    snapshot_mib_s: float
    restore_s: float
    """Loading such a session from its snapshot."""
    restore_mib_s: float
    store_write_mib_s: float
    """A MiB written and synced to the disk, in seconds of the disk."""
    store_read_mib_s: float
    store_sync_s: float
    """A sync of a few written bytes, in seconds of the disk while several processes sync at once."""
    worker_start_s: float
    """From the start of a worker's process until it is ready."""


@dataclass(frozen=True)
class Workload:
    """What is assumed, because it depends on who uses the cluster."""

    sessions_per_worker: float = 8.0
    """Open sessions, on average. New ones arrive at random (Poisson)."""
    bursts: float = 5.0
    """How often a session trains, on average; the number is geometric."""
    burst_steps: float = 10_000.0
    """Steps in a burst, on average (exponential)."""
    pause_s: float = 60.0
    """Between two bursts, on average (exponential)."""
    durable_share: float = 0.75
    fresh_share: float = 0.25
    """Sessions that send a new batch with each step; the others have uploaded their dataset."""
    state_mib: float = 8.0
    """The median size of a session's state (log-normal, sigma 1, at most 512 MiB)."""
    network_s: float = 0.0004
    """There and back between client, gateway and worker, per message that is waited for."""
    reconnect_share: float = 0.2
    """Bursts that begin with a new connection, through any gateway."""
    mtbf_s: float = 30 * 86400.0
    """Between two failures of one worker, on average."""
    incident_share: float = 0.05
    """Workers (at least one) that fail, are drained, and are added, each once in a run."""
    fail_at_s: float = 10.0
    drain_at_s: float = 25.0
    add_at_s: float = 30.0
    ends_s: float = 50.0
    counts_from_s: float = 5.0
    """Rates are counted from here to the end."""


@dataclass(frozen=True)
class Layout:
    """How a cluster is built."""

    workers: int
    gateways: int = 1
    """Gateway processes, each on one core."""
    directories: int = 1
    """Database servers that each hold a part of the sessions."""
    stores: int = 1
    """Disks or prefixes, each as fast as the disk that was measured."""
    direct: bool = False
    """Whether clients connect to workers; the gateways only place sessions and renew tokens."""
    scanners: int | None = None
    """Gateways that read the list of all workers from the directory; None for all of them."""
    worker_cores: int = 1
    """A worker is one process, whose interpreter runs on one core at a time."""
    directory_cores: int = 2
    renew_s: float = 1.0
    """Between two renewals of a worker's lease."""
    lease_s: float = 5.0
    """How long a lease lasts."""
    snapshot_after_s: float = 5.0
    """The replay time after which a session writes a snapshot (``--snapshot-after-s``)."""
    token_s: float = 150.0
    """Between two renewals of a client's token."""
    scan_s: float = 0.5
    """Between two readings of the list of workers, in which a gateway finds lapsed leases."""
    skew_s: float = 0.5
    """How long a lease must be over before its worker counts as dead."""
    refused_s: float = 2.0
    """The same from the last renewal, if the worker refuses connections."""
    retry_s: float = 0.5
    """The longest pause before a request that met a dead worker is sent again."""


def costs(path: Path = COMMITTED) -> Costs:
    """The costs in a file that ``measure`` wrote."""
    measured: dict[str, Any] = json.loads(path.read_text())["costs"]
    return Costs(**{field.name: float(measured[field.name]["value"]) for field in fields(Costs)})
