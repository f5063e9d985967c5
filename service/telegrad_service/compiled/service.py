"""Reading how a session's programs ran."""

from __future__ import annotations

from telegrad_engine.program import json_codec
from telegrad_engine.session.session import Session


def read(session: Session) -> bytes:
    """The reports of the session's compiler, if it has one."""
    reports = [] if session.compiler is None else session.compiler.reports(session)
    return json_codec.dumps({"items": [report._asdict() for report in reports]})
