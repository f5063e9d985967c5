"""A worker: the same application as a server's, whose sessions are in the directory of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from .. import __version__
from ..app import create_app
from ..database.database import Database, DatabaseUnavailable
from ..hosting.devices import device_names
from ..server import NotServed, serve
from .directory import Directory
from .lease import Lease, Member
from .role import WorkerRole
from .settings import WorkerSettings
from .tokens import Secrets
from .verification import TokenAuthenticator
from .worker_host import WorkerHost

Joined = Callable[[str, str], None]
"""Called with the worker's id and its address once gateways can use it."""


def run_worker(settings: WorkerSettings, joined: Joined | None = None) -> None:
    """Serve as a worker until SIGINT or SIGTERM, then hand its sessions over to others.

    Raises NotServed if its settings do not allow that, and TelegradError if its data folder cannot be used.
    """
    database = Database(settings.database_url.get_secret_value())
    directory = Directory(database)
    secrets = Secrets(database, settings.cluster_secret.get_secret_value())
    if settings.advertise is not None:
        settings = settings.model_copy(update={"allowed_host": [*settings.allowed_host, _host_of(settings.advertise)]})
    try:
        database.open()
        host = WorkerHost(settings, directory, secrets)
        host.discover()
    except DatabaseUnavailable as error:
        raise NotServed(str(error)) from None
    lease = Lease(directory, host, settings.worker_timeout_s, settings.drain_s)
    authenticator = TokenAuthenticator(settings, secrets)
    app = create_app(settings, host, authenticator)
    app.add_middleware(WorkerRole, host=host, authenticator=authenticator, lease=lease)

    devices = device_names()

    def announce(url: str) -> None:
        address = settings.advertise or url
        host.url = address
        lease.start(Member(address, __version__, devices, settings.data_dir is not None))
        if joined is not None:
            joined(host.worker_id, address)

    try:
        serve(app, settings, announce)
    finally:
        lease.stop()
        database.close()


def _host_of(url: str) -> str:
    """The host in an address. Raises NotServed for anything else."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise NotServed(f"--advertise is an address such as http://10.0.0.7:8000, not {url!r:.80}")
    return parts.hostname
