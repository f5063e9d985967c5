"""Counts of requests, sessions and tenants, and metrics in the formats of Prometheus.

Metrics are collected when they are asked for. The values of every label come from a fixed set: templates of routes,
names in tables of this code. None comes from a client, so that the number of series is bounded.

A session's own counts are read when somebody asks. When the session is freed, which may be long after its end if a
program still runs, they are added to its tenant's.
"""

from __future__ import annotations

import platform
import time
import weakref
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, count
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from telegrad_engine.session.session import Session
from telegrad_engine.session.statistics import BOUNDS_S, Statistics

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
    """The counts of HTTP requests. Counting one takes a microsecond."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By route, method and status."""
        self.buckets: dict[tuple[str, str], list[int]] = {}
        """Histograms of durations by route and method; their bounds are ``BOUNDS_S``."""
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
    """A registry of the metrics that a function returns, and of the process's metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(collect))
    ProcessCollector(registry=registry)
    return registry


def render(metrics: Sequence[Metric], media_type: str) -> bytes:
    """Collected metrics in a media type. Takes milliseconds; may be called on any thread."""
    if media_type == OPENMETRICS:
        return openmetrics.generate_latest(_Collected(lambda: metrics))  # type: ignore[no-untyped-call, no-any-return]
    return exposition.generate_latest(_Collected(lambda: metrics))


def build_info(version: str, what: str) -> Metric:
    """A metric whose labels are the versions of a program and of Python."""
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
        family.add_metric((key,) if isinstance(key, str) else key, value)
    found: Metric = family
    return found


def histogram(
    name: str, text: str, values: Mapping[tuple[str, ...], tuple[Sequence[int], float]], labels: Sequence[str]
) -> Metric:
    """Histograms of durations by label: the counts for the buckets of ``BOUNDS_S``, and the sum."""
    family = HistogramMetricFamily(name, text, labels=labels)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for key, (buckets, seconds) in values.items():
        family.add_metric(key, [*zip(bounds, accumulate(buckets), strict=True)], seconds)
    return family


MAX_TENANTS = 1000
"""The most tenants that are counted separately. All others are counted together."""


class SessionOwner(Protocol):
    """A session, or a durable session that may be only on the disk."""

    statistics: Statistics

    @property
    def session(self) -> Session | None:
        """The session; None if it is only on the disk."""


class SessionAccount:
    """What one session has used."""

    def __init__(self, tenant: str, owner: SessionOwner) -> None:
        self.tenant, self.owner = tenant, weakref.ref(owner)
        self.statistics = owner.statistics
        self.received = self.sent = 0
        """Bytes of messages on its streams."""
        self.problems: Counter[str] = Counter()
        """The problems that were sent on its streams, by slug."""


class TenantTotals:
    """What one tenant has used, or the sum of several."""

    SUMMED = (
        "sessions_created", "requests", "received", "sent", "stream_received", "stream_sent", "tensor_bytes",
        "answer_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sessions_created = self.requests = 0
        self.received = self.sent = 0
        """Bytes of the bodies of requests and responses."""
        self.stream_received = self.stream_sent = 0
        """Bytes of messages on streams."""
        self.tensor_bytes = self.answer_bytes = 0
        """Bytes that the tenant's sessions hold now: of tensors and graphs, and of recorded answers."""
        self.problems: Counter[str] = Counter()
        """The problems that were sent on streams, by slug."""
        self.statistics = Statistics()

    @property
    def programs(self) -> int:
        """The number of programs."""
        return sum(counts.count for counts in self.statistics.programs.values())

    @property
    def seconds(self) -> float:
        """The seconds that programs took."""
        return sum(counts.seconds for counts in self.statistics.programs.values())

    @property
    def instructions(self) -> int:
        """The number of instructions of programs."""
        return sum(counts.instructions for counts in self.statistics.programs.values())

    def add(self, other: TenantTotals) -> None:
        """Add what another tenant has used."""
        for name in self.SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems.update(other.problems)
        self.statistics.merge(other.statistics)

    def add_session(self, account: SessionAccount) -> None:
        """Add what a session has used, and what it holds if it still exists."""
        self.stream_received += account.received
        self.stream_sent += account.sent
        self.problems.update(account.problems)
        self.statistics.merge(account.statistics)
        owner = account.owner()
        if owner is not None and (session := owner.session) is not None:
            self.tensor_bytes += session.accounts.used_bytes
            self.answer_bytes += session.accounts.answer_bytes


class Ledger:
    """The counts of one server. All methods are called on the event loop."""

    def __init__(self) -> None:
        self.since = time.time()
        self.created = 0
        """The number of sessions that were created."""
        self.ended: Counter[str] = Counter()
        """The number of sessions that ended, by reason."""
        self._numbers = count()
        self._live: dict[int, SessionAccount] = {}
        self._freed: deque[int] = deque()
        """The numbers of freed sessions that are not added to their tenants yet. Any thread may append to it."""
        self._tenants: dict[str, TenantTotals] = {}
        self._others = TenantTotals()

    def opened(self, tenant: str, owner: SessionOwner) -> SessionAccount:
        """Count a new session, and return its account."""
        self._settle()
        number = next(self._numbers)
        account = self._live[number] = SessionAccount(tenant, owner)
        weakref.finalize(owner, self._freed.append, number).atexit = False
        self.created += 1
        self._of(tenant).sessions_created += 1
        return account

    def count_request(self, tenant: str, received: int, sent: int) -> None:
        """Count a request of a tenant, with the bytes of its bodies."""
        totals = self._of(tenant)
        totals.requests += 1
        totals.received += received
        totals.sent += sent

    def _of(self, tenant: str) -> TenantTotals:
        totals = self._tenants.get(tenant)
        if totals is None:
            if len(self._tenants) >= MAX_TENANTS:
                return self._others
            totals = self._tenants[tenant] = TenantTotals()
        return totals

    def _settle(self) -> None:
        """Add the counts of freed sessions to their tenants'."""
        while self._freed:
            account = self._live.pop(self._freed.popleft())
            self._of(account.tenant).add_session(account)

    def totals(self, only: str | None = None) -> dict[str | None, TenantTotals]:
        """What each tenant, or ``only`` one, has used. None is all tenants beyond ``MAX_TENANTS`` together."""
        self._settle()
        found: dict[str | None, TenantTotals] = {None: TenantTotals()}
        for tenant, totals in [(None, self._others), *self._tenants.items()]:
            if only in (None, tenant):
                found[tenant] = TenantTotals()
                found[tenant].add(totals)
        for account in self._live.values():
            if only in (None, account.tenant):
                found.get(account.tenant, found[None]).add_session(account)
        if not found[None].sessions_created and not found[None].requests:
            del found[None]
        return found

    def total(self) -> TenantTotals:
        """The sum over all tenants. Takes a few milliseconds for a thousand sessions."""
        total = TenantTotals()
        for each in self.totals().values():
            total.add(each)
        return total
