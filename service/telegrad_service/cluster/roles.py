"""The commands ``telegrad gateway`` and ``telegrad worker``."""

from __future__ import annotations

import sys

from telegrad_engine.errors import TelegradError

from .. import __version__
from ..database.database import DatabaseUnavailable
from ..process import stop_after
from ..settings import ForegroundSettings
from .settings import GatewaySettings, WorkerSettings


class Gateway(GatewaySettings, ForegroundSettings):
    """Pass requests on to the workers of a cluster. Several gateways may share a PostgreSQL database."""

    def cli_cmd(self) -> None:
        """Run the gateway in the foreground."""
        from ..observability import logs
        from ..server import NotServed
        from .gateway_app import run_gateway

        logs.configure(self.log_level, self.log_format)
        if self.end_with_stdin:
            stop_after(sys.stdin.fileno())
        try:
            run_gateway(self, _announce_gateway)
        except (TelegradError, NotServed, DatabaseUnavailable) as reason:
            sys.exit(f"telegrad: {reason}")


class Worker(WorkerSettings, ForegroundSettings):
    """Host sessions for the gateways of a cluster, which share its database, and its data folder with other workers."""

    def cli_cmd(self) -> None:
        """Run the worker in the foreground."""
        from ..observability import logs
        from ..server import NotServed
        from .worker import run_worker

        logs.configure(self.log_level, self.log_format)
        if self.end_with_stdin:
            stop_after(sys.stdin.fileno())
        try:
            run_worker(self, _announce_worker)
        except (TelegradError, NotServed, DatabaseUnavailable) as reason:
            sys.exit(f"telegrad: {reason}")


def _announce_gateway(url: str) -> None:
    print(f"Telegrad {__version__} is a gateway at {url}", f"Docs at {url}/docs", sep="\n", flush=True)


def _announce_worker(worker_id: str, url: str) -> None:
    print(f"Telegrad {__version__} is worker {worker_id} at {url}", flush=True)
