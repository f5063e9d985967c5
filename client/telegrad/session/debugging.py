"""``tg.debug``: every instruction runs where it is recorded, so that an error is raised on its own line."""

from __future__ import annotations

from typing import Any

from ..tape.recorder import Recorder
from .sessions import open_recorders

_record = Recorder.emit
STOPPING = frozenset({"backward", "grad", "resume"})
"""What a pass may stop in that needs the user's Python: whoever recorded it waits for that."""


def debug(enabled: bool = True) -> None:
    """Have every instruction sent and waited for as soon as it is recorded, in all sessions; or no longer.

    Errors that only a session can see are then raised on the line that made them, at a message an instruction.
    """
    Recorder.emit = _emit_at_once if enabled else _record  # type: ignore[method-assign]
    for recorder in open_recorders():
        recorder.watch()


def is_debugging() -> bool:
    """Whether that is so."""
    return Recorder.emit is not _record


def _emit_at_once(self: Recorder, op: str, *rest: Any, **named: Any) -> None:
    with self.lock:
        _record(self, op, *rest, **named)
        if not (self.stops and op in STOPPING):
            self.flush()
