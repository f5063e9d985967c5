"""The metrics of a gateway."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .. import __version__
from ..observability.metrics import RequestCounts
from .directory import WorkerState
from .gateway import Gateway


class GatewayCollector(Collector):
    """Collects what a gateway has counted."""

    def __init__(self, gateway: Gateway, requests: RequestCounts) -> None:
        self._gateway, self._requests = gateway, requests

    def collect(self) -> Iterator[Metric]:
        """Every metric with its current value."""
        gateway, requests = self._gateway, self._requests
        yield _family(
            GaugeMetricFamily,
            "telegrad_build_info",
            "1, with the versions of the gateway and of Python.",
            {(__version__, platform.python_version()): 1},
            "version",
            "python",
        )
        yield _family(
            CounterMetricFamily,
            "telegrad_http_requests",
            "Requests by route, method and status. A stream counts when it begins.",
            requests.requests,
            "route",
            "method",
            "status",
        )
        yield _family(
            CounterMetricFamily,
            "telegrad_problems",
            "Problem documents of the gateway itself, by slug.",
            {(slug,): number for slug, number in requests.problems.items()},
            "slug",
        )
        workers = Counter(str(worker.state) for worker in gateway.members.all)
        alive = (WorkerState.READY, WorkerState.DRAINING)
        yield _family(
            GaugeMetricFamily,
            "telegrad_workers",
            "Workers that are not dead, by state (ready, draining).",
            {(state,): workers[state] for state in alive},
            "state",
        )
        reported = sum(worker.report.sessions for worker in gateway.members.all)
        yield _family(GaugeMetricFamily, "telegrad_sessions", "Open sessions of all workers.", {(): reported})
        for name, text, value in (
            ("telegrad_gateway_streams", "Streams that pass through this gateway.", gateway.streams),
            ("telegrad_gateway_under_way", "Requests that wait for a worker's answer.", gateway.proxy.waiting),
        ):
            yield _family(GaugeMetricFamily, name, text, {(): value})
        for name, text, value in (
            ("telegrad_gateway_repeats", "Requests that were sent to a worker again.", gateway.repeats),
            ("telegrad_gateway_moves", "Sessions that this gateway gave to other workers.", gateway.moves),
            ("telegrad_gateway_deaths", "Workers that this gateway declared dead.", gateway.members.deaths),
        ):
            yield _family(CounterMetricFamily, name, text, {(): value})


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    values: Mapping[Any, float],
    *labels: str,
) -> Metric:
    family = kind(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
