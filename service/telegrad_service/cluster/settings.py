"""The settings of gateways and workers, which ``telegrad gateway`` and ``telegrad worker`` take as flags."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from ..settings import EnvironmentSettings, NetworkSettings, Settings


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
