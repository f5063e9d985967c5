"""Settings, from environment variables (``TELEGRAD_PORT=…``) or flags of ``telegrad serve``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from platformdirs import user_data_path
from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, CliExplicitFlag, NoDecode, SettingsConfigDict

from .observability import logs
from .process import default_process_bytes, stop_after, usable_cores

KIB, MIB = 2**10, 2**20


def _split(value: Any) -> Any:
    """Split a comma-separated string, or a list of such strings, into its items."""
    texts = [value] if isinstance(value, str) else value
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]


Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""A repeatable flag, or a comma-separated environment variable."""
Folder = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]


def default_database_path() -> Path:
    """The SQLite file that is used if no database is named."""
    return user_data_path("telegrad", appauthor=False) / "telegrad.db"


def sqlite_file(url: str) -> Path | None:
    """The file that a database's URL names, the default one if the URL is empty; None if it is no SQLite file's."""
    if not url:
        return default_database_path()
    named = re.match(r"sqlite(?:\+\w+)?:///(?!:memory:)([^?]+)", url)
    return Path(named[1]) if named else None


def default_threads(cores: int) -> int:
    """One thread per core, but at least 4, so that one long program does not block every other session."""
    return max(4, cores)


class EnvironmentSettings(BaseSettings):
    """Settings with flags and environment variables. A class of settings is a group in the help of a command."""

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", env_ignore_empty=True, extra="ignore")


class Address(EnvironmentSettings):
    """Where a server listens."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 is every interface")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    tls_cert: Path | None = Field(
        default=None, description="PEM file of the server's certificate and its chain: the server then speaks TLS only"
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file of the certificate's private key, if it is not in the certificate's file"
    )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("--tls-key needs --tls-cert")
        return self


class AccessSettings(Address):
    """Who may use a server."""

    require_keys: bool | None = Field(
        default=None,
        description="require an API key of every request, or of none, which also takes --insecure where other machines "
        "reach the server; by default once the database holds a key",
    )
    insecure: bool = Field(
        default=False,
        description="let anyone who reaches the server use it, also from other machines, and whatever keys the "
        "database holds; --require-keys is stronger",
    )
    published_at: str | None = Field(
        default=None,
        description="address and port at which a container's host publishes the server, such as 127.0.0.1:8000, if "
        "that, and not --host, decides which machines reach it",
    )
    allowed_host: Names = Field(
        default=[],
        description="name that clients may address the server by, beside loopback names, IP addresses and --host; "
        "repeatable, *.example.org is every name below, * is any",
    )
    cors_origin: Names = Field(
        default=[],
        description="origin whose web pages may use the server, such as https://notebook.example.org; repeatable, "
        "* is any",
    )
    trusted_proxy: Names = Field(
        default=[],
        description="address of a proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable",
    )

    @property
    def serves_anyone(self) -> bool:
        """Whether flags say that no request needs a key, whatever the database holds."""
        return self.insecure if self.require_keys is None else not self.require_keys

    @property
    def reached_at(self) -> str:
        """The host that decides which machines reach the server."""
        if self.published_at is None:
            return self.host
        return self.published_at.rpartition(":")[0].strip("[]") or "0.0.0.0"  # as Docker reads a port alone


class DatabaseSettings(EnvironmentSettings):
    """Where the server's database is."""

    database_url: SecretStr = Field(
        default=SecretStr(""),
        description="database of API keys, such as postgresql://name:password@host/telegrad or "
        "sqlite:////var/lib/telegrad.db; by default a file in the user's data directory",
    )


class LogSettings(EnvironmentSettings):
    """What is logged."""

    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="warning",
        description="how much is logged; info logs every request. Bodies and whole session ids are never logged",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="how the log is written: as text, or as one JSON object per line"
    )


class ForegroundSettings(LogSettings):
    """When a process in the foreground ends, besides at SIGINT and SIGTERM."""

    end_with_stdin: CliExplicitFlag[bool] = Field(
        default=False, description="stop when standard input ends, for a script that holds the other end of a pipe"
    )

    def begin(self) -> None:
        """Begin to log, and to wait for the end of standard input if this is set."""
        logs.configure(self.log_level, self.log_format)
        if self.end_with_stdin:
            stop_after(sys.stdin.fileno())


class ConnectionSettings(EnvironmentSettings):
    """Connections and requests."""

    max_connections: int = Field(
        default=1000, ge=1, description="how many connections may be open; fewer if file descriptors are scarce"
    )
    max_connections_per_peer: int = Field(
        default=256, ge=1, description="how many of them may come from one address, or one IPv6 /64 network"
    )
    max_header_bytes: int = Field(
        default=32 * KIB, ge=1 * KIB, description="largest request line and headers of a request"
    )
    header_timeout_s: float = Field(
        default=20, gt=0, description="seconds a client gets to send the headers of a request"
    )
    body_timeout_s: float = Field(
        default=30,
        gt=0,
        description="seconds a client gets to send a body or take an answer, plus a second for each KiB; also the "
        "longest pause",
    )
    idle_timeout_s: float = Field(default=75, gt=0, description="seconds a connection stays open between two requests")
    max_body_bytes: int = Field(default=512 * MIB, ge=1, description="largest body of a request")
    max_json_bytes: int = Field(
        default=16 * MIB, ge=1, description="largest body in JSON; the binary media types have no such limit"
    )
    max_json_elements: int = Field(default=2**20, ge=1, description="most numbers in an answer in JSON")
    max_json_depth: int = Field(default=64, ge=4, le=500, description="deepest nesting of JSON that is read")
    stream_ping_s: float = Field(
        default=20,
        gt=0,
        description="seconds between pings on a stream; one that ends waits so long for a client that takes nothing",
    )
    drain_s: float = Field(
        default=30, ge=0, description="seconds that running programs get to finish when the server stops"
    )


