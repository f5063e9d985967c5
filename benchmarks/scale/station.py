"""A resource of the simulated cluster: a station that serves all its jobs at the same time, each with an equal share.

Processor sharing is what an event loop, the cores of a worker, a database server and a disk do to many small pieces of
work. Its means depend on the jobs' demands only by their means (the BCMP theorem), so one job of a thousand steps loads
a station as a thousand jobs of one step do.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import simpy


class Job(simpy.Event):
    """A job in a station; the event occurs when it is done."""

    def __init__(self, env: simpy.Environment, demand: float) -> None:
        super().__init__(env)
        self.demand = demand
        self.arrived = env.now


class Law(NamedTuple):
    """The two sides of Little's law, each from counts of its own."""

    in_system: float
    """The mean number of jobs in the station, over time."""
    rate_times_time: float
    """The jobs per second that arrived, times the mean seconds that they spent in the station."""


class Station:
    """``capacity`` servers that ``k`` jobs share: each job progresses at the rate ``min(1, capacity / k)``."""

    def __init__(self, env: simpy.Environment, capacity: float = 1.0) -> None:
        self.env, self.capacity = env, capacity
        self.arrived = 0
        self.demanded = 0.0
        """The seconds of service that all jobs asked for."""
        self._sojourn = 0.0
        self._area = 0.0
        self._busy = 0.0
        self._jobs: list[tuple[float, int, Job]] = []
        self._progress = 0.0
        """The service that a job would have had that has been here since the start."""
        self._updated = env.now
        self._timer: simpy.Event | None = None
        self._due = 0.0

    def serve(self, demand: float) -> Job:
        """Add a job that needs ``demand`` seconds of one server. The event that is returned occurs when it is done."""
        job = Job(self.env, demand)
        self._advance()
        self.arrived += 1
        self.demanded += demand
        heappush(self._jobs, (self._progress + demand, self.arrived, job))
        self._schedule()
        return job

    @property
    def jobs(self) -> int:
        """The number of jobs in the station."""
        return len(self._jobs)

    def stop(self) -> None:
        """Drop all jobs: their events never occur."""
        self._advance()
        self._sojourn += sum(self.env.now - job.arrived for _, _, job in self._jobs)
        self._jobs.clear()
        self._timer = None

    def busy(self) -> float:
        """The server-seconds of work done so far."""
        self._advance()
        return self._busy

    def law(self) -> Law:
        """Both sides of Little's law, until now."""
        self._advance()
        now = self.env.now
        if not now or not self.arrived:
            return Law(0.0, 0.0)
        spent = self._sojourn + sum(now - job.arrived for _, _, job in self._jobs)
        return Law(self._area / now, (self.arrived / now) * (spent / self.arrived))

    def remaining(self) -> float:
        """The server-seconds of work that the jobs in the station still need."""
        self._advance()
        return sum(finish - self._progress for finish, _, _ in self._jobs)

    def _advance(self) -> None:
        """Account for the time since the last change."""
        elapsed = self.env.now - self._updated
        if elapsed > 0:
            count = len(self._jobs)
            if count:
                busy = min(float(count), self.capacity)
                self._progress += elapsed * busy / count
                self._area += elapsed * count
                self._busy += elapsed * busy
            self._updated = self.env.now

    def _schedule(self) -> None:
        """Set the timer for the job that ends first. A timer that is early is left: it is set again when it fires."""
        if not self._jobs:
            return
        count = len(self._jobs)
        left = max(0.0, self._jobs[0][0] - self._progress) * max(1.0, count / self.capacity)
        due = self.env.now + left
        if self._timer is None or due < self._due:
            self._due = due
            self._timer = timer = self.env.timeout(left)
            assert timer.callbacks is not None
            timer.callbacks.append(self._fire)

    def _fire(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return  # another one was set since
        self._timer = None
        self._advance()
        slack = 1e-9 * max(1.0, self._progress)  # what rounding leaves
        while self._jobs and self._jobs[0][0] <= self._progress + slack:
            _, _, job = heappop(self._jobs)
            self._sojourn += self.env.now - job.arrived
            job.succeed()
        self._schedule()
