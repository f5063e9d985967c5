"""``GET /metrics``: what is counted, in both formats, and no label that a client chooses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from safetensors.numpy import save

from telegrad_engine.errors import ERRORS
from telegrad_engine.program import VERBS

from ..servers import computing
from .api_keys import wait_until
from .conftest import SessionClient, served
from .raw_http import ask, request, upgrade
from .streams import ADD, BAD, UP, Talk, fetch, remembered

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
OPENMETRICS = "application/openmetrics-text"
LABELS = {
    "source": {"http", "stream"},
    "tier": {"interpreted", "planned"},
    "reason": {"deleted", "expired"},
    "result": {"hit", "miss"},
    "method": {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET", "OTHER"},
    "slug": set(ERRORS),
    "family": {"math", "shape", "linalg", "nn", "random", "function", "unknown", *VERBS},
}


@pytest.fixture(scope="module")
def watched() -> Iterator[httpx.Client]:
    """A server of which nothing else asks anything."""
    with served(workers=1) as (client, _):
        yield client


def samples(client: httpx.Client) -> list[Any]:
    """Those of the server; with a gateway, of its worker."""
    [url] = computing(client.base_url)
    answer = httpx.get(f"{url}/metrics", timeout=240)
    assert answer.status_code == 200
    return [each for family in text_string_to_metric_families(answer.text) for each in family.samples]


def total(found: list[Any], name: str, **labels: str) -> float:
    """The sum of the series that have these labels."""
    wanted = labels.items()
    return float(sum(each.value for each in found if each.name == name and wanted <= each.labels.items()))


@pytest.fixture
def value(watched: httpx.Client) -> Callable[..., float]:
    """What the series of a name, with these labels, have grown by since the test began."""
    wait_until(lambda: total(samples(watched), "telegrad_streams") == 0)
    before = samples(watched)
    return lambda name, **labels: total(samples(watched), name, **labels) - total(before, name, **labels)


def test_requests_are_counted_by_route_method_and_status(watched: httpx.Client, value: Callable[..., float]) -> None:
    session = SessionClient(watched)
    session.tensor("x", [1.0])
    for _ in range(3):
        session.get("/tensors/x")
    session.get("/tensors/nothing")
    route = "/v1/sessions/{session}/tensors/{id}"
    counted = {"route": route, "method": "GET"}
    assert value("telegrad_http_requests_total", **counted, status="200") == 3
    assert value("telegrad_http_requests_total", **counted, status="404") == 1
    assert value("telegrad_http_request_duration_seconds_count", **counted) == 4
    assert value("telegrad_http_request_duration_seconds_bucket", **counted, le="+Inf") == 4
    assert value("telegrad_http_request_duration_seconds_sum", **counted) > 0
    assert value("telegrad_problems_total", slug="unknown-tensor") == 1
    assert value("telegrad_received_bytes_total", source="http") > 0
    assert value("telegrad_sent_bytes_total", source="http") > 0


def test_programs_are_counted_by_source_and_tier(watched: httpx.Client, value: Callable[..., float]) -> None:
    session = SessionClient(watched)
    session.run(UP | {"attrs": {"data": [1.0]}}, ADD, fetch("x"))
    assert value("telegrad_program_duration_seconds_count", source="http", tier="interpreted") == 1
    assert value("telegrad_program_instructions_total", source="http") == 3
    talk = Talk(session)
    program = {"op": "mul_", "in": ["_0", 1.0]}, {"op": "fetch", "in": [["_0"]]}
    talk.say(remembered(1, ["x"], *program))
    call = json.dumps([{"template": sha256(json.dumps(program).encode()).hexdigest(), "ids": ["x"]}])
    for number in range(2, 11):
        talk.say(save({}, {"calls": call, "sequence": str(number), "seen": str(number - 1)}))
    talk.ask(11, BAD)
    assert value("telegrad_program_duration_seconds_count", source="stream", tier="planned") >= 5
    assert value("telegrad_program_duration_seconds_count", source="stream") == 11
    assert value("telegrad_program_instructions_total", source="stream") == 21
    for family, count in {"tensor": 1, "math": 12, "fetch": 11}.items():
        assert value("telegrad_instructions_total", family=family) == count
    assert value("telegrad_problems_total", slug="unknown-tensor") == 1
    assert value("telegrad_cached_program_lookups_total", result="hit") == 9
    assert value("telegrad_received_bytes_total", source="stream") > 0
    assert value("telegrad_streams") == 1
    talk.socket.close()


def test_what_an_ended_session_did_stays_counted(watched: httpx.Client, value: Callable[..., float]) -> None:
    session = SessionClient(watched)
    session.tensor("x", [0.0] * 1000)
    assert value("telegrad_tensor_bytes") >= 4000 and value("telegrad_sessions") == 1
    before = value("telegrad_instructions_total")
    watched.delete(session.path)
    assert value("telegrad_instructions_total") == before
    assert value("telegrad_tensor_bytes") == 0 and value("telegrad_sessions") == 0
    assert value("telegrad_sessions_created_total") == 1
    assert value("telegrad_sessions_ended_total", reason="deleted") == 1


def hostile(client: httpx.Client, word: str) -> None:
    """Requests with the word wherever a client can put one."""
    session = SessionClient(client, name=word)
    for method in ("GET", "PUT", "TRACE", word.upper()):
        for path in (
            f"/{word}",
            f"/v1/sessions/{word}",
            f"/v1/ops/{word}",
            f"{session.path}/tensors/{word}",
            "/metrics",
        ):
            client.request(method, path)
    session.post(f"/ops/{word}", {})
    session.run({"op": word})
    session.run({"op": f"{word}_"}, {"op": word, "grad_mode": word})
    session.post(f"/functions/{word}/apply", {"inputs": []})
    session.get(f"/profile?{word}={word}", headers={"X-Request-ID": word, word: word})
    talk = Talk(session, f"?sender={word}")
    talk.ask(1, {"op": word})
    talk.say(remembered(2, ["x"], {"op": word, "in": ["_0"]}))
    talk.socket.close()
    url = str(client.base_url)
    for wrong in (
        f"{word}\r\n\r\n".encode(),
        upgrade(f"/{word}"),
        request(word, "/healthz"),
        request("GET", f"/{word}"),
    ):
        ask(url, wrong)


def test_no_client_adds_a_series(watched: httpx.Client) -> None:
    hostile(watched, "evil-one")
    samples(watched)  # a gateway's worker is asked for nothing else at this path
    series = {(each.name, *sorted(each.labels.items())) for each in samples(watched)}
    hostile(watched, "evil-two")
    text = watched.get("/metrics").text
    assert "evil" not in text.lower()
    found = samples(watched)
    assert {(each.name, *sorted(each.labels.items())) for each in found} == series
    routes = {*watched.get("/openapi.json").json()["paths"], "/v1/sessions/{session}/stream", "/", "unmatched"}
    for each in found:
        for name, label in each.labels.items():
            if name == "route":
                assert label in routes
            elif name == "status":
                assert re.fullmatch("[1-5][0-9][0-9]", label)
            elif name not in ("le", "version", "python"):
                assert label in LABELS[name], (each.name, name, label)


def test_both_formats_say_the_same(client: httpx.Client) -> None:
    text = client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    scraper = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    for accept in (OPENMETRICS, scraper):
        answer = client.get("/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].startswith(f"{OPENMETRICS}; version=1.0.0")
        names = {family.name for family in parse_openmetrics(answer.text)}
        assert {re.sub("_total$", "", family.name) for family in text_string_to_metric_families(text.text)} == names
    assert client.get("/metrics", headers={"accept": "image/png"}).status_code == 406
    assert client.head("/metrics").headers["content-type"] == text.headers["content-type"]


def test_the_table_of_metrics_is_complete(watched: httpx.Client) -> None:
    # The table of a gateway's comes after it: tests/deployment/test_monitoring.py.
    text, _, _ = DOCS.read_text(encoding="utf-8").partition("A gateway counts")
    rows = re.findall(r"^\| `(telegrad_\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    found: dict[str, tuple[str, set[str]]] = {}
    [url] = computing(watched.base_url)
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=240).text):
        if family.name.startswith("telegrad_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = family.type, {label for each in family.samples for label in each.labels} - {"le"}
    assert {name: kind for name, (kind, _) in documented.items()} == {name: kind for name, (kind, _) in found.items()}
    for name, (_, labels) in found.items():
        assert not labels or labels == documented[name][1], name
