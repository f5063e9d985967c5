"""Reading the profile of a session."""

from __future__ import annotations

from telegrad_engine.profiler import to_data
from telegrad_engine.program import json_codec
from telegrad_engine.session.session import Session


def read(session: Session, events: bool) -> bytes:
    """What the session's profile has recorded, with its single ranges if asked for."""
    return json_codec.dumps(to_data(session.last_profile(), events))
