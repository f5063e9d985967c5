"""What our protocols take from uvicorn beyond its documentation, and the versions that they are tested with."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

ROOT = Path(__file__).parents[2]
STREAM = {
    "client", "close_sent", "config", "conn", "data_received", "disconnected", "eof_received", "frames",
    "handle_connect", "handle_cont", "handshake_complete", "handshake_initiated", "loop", "pause_writing", "ping_timer",
    "queue", "read_paused", "receive", "resume_writing", "schedule_ping", "send", "send_keepalive_ping",
    "send_receive_event_to_app", "shutdown", "transport", "writable",
}  # fmt: skip
HTTP = {
    "app", "client", "cycle", "flow", "handle_websocket_upgrade", "headers", "loop", "on_body", "on_header",
    "on_headers_complete", "on_message_begin", "on_message_complete", "on_response_complete", "on_url", "parser",
    "server_state", "transport", "_should_upgrade", "_unset_keepalive_if_required",
}  # fmt: skip


@pytest.mark.parametrize(("protocol", "names"), [(WebSocketsSansIOProtocol, STREAM), (HttpToolsProtocol, HTTP)])
def test_the_protocols_of_the_library_have_what_ours_use(protocol: Any, names: set[str]) -> None:
    async def missing() -> set[str]:
        made = protocol(uvicorn.Config(lambda scope: None, log_config=None), ServerState(), {})
        return {name for name in names if not hasattr(made, name)}

    assert asyncio.run(missing()) == set()


def test_the_range_of_versions_is_what_the_tests_run_with() -> None:
    """Both ends of it are in one minor version, the one that ``constraints.txt`` names."""
    project = tomllib.loads((ROOT / "service/pyproject.toml").read_text())["project"]
    (required,) = (r for r in map(Requirement, project["dependencies"]) if r.name == "uvicorn")
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    tested = Version(pins["uvicorn"])
    assert tested in required.specifier
    assert f"{tested.major}.{tested.minor}.999" in required.specifier
    assert f"{tested.major}.{tested.minor + 1}.0" not in required.specifier
    assert f"{tested.major}.{tested.minor - 1}.999" not in required.specifier
