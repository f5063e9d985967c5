"""The time to resume in a real cluster of two workers, beside the simulated time of the same cluster."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import telegrad as tg
from telegrad_engine.errors import ConnectionFailed
from telegrad_service.cluster.directory import Directory
from telegrad_service.database import Database

from ..members import member
from ..mlp_http import loop, network, resident_ours
from .measure import postgresql
from .parameters import Costs, Layout, Workload
from .simulation import Cluster

SESSIONS, ROUNDS = 4, 8
"""The sessions that train in the real cluster, and how often one of its workers is killed."""
TRAINS_S = 4.0
"""Seconds of training before a worker is killed; a journal has about as many."""
WAITS_S = 60.0


class Trainer(threading.Thread):
    """A client that trains in a durable session, and notes when it has read a loss."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.session_id = ""
        self.read_at: list[float] = []
        self.began, self.stopped = threading.Event(), threading.Event()
        self._url = url

    def run(self) -> None:
        """Train until told to stop."""
        copy_context().run(self._train)

    def _train(self) -> None:
        with tg.connect(self._url, durable=True) as opened:
            self.session_id = opened.id
            turn = loop(network(tg)[1], resident_ours(), 10)
            while not self.stopped.is_set():
                with suppress(ConnectionFailed):  # a restore took longer than the client waits for a connection
                    for _ in range(10):
                        turn()
                    self.read_at.append(time.monotonic())
                    self.began.set()

    def resumed_s(self, killed_at: float) -> float:
        """Wait for a loss that was read after a worker was killed; the seconds from there."""
        deadline = time.monotonic() + WAITS_S
        # A loss that was under way may still arrive.
        while (read := [at for at in self.read_at if at > killed_at + 0.2]) == []:
            if time.monotonic() > deadline:
                raise RuntimeError(f"session {self.session_id[:6]}… did not resume within {WAITS_S:g} s")
            time.sleep(0.01)
        return read[0] - killed_at


def real(snapshot_after_s: float, rounds: int = ROUNDS) -> list[float]:
    """Kill a worker again and again; the seconds until each of its sessions has read a loss."""
    found: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as made, ExitStack() as stack:
        folder = Path(made)
        url = stack.enter_context(postgresql(folder))
        flags = [f"--database-url={url}", f"--data-dir={folder / 'data'}", f"--snapshot-after-s={snapshot_after_s}"]
        workers = [stack.enter_context(member("worker", *flags)) for _ in range(2)]
        gateway, _ = stack.enter_context(member("gateway", flags[0]))
        database = Database(url)
        stack.callback(database.close)
        directory = Directory(database)
        trainers = [Trainer(gateway) for _ in range(SESSIONS)]
        for trainer in trainers:
            trainer.start()
        for trainer in trainers:
            trainer.began.wait(WAITS_S)
        for number in range(rounds):
            time.sleep(TRAINS_S)
            address, pid = workers[number % 2]
            named = {worker.url: worker.id for worker in directory.workers() if worker.alive}
            placed = [(trainer, directory.find(trainer.session_id)) for trainer in trainers]
            its = [trainer for trainer, where in placed if where is not None and where.worker == named[address]]
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            found += [trainer.resumed_s(killed_at) for trainer in its]
            workers[number % 2] = stack.enter_context(member("worker", *flags))
        for trainer in trainers:
            trainer.stopped.set()
        for trainer in trainers:
            trainer.join(WAITS_S)
    return found


def simulated(costs: Costs, snapshot_after_s: float, runs: int = 100) -> list[float]:
    """The same in the simulation."""
    workload = replace(
        Workload(sessions_per_worker=SESSIONS / 2, bursts=1e9, burst_steps=1e12, pause_s=1e-9, durable_share=1.0),
        fresh_share=0.0, state_mib=1.0, network_s=0.0, drain_at_s=1e9, add_at_s=2e9,
    )  # fmt: skip
    layout = Layout(2, snapshot_after_s=snapshot_after_s)
    return [seconds for seed in range(runs) for seconds in Cluster(costs, layout, workload, seed).run().counts.resume_s]
