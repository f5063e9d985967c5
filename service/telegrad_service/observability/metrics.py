"""The metrics of a server in the formats of Prometheus. They are collected when they are asked for.

The values of every label come from a fixed set: templates of routes, names in tables of this code. None comes from a
client, so that the number of series is bounded.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from telegrad_engine import __version__
from telegrad_engine.session.statistics import BOUNDS_S

from .ledger import Gauges, Ledger

TEXT, OPENMETRICS = "text/plain", "application/openmetrics-text"
CONTENT_TYPES = {
    TEXT: "text/plain; version=0.0.4; charset=utf-8",
    OPENMETRICS: "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
STREAM_METHOD, OTHER_METHOD = "WEBSOCKET", "OTHER"
UNMATCHED = "unmatched"
"""The route of requests that no route serves, or that are refused before they reach one."""


class RequestCounts:
    """The counts of HTTP requests. A request costs a microsecond."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By route, method and status."""
        self.buckets: dict[tuple[str, str], list[int]] = {}
        """The number of requests by duration, by route and method: up to each of ``BOUNDS_S``, and beyond."""
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.problems: Counter[str] = Counter()
        """The problem documents that were sent, by slug."""
        self.received = self.sent = 0
        """Bytes of bodies."""

    def add(self, route: str | None, method: str, status: int, seconds: float | None, slug: str | None = None) -> None:
        """Count a request; without ``seconds``, its duration is not counted."""
        method = method if method in METHODS or method == STREAM_METHOD else OTHER_METHOD
        route = route or UNMATCHED
        self.requests[route, method, str(status)] += 1
        if slug is not None:
            self.problems[slug] += 1
        if seconds is not None:
            key = route, method
            buckets = self.buckets.get(key)
            if buckets is None:
                buckets = self.buckets[key] = [0] * (len(BOUNDS_S) + 1)
            buckets[bisect_left(BOUNDS_S, seconds)] += 1
            self.seconds[key] += seconds


class Source(NamedTuple):
    """Where a server's metrics come from."""

    requests: RequestCounts
    ledger: Ledger
    gauges: Callable[[], Gauges]
    sessions: Callable[[], int]
    streams: Callable[[], int]
    listeners: Callable[[], int]