class NetworkSettings(AccessSettings, DatabaseSettings, LogSettings, ConnectionSettings):
    """What every process that serves clients has to know: a server, a worker and a gateway."""


class ComputeSettings(EnvironmentSettings):
    """How programs are computed."""

    threads: int = Field(
        default=default_threads(usable_cores()), ge=1, le=1024, description="how many sessions compute at the same time"
    )
    blas_threads: int = Field(
        default=0, ge=0, le=1024, description="threads of one matrix product; 0 is all usable cores but one"
    )
    remembered_programs: int = Field(
        default=512, ge=0, description="how many programs are remembered, so that clients can send them by name"
    )
    remembered_bytes: int = Field(
        default=256 * MIB, ge=0, description="bytes of memory that remembered programs take together"
    )
    plan_after: int = Field(
        default=2,
        ge=0,
        description="how often a program runs before it is planned as a list of NumPy calls; 0 is never",
    )


class DurabilitySettings(EnvironmentSettings):
    """Durable sessions."""

    data_dir: Folder | None = Field(
        default=None,
        description="folder in which durable sessions are kept, or an object store such as s3://bucket/prefix; without "
        "it there are none",
    )
    fsync: Literal["always", "everysec"] = Field(
        default="everysec",
        description="when a durable session's programs reach the disk or the object store: before each answer, or once "
        "a second. With everysec and a folder, a crash of the server alone loses nothing, and one of the machine up to "
        "a second; with an object store, each of them up to a second",
    )
    snapshot_after_s: float = Field(
        default=0.1,
        gt=0,
        description="seconds of a durable session's computations after which a snapshot replaces its journal, unless "
        "snapshots would take more than 5 % of the time; after a crash, restoring it takes about as long",
    )
    unload_s: float = Field(
        default=900, gt=0, description="seconds of idleness after which a durable session is on the disk only"
    )


class LimitSettings(EnvironmentSettings):
    """How much sessions may take."""

    max_sessions: int = Field(default=256, ge=1, description="how many sessions may exist")
    max_sessions_per_peer: int = Field(
        default=128, ge=0, description="how many of them one address, or one IPv6 /64 network, may have; 0 is no limit"
    )
    max_sessions_per_tenant: int = Field(
        default=128, ge=0, description="how many of them one tenant of a server with keys may have; 0 is no limit"
    )
    max_queued: int = Field(
        default=1024,
        ge=4,
        description="how many requests may run or wait for sessions; one tenant may have three quarters of them",
    )
    max_queued_per_session: int = Field(
        default=64, ge=1, description="how many requests may run or wait for one session"
    )
    max_session_bytes: int = Field(default=2048 * MIB, ge=1, description="bytes of tensors that one session may hold")
    max_process_bytes: int = Field(
        default_factory=default_process_bytes,
        ge=1,
        description="bytes of memory for all sessions together; by default 80 % of the machine's or the container's",
    )
    max_tenant_bytes: int = Field(
        default_factory=lambda: default_process_bytes() // 2,
        ge=1,
        description="bytes of memory for all sessions of one tenant of a server with keys; by default half of what all "
        "sessions may take",
    )
    max_program_instructions: int = Field(
        default=10_000_000,
        ge=1,
        description="instructions that one program may run, with those of its functions' loops and the nodes of its "
        "backward passes",
    )
    max_program_s: float = Field(
        default=300, gt=0, description="seconds that one program may run; it is stopped after that"
    )


class LifetimeSettings(EnvironmentSettings):
    """How long sessions live."""

    reconnect_s: float = Field(
        default=10,
        ge=0,
        description="seconds that a client's programs go on after it has disconnected, so that it can connect again",
    )
    session_ttl_s: float = Field(
        default=3600, gt=0, description="seconds of idleness after which a session ends, where it does not say"
    )
    max_session_ttl_s: float = Field(
        default=7 * 86400, gt=0, description="longest time to live that a session may ask for"
    )
    heartbeat_ttl_s: float = Field(
        default=60,
        gt=0,
        description="seconds after which a session with heartbeats ends once its client shows no sign of life",
    )
    pending_timeout_s: float = Field(
        default=300,
        gt=0,
        description="seconds of idleness after which a session gives up the passes that wait for its client",
    )


class Settings(NetworkSettings, ComputeSettings, DurabilitySettings, LimitSettings, LifetimeSettings):
    """Settings of a server; each has a default that suits one machine."""


# A cluster ---------------------------------------------------------------------------------------


class MemberSettings(EnvironmentSettings):
    """What gateways and workers of one cluster must have in common."""

    worker_timeout_s: float = Field(
        default=5,
        ge=2,
        le=300,
        description="seconds without a sign of life after which a worker counts as dead; the same for all of a cluster",
    )
    cluster_secret: SecretStr = Field(
        default=SecretStr(""),
        description="secret of 32 characters or more that signs what gateways tell workers; by default in the database",
    )


class GatewaySettings(NetworkSettings, MemberSettings):
    """Settings of a gateway."""

    worker_ca: Path | None = Field(
        default=None,
        description="PEM file of the authorities whose certificates workers with TLS have; by default the system's",
    )


class WorkerSettings(Settings, MemberSettings):
    """Settings of a worker."""

    advertise: str | None = Field(
        default=None,
        description="address at which gateways reach this worker, such as http://10.0.0.7:8000; by default the one "
        "that it listens on",
    )
    max_connections_per_peer: int = Field(
        default=1000, ge=1, description="how many connections may come from one address: a gateway's are all from one"
    )
