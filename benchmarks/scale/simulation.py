"""The simulated cluster: sessions that train, workers that fail, are drained and are added, gateways, directory, store.

Every session is a SimPy process. A job stands for many steps of training; everything else, such as a lookup, a snapshot
or a move, is a job of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import Any

import simpy

from . import sizing
from .counts import Counts, Ownership
from .parameters import Costs, Layout, Workload
from .station import Station
from .workers import Placement, Worker

MIN_STEPS = 20
"""The fewest steps that a job stands for."""
LEASE_JOBS_PER_S = 400
"""Renewals of leases are put into at most so many jobs."""
Steps = Generator[simpy.Event, Any, None]


class SessionGone(Exception):
    """The worker of a volatile session failed; its client gets a 410."""


class Session:
    """A session and its client."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        random, workload = cluster.random, cluster.workload
        self.cluster, self.number = cluster, number
        self.durable = random.random() < workload.durable_share
        self.fresh = random.random() < workload.fresh_share
        self.mib = min(512.0, workload.state_mib * math.exp(random.gauss(0.0, 1.0)))
        self.bursts = 1 + int(math.log(1.0 - random.random()) / math.log(1.0 - 1.0 / workload.bursts))
        self.store = cluster.stores[number % len(cluster.stores)]
        self.directory = cluster.directories[number % len(cluster.directories)]
        self.gateway = cluster.any_gateway()
        self.known: dict[int, int] = {}
        """The epoch under which each gateway knows the session's worker."""
        self.worker: Worker | None = None
        self.epoch = 0
        self.loaded = self.saved = False
        self.declared: simpy.Event | None = None
        """Occurs when the gateways know that its worker has failed; None if it has a worker, or may have another."""
        self.lost_at: float | None = None
        """When its worker failed, if it was training then and is not restored yet."""
        self.lost_hung = False
        """Whether that worker's process hung."""
        self.replay_s = 0.0
        """The time that running its journal would take."""
        self.planned = self.acknowledged = 0.0
        """The steps that its client has asked for, and those with an answer."""
        self.in_flight = 0.0
        """The steps that a worker runs for it now."""
        self.training = False
        """Whether its client uses it; a drain moves it between two jobs then."""
        self.moving: simpy.Event | None = None
        """Occurs when a drain has moved it."""
        self.token_until = 0.0
        self.owned_since = 0.0
        self.process: simpy.Process | None = None

    # Its worker ----------------------------------------------------------------------------------

    def attach(self, worker: Worker) -> None:
        """Give it to a worker under a new epoch."""
        self.worker, self.loaded = worker, False
        self.epoch += 1
        self.owned_since = self.cluster.env.now
        worker.sessions[self.number] = None
        self.cluster.placement.add(worker)

    def detach(self) -> None:
        """Take it from its worker."""
        worker = self.worker
        if worker is not None:
            del worker.sessions[self.number]
            self.cluster.note_ownership(self, worker, self.owned_since)
            self.worker, self.loaded = None, False

    def acknowledge(self, steps: float, epoch: int) -> bool:
        """Count the steps that a worker has answered, unless the session has another epoch now."""
        if epoch != self.epoch or self.worker is None:
            self.cluster.counts.refused += 1
            return False
        self.acknowledged += steps
        if self.cluster.counting:
            self.cluster.counts.steps += steps
        return True

    # Its client ----------------------------------------------------------------------------------

    def run(self, new: bool, active: bool) -> Steps:
        """Open the session, train in bursts, end it. It ends early if it is volatile and its worker fails."""
        cluster, counts = self.cluster, self.cluster.counts
        try:
            if new:
                began = cluster.env.now
                yield from self._open()
                counts.create_s.append(cluster.env.now - began)
            while self.bursts > 0:
                if not active:
                    yield from self._pause()
                active = False
                yield from self._train(cluster.random.expovariate(1.0 / cluster.workload.burst_steps))
                self.bursts -= 1
            yield from self._surviving(self._close)
            counts.ended += 1
        except SessionGone:
            counts.gone += 1
        del cluster.sessions[self.number]
        if cluster.trace:
            cluster.finished.append(self)

    def _open(self) -> Steps:
        cluster = self.cluster
        self.training = True
        yield self.gateway.serve(cluster.costs.gateway_request_s)
        self.attach((yield from self._place()))
        self._learn()
        yield from self._surviving(self._register)

    def _place(self) -> Generator[simpy.Event, Any, Worker]:
        """A gateway chooses a worker."""
        cluster, costs = self.cluster, self.cluster.costs
        yield self.gateway.serve(costs.counts_gateway_s + cluster.layout.workers * costs.placement_row_s)
        yield self.directory.serve(costs.counts_s)
        while (worker := cluster.placement.choose()) is None:
            yield cluster.capacity()
        return worker

    def _register(self) -> Steps:
        """The worker makes the session and puts it into the directory."""
        yield from self._ready()
        assert self.worker is not None
        yield from self.cluster.write_directory(self.worker.cpu, self.directory)

    def _close(self) -> Steps:
        yield from self._ready()
        yield self.gateway.serve(self.cluster.costs.gateway_request_s)
        assert self.worker is not None
        yield from self.cluster.write_directory(self.worker.cpu, self.directory)
        self.detach()

    def _pause(self) -> Steps:
        env = self.cluster.env
        self.training = False
        until = env.now + self.cluster.random.expovariate(1.0 / self.cluster.workload.pause_s)

        def wait() -> Steps:
            yield env.timeout(max(0.0, until - env.now))

        yield from self._surviving(wait)

    def _train(self, steps: float) -> Steps:
        steps = max(1.0, round(steps))
        self.planned += steps
        self.training = True
        left = [steps]
        if self.cluster.random.random() < self.cluster.workload.reconnect_share:
            self.gateway = self.cluster.any_gateway()

        def train() -> Steps:
            while left[0] > 0:
                yield from self._ready()
                count = min(left[0], self._steps_of_job())
                if (yield from self._steps(count)):
                    left[0] -= count
                if self.replay_s >= self.cluster.layout.snapshot_after_s:
                    yield from self._snapshot()
                if self.durable and self.worker is not None and self.worker.draining:
                    yield from self.move()

        yield from self._surviving(train)

    def _steps_of_job(self) -> float:
        """How many steps the next job stands for. Jobs of equal length would go through the stations in step."""
        mean = self.cluster.steps_of_job[self.fresh]
        return max(1.0, round(self.cluster.random.expovariate(1.0 / mean)))

    def _surviving(self, work: Callable[[], Steps]) -> Steps:
        """Do ``work``, again from where it was if the worker fails meanwhile. Raises SessionGone."""
        while True:
            try:
                yield from work()
                return
            except simpy.Interrupt:
                self.in_flight = 0.0
                if not self.durable:
                    raise SessionGone from None

    def _ready(self) -> Steps:
        """Wait until a worker has the session in memory."""
        cluster, costs = self.cluster, self.cluster.costs
        if self.moving is not None:
            yield self.moving
        if self.worker is None:
            yield from self._assign()
        worker = self.worker
        assert worker is not None
        if not self.loaded:
            if self.saved or self.replay_s:
                yield self.store.serve(costs.store_sync_s + self.mib * costs.store_read_mib_s)
                yield worker.cpu.serve(costs.restore_s + self.mib * costs.restore_mib_s + self.replay_s)
            else:
                yield worker.cpu.serve(costs.create_s)
            self.loaded = True
            if self.lost_at is not None:
                found = cluster.counts.resume_hung_s if self.lost_hung else cluster.counts.resume_s
                found.append(cluster.env.now - self.lost_at)
                self.lost_at = None
        if cluster.layout.direct:
            if cluster.env.now >= self.token_until or self.known.get(-1) != self.epoch:
                yield from self._find()
                self.known = {-1: self.epoch}
                self.token_until = cluster.env.now + cluster.layout.token_s
        elif self.known.get(id(self.gateway)) != self.epoch:
            yield from self._find()
            self._learn()

    def _assign(self) -> Steps:
        """A gateway gives the session, which nobody has, to a worker."""
        cluster = self.cluster
        if self.declared is not None:
            yield self.declared
            yield cluster.env.timeout(cluster.random.random() * cluster.layout.retry_s)
        while self.worker is None:
            yield from cluster.read_directory(self.gateway, self.directory)
            target = yield from self._place()
            yield from cluster.write_directory(self.gateway, self.directory)
            if target.alive and not target.draining:
                self.attach(target)
        if self.declared is not None:
            self.declared = None
            cluster.counts.failed_over += 1
        self._learn()

    def _find(self) -> Steps:
        """A gateway looks up the session's worker."""
        yield self.gateway.serve(self.cluster.costs.gateway_request_s)
        yield from self.cluster.read_directory(self.gateway, self.directory)

    def _learn(self) -> None:
        """A gateway caches the session's worker. Those of earlier epochs ask again, so that they are forgotten."""
        self.known = {gateway: epoch for gateway, epoch in self.known.items() if epoch == self.epoch}
        self.known[id(self.gateway)] = self.epoch

    def _steps(self, count: float) -> Generator[simpy.Event, Any, bool]:
        """Train for ``count`` steps. Returns whether they were acknowledged."""
        cluster, costs = self.cluster, self.cluster.costs
        began, epoch, worker = cluster.env.now, self.epoch, self.worker
        assert worker is not None
        self.in_flight = count
        yield cluster.env.timeout(count * cluster.away_s)
        if not cluster.layout.direct:
            yield self.gateway.serve(count * cluster.gateway_step_s[self.fresh])
        yield worker.cpu.serve(count * costs.step_s)
        if self.durable:
            yield self.store.serve(
                count * cluster.journal_step_s[self.fresh] + (cluster.env.now - began) * costs.store_sync_s
            )
            self.replay_s += count * costs.step_s
        self.in_flight = 0.0
        if cluster.counting:
            cluster.counts.step_times.append((cluster.env.now - began) / count)
        return self.acknowledge(count, epoch)

    def _snapshot(self) -> Steps:
        costs, worker = self.cluster.costs, self.worker
        assert worker is not None
        yield worker.cpu.serve(costs.snapshot_s + self.mib * costs.snapshot_mib_s)
        yield self.store.serve(costs.store_sync_s + self.mib * costs.store_write_mib_s)
        if self.worker is worker:
            self.replay_s, self.saved = 0.0, True

    def move(self) -> Steps:
        """Save the session for another worker, as its worker drains."""
        cluster = self.cluster
        began = cluster.env.now
        yield from self.save()
        yield from self._ready()
        cluster.counts.move_s.append(cluster.env.now - began)

    def save(self) -> Steps:
        """Write a snapshot, and leave the session to whichever worker gets it when it is used next."""
        worker, epoch = self.worker, self.epoch
        assert worker is not None
        if self.loaded:
            yield from self._snapshot()
        yield from self.cluster.write_directory(worker.cpu, self.directory)
        if self.worker is worker and self.epoch == epoch:
            self.detach()
            self.cluster.counts.moved += 1

    def end_move(self) -> None:
        """Let the client use the session again."""
        if self.moving is not None:
            self.moving.succeed()
            self.moving = None