class ServerCollector(Collector):
    """Collects the metrics of one server."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Every metric with its current value."""
        yield _gauge("telegrad_build_info", "1, with the versions of the server and of Python.", 1, {
            "version": __version__, "python": platform.python_version()
        })  # fmt: skip
        yield from self._of_requests()
        yield from self._of_programs()
        yield from self._of_sessions()
        yield from self._of_the_host()

    def _of_requests(self) -> Iterator[Metric]:
        counts = self._source.requests
        yield _counter(
            "telegrad_http_requests",
            "Requests by route, method and status. A stream counts when it begins.",
            counts.requests,
            ("route", "method", "status"),
        )
        yield _histogram(
            "telegrad_http_request_duration_seconds",
            "Seconds from the headers of a request to the end of its answer, by route and method; not of streams.",
            {key: (buckets, counts.seconds[key]) for key, buckets in counts.buckets.items()},
            ("route", "method"),
        )

    def _of_programs(self) -> Iterator[Metric]:
        total, counts = self._source.ledger.total(), self._source.requests
        programs = total.statistics.programs
        yield _histogram(
            "telegrad_program_duration_seconds",
            "Seconds that programs took in their sessions, by source (http, stream) and tier (interpreted, planned).",
            {key: (each.buckets, each.seconds) for key, each in programs.items()},
            ("source", "tier"),
        )
        yield _counter(
            "telegrad_program_instructions",
            "Instructions of programs, by source and tier.",
            {key: each.instructions for key, each in programs.items()},
            ("source", "tier"),
        )
        yield _counter(
            "telegrad_instructions",
            "Instructions by family: of an op (math, shape, linalg, nn, random), the verb's name, or function.",
            {(family,): number for family, number in total.statistics.families.items()},
            ("family",),
        )
        yield _counter(
            "telegrad_problems",
            "Problem documents that were sent, by slug.",
            {(slug,): number for slug, number in (counts.problems + total.problems).items()},
            ("slug",),
        )
        yield _counter(
            "telegrad_received_bytes",
            "Bytes of request bodies (http) and of messages (stream), as received.",
            {("http",): counts.received, ("stream",): total.stream_received},
            ("source",),
        )
        yield _counter(
            "telegrad_sent_bytes",
            "Bytes of response bodies (http) and of messages (stream), as sent.",
            {("http",): counts.sent, ("stream",): total.stream_sent},
            ("source",),
        )
        yield _gauge("telegrad_tensor_bytes", "Bytes of the tensors and graphs of all sessions.", total.tensor_bytes)
        yield _gauge("telegrad_answer_bytes", "Bytes of answers recorded for repetitions.", total.answer_bytes)

    def _of_sessions(self) -> Iterator[Metric]:
        source = self._source
        yield _gauge("telegrad_sessions", "Open sessions.", source.sessions())
        yield _counter("telegrad_sessions_created", "Sessions that were created.", {(): source.ledger.created})
        ended = {(reason,): number for reason, number in source.ledger.ended.items()}
        yield _counter(
            "telegrad_sessions_ended", "Sessions that ended, by reason (deleted, expired, moved).", ended, ("reason",)
        )
        yield _gauge("telegrad_streams", "Open streams.", source.streams())
        yield _gauge("telegrad_event_listeners", "Clients that listen to the events of a session.", source.listeners())

    def _of_the_host(self) -> Iterator[Metric]:
        gauges = self._source.gauges()
        yield _gauge("telegrad_threads", "Threads that compute.", gauges.threads)
        yield _gauge("telegrad_busy_threads", "Threads that run a program now.", gauges.busy_threads)
        yield _gauge("telegrad_backlog_calls", "Calls that wait for a free thread.", gauges.backlog)
        yield _gauge("telegrad_waiting_calls", "Calls that wait for an earlier call of their session.", gauges.waiting)
        yield _gauge(
            "telegrad_accounted_bytes", "Bytes that count towards max_process_bytes: sessions and bodies.",
            gauges.process_bytes,
        )  # fmt: skip
        yield _gauge("telegrad_body_bytes", "Bytes reserved for bodies that are read or answered.", gauges.body_bytes)
        yield _gauge("telegrad_cached_programs", "Remembered programs.", gauges.cached_programs)
        yield _gauge("telegrad_cached_program_bytes", "Bytes of remembered programs, estimated.", gauges.cached_bytes)
        lookups = {("hit",): gauges.cache_hits, ("miss",): gauges.cache_misses}
        yield _counter(
            "telegrad_cached_program_lookups", "Programs that were named by their digest, by result (hit, miss).",
            lookups, ("result",),
        )  # fmt: skip


def registry_of(source: Source) -> CollectorRegistry:
    """The registry of one server, with the metrics of its process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(source))
    ProcessCollector(registry=registry)
    return registry


class _Collected(Collector):
    """Metrics that were collected before."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def render(metrics: Sequence[Metric], media_type: str) -> bytes:
    """Collected metrics in a media type. It takes milliseconds and may be called on any thread."""
    if media_type == OPENMETRICS:
        return openmetrics.generate_latest(_Collected(metrics))  # type: ignore[no-untyped-call, no-any-return]
    return exposition.generate_latest(_Collected(metrics))


def _gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[*labels] if labels else [])
    family.add_metric([*labels.values()] if labels else [], value)
    return family


def _counter(name: str, text: str, values: Mapping[Any, float], labels: Sequence[str] = ()) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], tuple[Sequence[int], float]], labels: Sequence[str]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for key, (buckets, seconds) in values.items():
        family.add_metric(key, [*zip(bounds, accumulate(buckets), strict=True)], seconds)
    return family
