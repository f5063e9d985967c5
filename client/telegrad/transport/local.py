"""Sessions in this process: ``local://``."""

from __future__ import annotations

import os
from itertools import count
from secrets import token_hex
from typing import Any

from telegrad_engine import errors
from telegrad_engine.arrays import available
from telegrad_engine.compile import Compiler
from telegrad_engine.inspection.details import live_details
from telegrad_engine.inspection.folding import add_boxes, folded_data
from telegrad_engine.inspection.observation import Observation
from telegrad_engine.inspection.passes import trace_pass
from telegrad_engine.inspection.record import GraphRecord, live_graph
from telegrad_engine.inspection.step import Step
from telegrad_engine.program.json_codec import MAX_DEPTH
from telegrad_engine.program.program import BoundProgram
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.program.result import Answer, describe
from telegrad_engine.program.wire import Call, Message, Outgoing
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session

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
        message, observation = self._message, self.session.observation
        calls = [*map(self._bound, message.calls)]
        if observation is None:
            return Message(calls, message.free).run(self.session)
        answer = Message(calls, message.free, origins=message.origins).run(self.session)
        return answer._replace(observed=observation.observes)

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

    def graph(self) -> LocalGraph:
        """Return what reads the session's graph."""
        return LocalGraph(self.session)

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


class LocalGraph:
    """The graph of a session in this process. Its owner holds the lock of the session's recorder."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._observation = session.observation = session.observation or Observation()
        self._observation.observes = True

    def folded(self, source: str, fold: Any, expand: list[str], limit: int, root: str | None) -> dict[str, Any]:
        """The graph as boxes."""
        if source == "step":
            step = self._step()
            record, revision = step.record, step.revision
        else:
            with self._session.reading():
                record, revision = self._live(root), self._session.programs
        head = {"source": source, "sequence": None, "revision": revision}
        return head | folded_data(record, fold, expand, limit)

    def node(self, node: str, source: str) -> dict[str, Any]:
        """The details of a node."""
        if source == "step":
            return self._step().describe(node)
        with self._session.reading():
            return live_details(self._session.tensors, self._observation.known, node)

    def backward(self, tensor: str, fold: Any, expand: list[str]) -> dict[str, Any]:
        """The steps of a backward pass."""
        with self._session.reading():
            found = trace_pass(self._session.tensors, self._session.get(tensor), None)
            record = self._live()
        add_boxes(found, record, fold, expand)
        return found

    def _live(self, root: str | None = None) -> GraphRecord:
        tensors = self._session.tensors
        roots = tensors.values() if root is None else [self._session.get(root)]
        return live_graph(tensors, roots, self._observation.known)[0]

    def _step(self) -> Step:
        if self._observation.step is None:
            raise errors.UnknownResource("no step of this session was observed yet")
        return self._observation.step

    def close(self) -> None:
        """Forget what was observed."""
        self._session.observation = None
