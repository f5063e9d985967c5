"""Traces by OpenTelemetry: a span for each request, one for each program in it, one for each instruction.

They are off unless ``OTEL_TRACES_EXPORTER`` or an OTLP endpoint is set, or other code has set a provider. Then the
standard variables of OpenTelemetry determine exporter, sampler and resource. While they are off, nothing is imported,
and a program costs one comparison.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import entry_points
from itertools import count
from threading import Thread
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from telegrad_engine.errors import TelegradError
from telegrad_engine.program.instructions import Instruction
from telegrad_engine.session.session import NotAtOnce, OnInstruction, Session

from .metrics import STREAM_METHOD
from .request import OVER_HTTP, REQUEST, RequestInfo

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)
MAX_INSTRUCTIONS = 256
"""The most instructions of one program that have a span."""
SHUTDOWN_S = 5.0
"""Seconds that a stopping server waits for a collector, which may be down."""
MISSING = (
    "OTEL_TRACES_EXPORTER, or an OTLP endpoint, is set, but there are no traces: "
    "install telegrad-service[otel] and the exporter (opentelemetry-exporter-otlp-proto-http)"
)
T = TypeVar("T")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
tracer: Tracer | None = None
"""The tracer of this process, as OpenTelemetry's provider is one per process; None if there are no traces."""
_own: Any = None
"""The provider, if this module made it and must shut it down."""


def exporters() -> list[str]:
    """The names of the exporters that the environment asks for."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if not named:
        named = "otlp" if any(os.environ.get(name) for name in _ENDPOINTS) else "none"
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    otlp = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    names = [name.strip() for name in named.split(",")]
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def enable() -> None:
    """Enable traces, if the environment asks for them or a provider is already set."""
    global tracer, _own
    names = exporters()
    loaded = sys.modules.get("opentelemetry.trace")
    if not names and (loaded is None or isinstance(loaded.get_tracer_provider(), loaded.ProxyTracerProvider)):
        return
    try:
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _own = _provider(names)
            trace.set_tracer_provider(_own)
    except ImportError:
        logger.warning(MISSING)
        return
    tracer = trace.get_tracer("telegrad_service")


def _provider(names: list[str]) -> Any:
    """A provider with these exporters. Raises ImportError if one is not installed."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    found = {each.name: each for each in entry_points(group="opentelemetry_traces_exporter")}
    resource = Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "telegrad"})
    provider = TracerProvider(resource=resource)
    for name in names:
        if name not in found:
            raise ImportError(f"no exporter {name!r}")
        provider.add_span_processor(BatchSpanProcessor(found[name].load()()))
    return provider


def shut_down() -> None:
    """Export the last spans, for at most ``SHUTDOWN_S`` seconds."""
    global tracer, _own
    if _own is not None:
        thread = Thread(target=_own.shutdown, name="telegrad-traces", daemon=True)
        thread.start()
        thread.join(SHUTDOWN_S)
    tracer = _own = None


# Requests ------------------------------------------------------------------------------------


def request_span(info: RequestInfo, headers: list[tuple[bytes, bytes]]) -> AbstractContextManager[Any]:
    """A span for an HTTP request, the child of the client's span. Streams have none: their programs have spans."""
    if tracer is None or info.method == STREAM_METHOD:
        return nullcontext()
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _PROPAGATED}
    return _request_span(info, carrier)


_PROPAGATED = frozenset({b"traceparent", b"tracestate"})


@contextmanager
def _request_span(info: RequestInfo, carrier: Mapping[str, str]) -> Iterator[None]:
    from opentelemetry.trace import SpanKind, use_span

    assert tracer is not None
    span = tracer.start_span("HTTP", _extracted(carrier), SpanKind.SERVER)
    info.span = span
    with use_span(span, end_on_exit=True):
        try:
            yield
        finally:
            if span.is_recording():
                _describe(info, span)


def _describe(info: RequestInfo, span: Any) -> None:
    """Name the span of an answered request."""
    from opentelemetry.trace import StatusCode

    span.update_name(f"{info.method} {info.route}" if info.route else info.method)
    span.set_attributes({"http.request.method": info.method, "http.response.status_code": info.status})
    span.set_attribute("telegrad.request_id", info.id)
    if info.route:
        span.set_attribute("http.route", info.route)
    if info.slug:
        span.set_attribute("error.type", info.slug)
    if info.status >= 500:
        span.set_status(StatusCode.ERROR)


def _extracted(carrier: Mapping[str, str]) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)


# Programs ------------------------------------------------------------------------------------


@contextmanager
def program_span(session: Session, carrier: Mapping[str, str] | None = None) -> Iterator[None]:
    """A span for the program that runs in the block on this thread, with a span for each instruction.

    It is the child of the span in ``carrier``, a message's metadata, or else of the current request's span.
    """
    from opentelemetry import trace

    assert tracer is not None
    request = REQUEST.get()
    if carrier is not None:
        parent, kind = _extracted(carrier), trace.SpanKind.SERVER
    elif request is not None and request.span is not None:
        parent, kind = trace.set_span_in_context(request.span), trace.SpanKind.INTERNAL
    else:
        parent, kind = None, trace.SpanKind.INTERNAL
    programs, instructions, started = session.programs, session.instructions, time_ns()
    span = tracer.start_span("program", parent, kind, start_time=started)
    if not span.is_recording():
        yield
        return
    outer, session.on_instruction = session.on_instruction, _instruction_spans(span)
    try:
        yield
    except NotAtOnce:
        span = trace.INVALID_SPAN  # the program had no effect, and runs again on a thread
        raise
    except TelegradError as error:
        span.set_attribute("error.type", error.slug)
        span.set_status(trace.StatusCode.ERROR, error.detail)
        raise
    finally:
        session.on_instruction = outer
        if carrier is None and session.programs == programs:
            span = trace.INVALID_SPAN  # a request that only reads
        span.set_attribute("telegrad.instructions", session.instructions - instructions)
        if request is not None:
            span.set_attribute("telegrad.request_id", request.id)
        span.end()


def run_for(request: RequestInfo | None, function: Callable[..., T], session: Session, *arguments: Any) -> T:
    """Return ``function(session, …)``, called on this thread for a request."""
    session.source = OVER_HTTP
    token = REQUEST.set(request)
    try:
        if tracer is None or request is None or request.span is None:
            return function(session, *arguments)
        with program_span(session, None):
            return function(session, *arguments)
    finally:
        REQUEST.reset(token)


def _instruction_spans(program: Any) -> OnInstruction:
    """A hook that makes a span for each instruction, the child of the program's span."""
    from opentelemetry.trace import set_span_in_context

    parent, numbers = set_span_in_context(program), count()

    def on_instruction(execute: Callable[[Instruction], None], instruction: Instruction) -> None:
        if tracer is None or next(numbers) >= MAX_INSTRUCTIONS:
            execute(instruction)
            return
        name = instruction.op if len(instruction.op) <= 80 else f"{instruction.op[:80]}..."
        span = tracer.start_span(name, parent)
        try:
            execute(instruction)
        finally:
            span.end()

    return on_instruction
