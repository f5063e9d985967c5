"""What can be set, from the environment (``TELEGRAD_PORT=…``) and as flags of ``telegrad serve``."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 2**20


class Address(BaseSettings):
    """Where a server listens."""

    model_config = SettingsConfigDict(env_prefix="TELEGRAD_", extra="ignore")

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 is every interface")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")


class Settings(Address):
    """Settings of a server; each has a default that suits one machine."""

    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="warning", description="how much is logged; bodies and session ids never are"
    )
    threads: int = Field(
        default=max(4, os.cpu_count() or 4),
        ge=1,
        le=1024,
        description="how many sessions compute at the same time",
    )
    blas_threads: int = Field(
        default=0, ge=0, le=1024, description="threads of one matrix product, NumPy's or XLA's; 0 is all cores but one"
    )
    max_body_bytes: int = Field(default=512 * MIB, ge=1, description="largest body of a request")
    max_json_bytes: int = Field(
        default=16 * MIB, ge=1, description="largest body in JSON; the binary media types have no such limit"
    )
    max_json_elements: int = Field(default=2**20, ge=1, description="most numbers in an answer in JSON")
    max_json_depth: int = Field(default=64, ge=4, le=500, description="deepest nesting of JSON that is read")
    remembered_programs: int = Field(
        default=512, ge=0, description="how many programs are remembered, so that clients need only name them"
    )
    plan_after: int = Field(
        default=4,
        ge=0,
        description="how often a program runs before it is planned as a list of NumPy calls; 0 is never",
    )
    compile_after: int = Field(
        default=20,
        ge=0,
        description="how often a program runs before it is compiled, in sessions that ask for it; 0 is never",
    )
    max_sessions: int = Field(default=256, ge=1, description="how many sessions may exist")
    max_session_bytes: int = Field(default=2048 * MIB, ge=1, description="bytes of tensors that one session may hold")
    session_ttl_s: float = Field(
        default=3600,
        gt=0,
        description="seconds of idleness after which a session ends, where it does not say",
    )
    max_session_ttl_s: float = Field(
        default=7 * 86400, gt=0, description="longest time to live that a session may ask for"
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
