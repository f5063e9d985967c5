"""``telegrad top``: a server's load and its tenants in a table, from ``/metrics`` and ``/v1/usage``."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .commands import NoAnswer, Server

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Sample(NamedTuple):
    """What a server said at one time."""

    at: float
    metrics: Mapping[str, float]
    """The value of each metric, summed over its labels."""
    version: str
    """The server's version."""
    tenants: list[dict[str, Any]]

    @property
    def started(self) -> Sample:
        """The same server when it had just started."""
        at = self.metrics.get("process_start_time_seconds", self.at - 1.0)
        return Sample(min(at, self.at - 1e-3), {}, self.version, [])


def sample(server: Server) -> Sample:
    """Ask a server. Raises NoAnswer."""
    values: dict[str, float] = defaultdict(float)
    version = "?"
    try:
        for family in text_string_to_metric_families(server.request("/metrics")):
            for each in family.samples:
                values[each.name] += each.value
                version = each.labels.get("version", version)  # only telegrad_build_info has it
    except ValueError:
        values.clear()
    if "telegrad_sessions" not in values:
        raise NoAnswer(f"{server.url}/metrics does not answer as a Telegrad server")
    return Sample(time.time(), values, version, server.items("/v1/usage"))


# The table ---------------------------------------------------------------------------------------


def size(count: float) -> str:
    """A number of bytes in the largest unit that gives at least 1."""
    unit = min(len(UNITS) - 1, int(math.log(count, 1024))) if count >= 1 else 0
    return f"{count / 1024**unit:.{0 if unit == 0 else 1}f} {UNITS[unit]}"


def render(server: Server, now: Sample, before: Sample) -> Group:
    """The table of a server; rates are those between the two samples."""
    return Group(*map(Text, _lines(server, now, before)), _tenants(now, before))


def _lines(server: Server, now: Sample, before: Sample) -> Iterator[str]:
    value, seconds = now.metrics, now.at - before.at

    def rate(name: str) -> float:
        return max(0.0, value.get(name, 0.0) - before.metrics.get(name, 0.0)) / seconds

    def of(name: str) -> float:
        return value.get(f"telegrad_{name}", 0.0)

    up = int(now.at - now.started.at)
    yield f"{server.url}  Telegrad {now.version}, up {up // 3600}:{up // 60 % 60:02}:{up % 60:02}"
    requests, problems = rate("telegrad_http_requests_total"), rate("telegrad_problems_total")
    served = f"requests {requests:.1f}/s, problems {problems:.1f}/s"
    resident = f"memory {size(value.get('process_resident_memory_bytes', 0.0))} resident"
    if "telegrad_workers" in value:
        yield (
            f"gateway: workers {of('workers'):.0f}, sessions {of('sessions'):.0f}, "
            f"streams {of('gateway_streams'):.0f}, waiting {of('gateway_under_way'):.0f}, {served}, {resident}"
        )
        return
    yield (
        f"sessions {of('sessions'):.0f} ({of('sessions_created_total'):.0f} created), streams {of('streams'):.0f}, "
        f"threads {of('busy_threads'):.0f} of {of('threads'):.0f} busy, "
        f"waiting {of('backlog_calls'):.0f} for a thread and {of('waiting_calls'):.0f} in sessions"
    )
    yield (
        f"programs {rate('telegrad_program_duration_seconds_count'):.1f}/s, "
        f"instructions {rate('telegrad_program_instructions_total'):.0f}/s, "
        f"{served}, in {size(rate('telegrad_received_bytes_total'))}/s, out {size(rate('telegrad_sent_bytes_total'))}/s"
    )
    yield (
        f"{resident}, {size(of('accounted_bytes'))} accounted: tensors {size(of('tensor_bytes'))}, "
        f"bodies {size(of('body_bytes'))}, answers {size(of('answer_bytes'))}; "
        f"{of('cached_programs'):.0f} programs remembered in {size(of('cached_program_bytes'))}"
    )


def _tenants(now: Sample, before: Sample) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("TENANT")
    for heading in ("SESSIONS", "PROGRAMS", "PER S", "BUSY", "SECONDS", "TENSORS", "IN", "OUT"):
        table.add_column(heading, justify="right")
    earlier = {each["tenant"]: each for each in before.tenants}
    seconds = now.at - before.at

    def rate(each: Mapping[str, Any], name: str) -> float:
        return max(0.0, float(each[name]) - float(earlier.get(each["tenant"], {}).get(name, 0))) / seconds

    for each in sorted(now.tenants, key=lambda each: (-rate(each, "seconds"), each["tenant"] or "")):
        table.add_row(
            Text("(others)" if each["tenant"] is None else each["tenant"]),
            str(each["sessions"]),
            str(each["programs"]),
            f"{rate(each, 'programs'):.1f}",
            f"{rate(each, 'seconds'):.0%}",
            f"{each['seconds']:.1f}",
            size(each["tensor_bytes"]),
            size(each["received_bytes"]),
            size(each["sent_bytes"]),
        )
    return table


def show(server: Server, once: bool, interval_s: float) -> None:
    """Print one table, or show it until Ctrl-C. Raises NoAnswer if the server gives no answer at first."""
    now = sample(server)
    console = Console(width=None if Console().is_terminal else 120)
    if once:
        console.print(render(server, now, now.started))
        return
    with Live(render(server, now, now.started), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            before = now
            try:
                now = sample(server)
            except NoAnswer as error:
                live.update(Text(str(error)), refresh=True)
                continue
            live.update(render(server, now, before), refresh=True)
