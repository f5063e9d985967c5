"""Traces from the SDK to an instruction: a client with a provider, a server that exports to a collector."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ..servers import running_server

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

CLIENT = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

import telegrad as tg

url, stream = sys.argv[1:]
with tg.connect(url, stream=stream == "stream"):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with provider.get_tracer("user").start_as_current_span("step"):
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0]
    try:
        tg.linalg.inv(tg.zeros(2, 2)).tolist()
    except RuntimeError as error:
        print("failed", error.request_id)
for span in exporter.get_finished_spans():
    parent = None if span.parent is None else format(span.parent.span_id, "016x")
    context = span.get_span_context()
    ids = format(context.trace_id, "032x"), format(context.span_id, "016x"), parent
    print("span", span.name, *ids, span.status.status_code.name)
"""
UNTRACED = """
import sys
import telegrad as tg

with tg.connect(sys.argv[1]):
    assert tg.ones(2).sum().item() == 2.0
assert not any(name.startswith("opentelemetry") for name in sys.modules)
"""


class Collector:
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                found = ExportTraceServiceRequest.FromString(body)
                for resource in found.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def run(tmp_path: Path, script: str, *arguments: str) -> str:
    file = tmp_path / "script.py"
    file.write_text(script)
    command = [sys.executable, "-W", "error", str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("way", ["stream", "requests"])
def test_a_step_is_one_trace(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # so that little is left to export when the server ends
    with running_server() as url:
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
        printed = run(tmp_path, CLIENT, url, way).splitlines()
    # The server has exported all spans when it has ended.
    spans = [line.split()[1:] for line in printed if line.startswith("span")]
    step = next(span for span in spans if span[0] == "step")
    sent = [span for span in spans if span[0] == "telegrad.program" and span[3] == step[2]]
    assert sent and all(span[1] == step[1] for span in sent)
    served = {span.span_id.hex(): span for span in collector.spans}

    def path(span: Any) -> list[str]:
        """The names of a span and of those around it, up to one of the client."""
        around = served.get(span.parent_span_id.hex())
        return [span.name, *(path(around) if around is not None else [span.parent_span_id.hex()])]

    above = ["program"] if way == "stream" else ["program", "POST /v1/sessions/{session}/programs"]
    paths = [path(span) for span in collector.spans if span.trace_id.hex() == step[1]]
    assert any(names == ["backward", *above, span[2]] for span in sent for names in paths), paths
    failed = next(span for span in spans if span[-1] == "ERROR")
    (program,) = (s for s in collector.spans if s.name == "program" and s.trace_id.hex() == failed[1])
    attributes = {each.key: each.value for each in program.attributes}
    assert attributes["error.type"].string_value == "linalg-error"
    (request_id,) = (line.split()[1] for line in printed if line.startswith("failed"))
    assert request_id.startswith(attributes["telegrad.request_id"].string_value)
    assert not any("/v1/sessions/" in str(span) and "{session}" not in str(span) for span in collector.spans)


def test_without_a_provider_nothing_is_imported(server: str, tmp_path: Path) -> None:
    run(tmp_path, UNTRACED, server)