class Cluster:
    """A run. ``seed`` decides everything that happens."""

    def __init__(
        self,
        costs: Costs,
        layout: Layout,
        workload: Workload,
        seed: int = 0,
        quantum_s: float | None = None,
        trace: bool = False,
    ) -> None:
        self.costs, self.layout, self.workload = costs, layout, workload
        self.env = simpy.Environment()
        self.random = Random(seed)
        self.counts = Counts()
        self.trace = trace
        self.ownerships: list[Ownership] = []
        """Which worker had each session, and when it had it no more; empty unless the run is traced."""
        self.finished: list[Session] = []
        """The sessions that ended; empty unless the run is traced."""
        self.gateways = [Station(self.env) for _ in range(layout.gateways)]
        self.directories = [Station(self.env, layout.directory_cores) for _ in range(layout.directories)]
        self.stores = [Station(self.env) for _ in range(layout.stores)]
        self.placement = Placement()
        self.workers: list[Worker] = []
        """All workers that there have been."""
        self.sessions: dict[int, Session] = {}
        self._numbers = 0
        self._capacity: simpy.Event | None = None
        self._busy_before: dict[str, float] = {}
        quantum = sizing.quantum_s(costs, workload, layout) if quantum_s is None else quantum_s
        self.step_s = {fresh: sizing.step_s(costs, workload, layout, fresh) for fresh in (False, True)}
        """A step that meets no other work."""
        self.gateway_step_s = {fresh: sizing.gateway_step_s(costs, fresh) for fresh in (False, True)}
        self.journal_step_s = {fresh: sizing.journal_step_s(costs, fresh) for fresh in (False, True)}
        self.away_s = sizing.away_s(costs, workload)
        self.steps_of_job: dict[bool, float] = {
            fresh: max(MIN_STEPS, round(quantum / seconds)) for fresh, seconds in self.step_s.items()
        }

    # The directory -------------------------------------------------------------------------------

    def write_directory(self, gateway: Station, directory: Station) -> Steps:
        """A gateway's compare-and-set in the directory."""
        costs = self.costs
        yield gateway.serve(costs.compare_and_set_gateway_s)
        yield directory.serve(costs.compare_and_set_s)
        waits = costs.compare_and_set_latency_s - costs.compare_and_set_s - costs.compare_and_set_gateway_s
        yield self.env.timeout(max(0.0, waits))  # for the disk of the database server, for example

    def read_directory(self, gateway: Station, directory: Station) -> Steps:
        """A gateway's lookup in the directory."""
        costs = self.costs
        yield gateway.serve(costs.lookup_gateway_s)
        yield directory.serve(costs.lookup_s)
        yield self.env.timeout(max(0.0, costs.lookup_latency_s - costs.lookup_s - costs.lookup_gateway_s))

    # Sessions and workers ------------------------------------------------------------------------

    @property
    def counting(self) -> bool:
        """Whether it is late enough to count rates."""
        return self.env.now >= self.workload.counts_from_s

    def any_gateway(self) -> Station:
        """The gateway to which a new connection is led."""
        return self.gateways[int(self.random.random() * len(self.gateways))]

    def note_ownership(self, session: Session, worker: Worker, since: float) -> None:
        """Keep which worker a session had, if the run is traced."""
        if self.trace:
            self.ownerships.append(Ownership(session.number, worker.number, session.epoch, since, self.env.now))

    def capacity(self) -> simpy.Event:
        """Occurs when a worker is added."""
        if self._capacity is None or self._capacity.triggered:
            self._capacity = self.env.event()
        return self._capacity

    def add_worker(self) -> Worker:
        """Add an empty worker, which takes new sessions."""
        worker = Worker(len(self.workers), Station(self.env, self.layout.worker_cores), added_s=self.env.now)
        self.workers.append(worker)
        self.placement.report(worker)
        if self._capacity is not None and not self._capacity.triggered:
            self._capacity.succeed()
        return worker

    def _add_session(self) -> Session:
        self._numbers += 1
        session = self.sessions[self._numbers] = Session(self, self._numbers)
        self.counts.arrived += 1
        return session

    def _populate(self) -> None:
        """The sessions that are open when a run begins: in a pause, or training, as after a long time."""
        workload = self.workload
        for _ in range(round(workload.sessions_per_worker * self.layout.workers)):
            session = self._add_session()
            worker = self.placement.choose()
            assert worker is not None
            session.attach(worker)
            session.loaded = session.saved = True
            session.replay_s = self.random.random() * self.layout.snapshot_after_s if session.durable else 0.0
            session.token_until = self.random.random() * self.layout.token_s
            session.known = {-1: session.epoch} if self.layout.direct else {id(session.gateway): session.epoch}
            training = workload.burst_steps * self.step_s[session.fresh]
            active = self.random.random() < training / (training + workload.pause_s)
            session.process = self.env.process(session.run(new=False, active=active))

    def _arrivals(self) -> Steps:
        workload = self.workload
        life_s = sizing.life_s(self.costs, workload, self.layout)
        rate = workload.sessions_per_worker * self.layout.workers / life_s
        while True:
            yield self.env.timeout(self.random.expovariate(rate))
            session = self._add_session()
            session.process = self.env.process(session.run(new=True, active=True))

    def _leases(self) -> Steps:
        """All workers renew their leases."""
        layout = self.layout
        together = max(1, math.ceil(layout.workers / layout.renew_s / LEASE_JOBS_PER_S))
        index = 0
        while True:
            yield self.env.timeout(together * layout.renew_s / layout.workers)
            directory = self.directories[index % len(self.directories)]
            index += 1
            began = self.env.now
            job = directory.serve(together * self.costs.compare_and_set_s)
            assert job.callbacks is not None
            job.callbacks.append(partial(self._renewed, together, began))

    def _reports(self) -> Steps:
        """Workers report their sessions and load when they renew their leases, a tenth of them at a time."""
        turn = 0
        while True:
            yield self.env.timeout(self.layout.renew_s / 10)
            for worker in self.workers[turn % 10 :: 10]:
                if worker.alive:
                    self.placement.report(worker)
            turn += 1

    def _renewed(self, together: int, began: float, job: simpy.Event) -> None:
        self.counts.renewals += together
        if self.env.now - began > self.layout.lease_s - self.layout.renew_s:
            self.counts.lapsed += together

    def _scans(self) -> Steps:
        """Gateways read the list of workers, one after the other, so that each does it every ``scan_s`` seconds."""
        layout, costs = self.layout, self.costs
        scanners = self.gateways[: layout.scanners]
        index = 0
        while True:
            yield self.env.timeout(layout.scan_s / len(scanners))
            scanners[index % len(scanners)].serve(layout.workers * costs.scan_row_gateway_s)
            directory = self.directories[index % len(self.directories)]
            directory.serve(layout.workers * costs.scan_row_s)
            index += 1

    # Failures ------------------------------------------------------------------------------------

    def fail(self, worker: Worker, paused_s: float | None = None) -> None:
        """A worker stops. It is restarted empty, or it was only paused and answers for its sessions when it goes on."""
        if not worker.alive:
            return
        self.counts.failures += 1
        worker.alive = False
        worker.cpu.stop()
        self.placement.remove(worker)
        hung = paused_s is not None
        sessions = self._sessions_of(worker)
        in_flight = [(s, s.in_flight, s.epoch) for s in sessions if s.in_flight]
        declared = self.env.timeout(self._noticed_s(hung))
        for session in sessions:
            if session.in_flight and session.lost_at is None:
                session.lost_at, session.lost_hung = self.env.now, hung
            session.detach()
            session.end_move()
            session.declared = declared
            assert session.process is not None
            session.process.interrupt()
        self.env.process(self._restart(in_flight, paused_s))

    def _noticed_s(self, hung: bool) -> float:
        """How long it takes until the gateways call a worker dead, which renewed its lease some time ago."""
        layout, random = self.layout, self.random
        overdue = layout.lease_s + layout.skew_s if hung else layout.refused_s
        return max(0.0, overdue - random.random() * layout.renew_s) + random.random() * layout.scan_s

    def _restart(self, in_flight: list[tuple[Session, float, int]], paused_s: float | None) -> Steps:
        yield self.env.timeout(self.costs.worker_start_s if paused_s is None else paused_s)
        if paused_s is not None:
            # It finishes what it was doing and answers, with the epochs that it knows.
            for session, steps, epoch in in_flight:
                session.acknowledge(steps, epoch)
        self.add_worker()

    def drain(self, worker: Worker) -> Steps:
        """Hand over a worker's durable sessions: idle ones one after the other, active ones between two jobs."""
        worker.draining = True
        self.placement.remove(worker)
        for session in self._sessions_of(worker):
            if session.durable and session.worker is worker and worker.alive and not session.training:
                session.moving = self.env.event()
                yield from session.save()  # never ends if the worker fails
                session.end_move()

    def _sessions_of(self, worker: Worker) -> list[Session]:
        return [self.sessions[number] for number in worker.sessions]

    def _ready_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive and not worker.draining]

    def _some(self) -> list[Worker]:
        """The workers of an incident."""
        ready = self._ready_workers()
        return self.random.sample(ready, max(1, round(self.workload.incident_share * len(ready)))) if ready else []

    def _incidents(self) -> Steps:
        """Some workers fail at once, half of them only paused; later some are drained; later some are added."""
        workload, env = self.workload, self.env
        yield env.timeout(workload.fail_at_s)
        for index, worker in enumerate(self._some()):
            self.fail(worker, paused_s=30.0 if index % 2 else None)
        yield env.timeout(workload.drain_at_s - env.now)
        if len(self._ready_workers()) > 1:
            for worker in self._some():
                env.process(self.drain(worker))
        yield env.timeout(workload.add_at_s - env.now)
        for _ in range(max(1, round(workload.incident_share * self.layout.workers))):
            self.add_worker()

    def _failures(self) -> Steps:
        """Workers fail at random, too."""
        while True:
            yield self.env.timeout(self.random.expovariate(self.layout.workers / self.workload.mtbf_s))
            ready = self._ready_workers()
            if ready:
                self.fail(ready[int(self.random.random() * len(ready))])

    # Running -------------------------------------------------------------------------------------

    def run(self) -> Cluster:
        """Simulate until the end."""
        for _ in range(self.layout.workers):
            self.add_worker()
        self._populate()
        for process in (self._arrivals, self._leases, self._reports, self._scans, self._incidents, self._failures):
            self.env.process(process())
        self.env.run(until=self.workload.counts_from_s)
        self._busy_before = {kind: self._busy(kind) for kind in ("gateways", "directories", "stores", "workers")}
        self.env.run(until=self.workload.ends_s)
        return self

    def _stations(self, kind: str) -> list[Station]:
        if kind == "workers":
            return [worker.cpu for worker in self.workers]
        found: list[Station] = getattr(self, kind)
        return found

    def _busy(self, kind: str) -> float:
        return sum(station.busy() for station in self._stations(kind))

    def utilization(self, kind: str) -> float:
        """The share of their time that ``gateways``, ``directories``, ``stores`` or ``workers`` worked."""
        seconds = self.workload.ends_s - self.workload.counts_from_s
        capacity = (
            self.layout.workers * self.layout.worker_cores
            if kind == "workers"
            else sum(station.capacity for station in self._stations(kind))
        )
        return (self._busy(kind) - self._busy_before[kind]) / seconds / capacity
