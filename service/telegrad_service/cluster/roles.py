"""The commands ``telegrad gateway`` and ``telegrad worker``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from telegrad_engine.errors import TelegradError

from .. import __version__
from ..observability import logs
from ..process import stop_after
from ..settings import ForegroundSettings
from .settings import GatewaySettings, WorkerSettings


class Gateway(GatewaySettings, ForegroundSettings):
    """Pass requests on to the workers of a cluster. Several gateways may share a PostgreSQL database."""

    def cli_cmd(self) -> None:
        """Run the gateway in the foreground."""
        from .gateway_app import run_gateway

        _run(self, partial(run_gateway, self, "is a gateway at"))


class Worker(WorkerSettings, ForegroundSettings):
    """Host sessions for the gateways of a cluster, which share its database, and its data folder with other workers."""

    def cli_cmd(self) -> None:
        """Run the worker in the foreground."""
        from .worker import run_worker

        _run(self, partial(run_worker, self, _announce_worker))


def _run(settings: Gateway | Worker, serve: Callable[[], None]) -> None:
    """Serve in the foreground. An error that the operator can mend ends the process with its text."""
    from ..database.database import DatabaseUnavailable
    from ..server import NotServed

    logs.configure(settings.log_level, settings.log_format)
    if settings.end_with_stdin:
        stop_after(sys.stdin.fileno())
    try:
        serve()
    except (TelegradError, NotServed, DatabaseUnavailable) as reason:
        logs.fail(reason)


def _announce_worker(worker_id: str, url: str) -> None:
    logs.announce(f"Telegrad {__version__} is worker {worker_id} at {url}")
