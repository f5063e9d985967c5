"""Traces by OpenTelemetry: a span for each program that is sent, whose context travels with the program.

The SDK uses the tracer provider that the program has set, as every instrumented library does. Without one, nothing is
imported and there are no spans.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import httpx

from telegrad_engine.program.wire import Outgoing

from .connection import Reply


class Tracing:
    """Makes the spans of one session's programs, in order."""

    def __init__(self, tracer: Any, address: str) -> None:
        self._tracer = tracer
        self._address = address

    def start(self, message: Outgoing) -> tuple[Any, dict[str, str]]:
        """Begin the span of a program, the child of the span that is current where it is sent.

        Return it, and its context for the program's metadata.
        """
        from opentelemetry.trace import SpanKind, set_span_in_context

        attributes = {"server.address": self._address, "telegrad.calls": len(message.calls)}
        span = self._tracer.start_span("telegrad.program", kind=SpanKind.CLIENT, attributes=attributes)
        return span, _injected(set_span_in_context(span))

    def receive(self, span: Any, receive: Callable[[], Reply]) -> Reply:
        """Return ``receive()``, the reply to a program, and end the program's span.

        The span is current meanwhile: without a stream, the program is only now posted.
        """
        from opentelemetry.trace import StatusCode, use_span

        with use_span(span, end_on_exit=True):
            reply = receive()
            if reply.status >= 400:
                span.set_attribute("http.response.status_code", reply.status)
                span.set_status(StatusCode.ERROR)
            return reply

    def inject(self, request: httpx.Request) -> None:
        """Add the current span's context to a request that is about to be sent; an event hook of httpx."""
        request.headers.update(_injected(None))


def _injected(context: Any) -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier


def tracing_to(address: str) -> Tracing | None:
    """The tracing of programs to a server; None if this program has set no tracer provider."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Tracing(trace.get_tracer("telegrad"), address)
