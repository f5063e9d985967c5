"""Sessions in this process: ``local://``."""

from __future__ import annotations

import os
from itertools import count
from secrets import token_hex
from typing import Any

from telegrad_engine import errors
from telegrad_engine.arrays import available
from telegrad_engine.compile import Compiler
from telegrad_engine.program.json_codec import MAX_DEPTH
from telegrad_engine.program.program import BoundProgram
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.program.result import Answer, describe
from telegrad_engine.program.wire import Call, Message, Outgoing
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session
from telegrad_engine.visualization import Drawing, draw

from .base import ID_PREFIX, TensorInfo

PLANNER = Compiler()
"""Plans the recurring programs of all sessions in this process."""


class LocalTransport:
    """A session in this process."""

    url = "local://"
    id_prefix = ID_PREFIX
    remote = durable = False
    room = 1
    _numbers = count(1)

    def __init__(self, *, session: Session | None = None, **options: Any) -> None:
        self.session_id = f"local-{next(self._numbers)}"
        self._options = options
        self.session = Session(compiler=PLANNER, **options) if session is None else session
        if session is not None:
            self.id_prefix = f"{ID_PREFIX}{token_hex(4)}_"
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

    def _bound(self, call: Call) -> BoundProgram:
        """The call's program, bound to the call's ids, arrays and numbers."""
        memory, template = self.session.memory, call.template
        try:
            found = memory.find(template.digest)
        except errors.UnknownProgram:
            found = memory.read(template.text, template.digest, MAX_DEPTH)
        return found.with_ending(call.ending).bind(call.ids, call.arrays, call.operands)

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

    def devices(self) -> list[dict[str, Any]]:
        """The devices of this machine."""
        return [info.described(os.cpu_count() or 1) for info in available()]

    def status(self) -> dict[str, Any]:
        """What the session holds."""
        accounts = self.session.accounts
        held = {"used_bytes": accounts.used_bytes, "max_bytes": accounts.max_bytes}
        return {"name": None, "tensors": len(self.session.tensors), **held}

    def graph(self) -> Drawing:
        """The graph of all tensors of the session."""
        tensors = dict(self.session.tensors)
        return draw([tensor for tensor in tensors.values() if tensor._last_grad_fn is not None], tensors)

    def another(self) -> LocalTransport:
        """Open a new session with the same options in this process."""
        return LocalTransport(**self._options)

    def fork(self) -> LocalTransport:
        """Open a session in the state of this one."""
        return LocalTransport(session=snapshot.fork(self.session, compiler=PLANNER), **self._options)

    @classmethod
    def restored(cls, content: bytes) -> LocalTransport:
        """Open a session in the state of a snapshot."""
        return cls(session=snapshot.restore(content, compiler=PLANNER))

    def snapshot(self) -> bytes | memoryview:
        """The session's snapshot."""
        return snapshot.save(self.session)

    def described(self) -> list[TensorInfo]:
        """The tensors of the session that have an id."""
        return [TensorInfo(describe(name, x), x.grad is not None) for name, x in self.session.tensors.items()]

    def abandon(self) -> None:
        """Do nothing: a forked child has a copy of the session."""

    def close(self) -> None:
        """Drop the session's tensors."""
        self.session.suspensions.waiting.clear()
        self.session.tensors.clear()
