"""What the tests of everyday loops measured, as a table at the end."""

from __future__ import annotations

import pytest

SHARE = "share of programs planned"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print of each everyday loop which share of its programs ran planned or compiled."""
    reports = [report for kind in ("passed", "xfailed", "failed") for report in terminalreporter.getreports(kind)]
    shares = [value for report in reports for name, value in report.user_properties if name == SHARE]
    if shares:
        terminalreporter.section("everyday loops: programs planned or compiled after 20 turns")
        for name, runs, sent in sorted(shares):
            terminalreporter.write_line(f"{name:58} {runs:4} of {sent:4} {runs / sent:5.0%}")
