"""Settings, from environment variables (``TELEGRAD_PORT=…``) or flags of ``telegrad serve``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .process import default_process_bytes, usable_cores

KIB, MIB = 2**10, 2**20


def _split(value: Any) -> Any:
    """Split a comma-separated string, or a list of such strings, into its items."""
    texts = [value] if isinstance(value, str) else value
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]


Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""A repeatable flag, or a comma-separated environment variable."""


def default_threads(cores: int) -> int:
    """One thread per core, but at least 4, so that one long program does not block every other session."""
    return max(4, cores)


class Address(BaseSettings):
    """Where a server listens."""

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", extra="ignore")

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 is every interface")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")


class Settings(Address):
    """Settings of a server; each has a default that suits one machine."""

    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="warning",
        description="how much is logged; info logs every request. Bodies and whole session ids are never logged",
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
    threads: int = Field(
        default=default_threads(usable_cores()),
        ge=1,
        le=1024,
        description="how many sessions compute at the same time",
    )
    blas_threads: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="threads of one matrix product, NumPy's or XLA's; 0 is all usable cores but one",
    )
    max_body_bytes: int = Field(default=512 * MIB, ge=1, description="largest body of a request")
    max_json_bytes: int = Field(
        default=16 * MIB, ge=1, description="largest body in JSON; the binary media types have no such limit"
    )
    max_json_elements: int = Field(default=2**20, ge=1, description="most numbers in an answer in JSON")
    max_json_depth: int = Field(default=64, ge=4, le=500, description="deepest nesting of JSON that is read")
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
    compile_after: int = Field(
        default=20,
        ge=0,
        description="how often a program runs before it is compiled, in sessions that ask for it; 0 is never",
    )
    max_sessions: int = Field(default=256, ge=1, description="how many sessions may exist")
    max_sessions_per_peer: int = Field(
        default=128,
        ge=0,
        description="how many of them one address, or one IPv6 /64 network, may have; 0 is no limit",
    )
    max_session_bytes: int = Field(default=2048 * MIB, ge=1, description="bytes of tensors that one session may hold")
    max_process_bytes: int = Field(
        default_factory=default_process_bytes,
        ge=1,
        description="bytes of memory for all sessions together; by default 80 % of the machine's or the container's",
    )
    max_program_s: float = Field(
        default=300, gt=0, description="seconds that one program may run; it is stopped after that"
    )
    reconnect_s: float = Field(
        default=10,
        ge=0,
        description="seconds that a client's programs go on after it has disconnected, so that it can connect again",
    )
    session_ttl_s: float = Field(
        default=3600,
        gt=0,
        description="seconds of idleness after which a session ends, where it does not say",
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
    stream_ping_s: float = Field(
        default=20,
        gt=0,
        description="seconds between pings on a stream; one that ends waits so long for a client that takes nothing",
    )
    drain_s: float = Field(
        default=30, ge=0, description="seconds that running programs get to finish when the server stops"
    )
