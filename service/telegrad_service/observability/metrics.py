"""Counts of requests, and metrics in the formats of Prometheus. Metrics are collected when they are asked for.

The values of every label come from a fixed set: templates of routes, names in tables of this code. None comes from a
client, so that the number of series is bounded.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from telegrad_engine.session.statistics import BOUNDS_S

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


class _Collected(Collector):
    """Collects what a function returns."""

    def __init__(self, function: Callable[[], Iterable[Metric]]) -> None:
        self._function = function

    def collect(self) -> Iterable[Metric]:
        return self._function()


def registry_of(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """A registry of the metrics that a function returns, and of those of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(collect))
    ProcessCollector(registry=registry)
    return registry


def render(metrics: Sequence[Metric], media_type: str) -> bytes:
    """Collected metrics in a media type. It takes milliseconds and may be called on any thread."""
    if media_type == OPENMETRICS:
        return openmetrics.generate_latest(_Collected(lambda: metrics))  # type: ignore[no-untyped-call, no-any-return]
    return exposition.generate_latest(_Collected(lambda: metrics))


def build_info(version: str, what: str) -> Metric:
    """The metric whose labels are the versions of what is measured and of Python."""
    text, labels = f"1, with the versions of the {what} and of Python.", ("version", "python")
    return gauge("telegrad_build_info", text, {(version, platform.python_version()): 1}, labels)


def request_counter(counts: RequestCounts) -> Metric:
    """The number of requests."""
    text = "Requests by route, method and status. A stream counts when it begins."
    return counter("telegrad_http_requests", text, counts.requests, ("route", "method", "status"))


def gauge(name: str, text: str, values: Mapping[Any, float] | float, labels: Sequence[str] = ()) -> Metric:
    """A value that goes up and down, by label or without labels."""
    return _family(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: Mapping[Any, float] | float, labels: Sequence[str] = ()) -> Metric:
    """A value that only grows, by label or without labels."""
    return _family(CounterMetricFamily(name, text, labels=labels), values)


def _family(family: Any, values: Mapping[Any, float] | float) -> Metric:
    for key, value in (values if isinstance(values, Mapping) else {(): values}).items():
        family.add_metric(key, value)
    found: Metric = family
    return found


def histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], tuple[Sequence[int], float]], labels: Sequence[str]
) -> Metric:
    """Durations, by label; each has the number of them up to each of ``BOUNDS_S``, and their sum."""
    family = HistogramMetricFamily(name, text, labels=labels)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for key, (buckets, seconds) in values.items():
        family.add_metric(key, [*zip(bounds, accumulate(buckets), strict=True)], seconds)
    return family
