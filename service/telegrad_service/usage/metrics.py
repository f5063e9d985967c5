"""The metrics of a server."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from .. import __version__
from ..hosting.host import SessionHost
from ..observability.metrics import RequestCounts, build_info, counter, gauge, histogram, request_counter


def server_metrics(counts: RequestCounts, host: SessionHost) -> Iterator[Metric]:
    """Every metric with its current value."""
    ledger, workers, cached, sessions = host.ledger, host.workers, host.programs, host.sessions()
    total = ledger.total()
    programs = total.statistics.programs
    yield build_info(__version__, "server")
    yield request_counter(counts)
    yield histogram(
        "telegrad_http_request_duration_seconds",
        "Seconds from the headers of a request to the end of its answer, by route and method; not of streams.",
        {key: (buckets, counts.seconds[key]) for key, buckets in counts.buckets.items()},
        ("route", "method"),
    )
    yield histogram(
        "telegrad_program_duration_seconds",
        "Seconds that programs took in their sessions, by source (http, stream) and tier (interpreted, planned).",
        {key: (each.buckets, each.seconds) for key, each in programs.items()},
        ("source", "tier"),
    )
    for name, text, values, labels in (
        (
            "telegrad_program_instructions",
            "Instructions of programs, by source and tier.",
            {key: each.instructions for key, each in programs.items()},
            ("source", "tier"),
        ),
        (
            "telegrad_instructions",
            "Instructions by family: of an op (math, shape, linalg, nn, random), the verb's name, or function.",
            {(family,): number for family, number in total.statistics.families.items()},
            ("family",),
        ),
        (
            "telegrad_problems",
            "Problem documents that were sent, by slug.",
            {(slug,): number for slug, number in (counts.problems + total.problems).items()},
            ("slug",),
        ),
        (
            "telegrad_received_bytes",
            "Bytes of request bodies (http) and of messages (stream), as received.",
            {("http",): counts.received, ("stream",): total.stream_received},
            ("source",),
        ),
        (
            "telegrad_sent_bytes",
            "Bytes of response bodies (http) and of messages (stream), as sent.",
            {("http",): counts.sent, ("stream",): total.stream_sent},
            ("source",),
        ),
        (
            "telegrad_sessions_ended",
            "Sessions that ended, by reason (deleted, expired, moved).",
            {(reason,): number for reason, number in ledger.ended.items()},
            ("reason",),
        ),
        (
            "telegrad_cached_program_lookups",
            "Programs that were named by their digest, by result (hit, miss).",
            {("hit",): cached.hits, ("miss",): cached.misses},
            ("result",),
        ),
    ):
        yield counter(name, text, values, labels)
    yield counter("telegrad_sessions_created", "Sessions that were created.", ledger.created)
    for name, text, value in (
        ("telegrad_tensor_bytes", "Bytes of the tensors and graphs of all sessions.", total.tensor_bytes),
        ("telegrad_answer_bytes", "Bytes of answers recorded for repetitions.", total.answer_bytes),
        ("telegrad_sessions", "Open sessions.", len(sessions)),
        ("telegrad_streams", "Open streams.", sum(len(handle.streams) for handle in sessions)),
        (
            "telegrad_event_listeners",
            "Clients that listen to the events of a session.",
            sum(len(handle.feed.listeners) for handle in sessions),
        ),
        ("telegrad_threads", "Threads that compute.", workers.count),
        ("telegrad_busy_threads", "Threads that run a program now.", workers.busy_count),
        ("telegrad_backlog_calls", "Calls that wait for a free thread.", workers.backlog),
        (
            "telegrad_waiting_calls",
            "Calls that wait for an earlier call of their session.",
            sum(handle.actor.waiting for handle in sessions),
        ),
        (
            "telegrad_accounted_bytes",
            "Bytes that count towards max_process_bytes: sessions and bodies.",
            host.quotas.memory.used,
        ),
        ("telegrad_body_bytes", "Bytes reserved for bodies that are read or answered.", host.quotas.body_bytes),
        ("telegrad_cached_programs", "Remembered programs.", len(cached)),
        ("telegrad_cached_program_bytes", "Bytes of remembered programs, estimated.", cached.nbytes),
    ):
        yield gauge(name, text, value)
