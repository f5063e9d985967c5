"""Sessions in this process: ``local://``."""

from __future__ import annotations

from itertools import count
from typing import Any

from telegrad_engine import errors
from telegrad_engine.compile import PLANNED, Compiler
from telegrad_engine.program.json_codec import MAX_DEPTH
from telegrad_engine.program.program_cache import Bound
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.program.result import Answer
from telegrad_engine.program.wire import Call, Message, Outgoing
from telegrad_engine.session.session import Session

from .base import ID_PREFIX

PLANNER = Compiler(tier=PLANNED)
"""Plans the recurring programs of all sessions in this process."""


class LocalTransport:
    """A session in this process."""

    url = "local://"
    id_prefix = ID_PREFIX
    remote = False
    room = 1
    _numbers = count(1)

    def __init__(self, **options: Any) -> None:
        self.session_id = f"local-{next(self._numbers)}"
        self._options = options
        self.session = Session(compiler=PLANNER, **options)
        self.device, self.dtype = self.session.device, self.session.environment.dtype

    def pack(self, message: Outgoing) -> Outgoing:
        """Return the message itself."""
        return message

    def send(self, packed: Outgoing) -> None:
        """Keep the message for :meth:`receive`."""
        self._message = packed

    answered = True

    def receive(self) -> Answer:
        """Run the message and return its answer."""
        message = self._message
        return Message([*map(self._bound, message.calls)], message.free).run(self.session)

    def _bound(self, call: Call) -> Bound:
        """The call's program, bound to the call's ids, arrays and numbers."""
        memory, template = self.session.memory, call.template
        try:
            found = memory.find(template.digest)
        except errors.UnknownProgram:
            found = memory.read(template.text, template.digest, MAX_DEPTH)
        return found.with_ending(call.ending).with_ids(call.ids, call.arrays, call.operands)

    def forget(self) -> None:
        """Do nothing: a program whose answer is not received has not run."""

    def function(self, name: str) -> Applicable:
        """Return a registered function."""
        return self.session.functions.find(name)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        from telegrad_engine.profiler import to_data

        return to_data(self.session.last_profile(), events=True)

    def compiled(self) -> list[dict[str, Any]]:
        """How the recurring programs ran, in the order of their first runs."""
        return [report._asdict() for report in PLANNER.reports(self.session)]

    def another(self) -> LocalTransport:
        """Open a new session with the same options in this process."""
        return LocalTransport(**self._options)

    def abandon(self) -> None:
        """Do nothing: a forked child has a copy of the session."""

    def close(self) -> None:
        """Drop the session's tensors."""
        self.session.suspensions.waiting.clear()
        self.session.tensors.clear()
