"""The workers of the simulated cluster, and the choice of one for a session."""

from __future__ import annotations

from dataclasses import dataclass, field

from .station import Station

SHARED_WEIGHT, LOAD_WEIGHT, THREADS = 0.5, 4.0, 4
"""The weights of sessions and load in the choice of a worker, and a worker's threads, by default."""


@dataclass(eq=False)
class Worker:
    """A worker's process. One that restarts is another worker."""

    number: int
    cpu: Station
    sessions: dict[int, None] = field(default_factory=dict)
    """The numbers of its sessions, in order."""
    alive: bool = True
    draining: bool = False
    level: int = 0
    """The cost under which the placement has filed it."""
    added_s: float = 0.0


class Placement:
    """The workers by what another session would cost, as `telegrad_service.cluster.placement` counts it.

    A worker costs as much as it reported, with half a point for a session and four for four busy threads, and a point
    for each session that it got since.
    """

    def __init__(self) -> None:
        self._levels: list[dict[int, Worker]] = [{}]

    def report(self, worker: Worker) -> None:
        """Note a worker's present cost."""
        self._file(worker, round(SHARED_WEIGHT * len(worker.sessions) + LOAD_WEIGHT * worker.cpu.jobs / THREADS))

    def add(self, worker: Worker) -> None:
        """Note that a worker gets a session."""
        self._file(worker, worker.level + 1)

    def remove(self, worker: Worker) -> None:
        """Note that a worker takes no more sessions."""
        self._levels[worker.level].pop(worker.number, None)

    def _file(self, worker: Worker, level: int) -> None:
        self.remove(worker)
        if worker.alive and not worker.draining:
            worker.level = level
            while len(self._levels) <= level:
                self._levels.append({})
            self._levels[level][worker.number] = worker

    def choose(self) -> Worker | None:
        """One of the workers with the least cost; None if there is no worker."""
        return next((next(iter(level.values())) for level in self._levels if level), None)
