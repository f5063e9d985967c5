"""Looking at calls, and going on with their passes."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.program.result import Value
from telegrad_engine.session.session import Session

from ..hosting import work
from .schemas import PendingCall, PendingPage


def page(session: Session) -> PendingPage:
    """All calls that something waits for."""
    return PendingPage(items=[PendingCall(**waiting.pending) for waiting in session.suspensions.waiting.values()])


def find(session: Session, call: str) -> PendingCall:
    """One of them. Raises UnknownCall."""
    return PendingCall(**session.suspensions.find(call).pending)


def cancel(session: Session, call: str) -> None:
    """Give up the pass that waits for a call. Raises UnknownCall."""
    session.suspensions.cancel(session, call)


def resume(
    session: Session, call: str, gradients: Sequence[str | None], with_data: bool, max_elements: int
) -> tuple[bool, bytes]:
    """Go on with the pass that waits for a call; whether it stopped again, and the answer."""
    names: list[str] = session.suspensions.find(call).pending["outputs"]
    pending = session.run([Instruction("resume", [tuple(gradients)], attrs={"call": call})]).pending
    values = [] if pending else bound(session, names, with_data)
    outputs = work.outputs_json("outputs", values, max_elements)
    return pending is not None, outputs[:-1] + b"," + member(pending) + b"}"


def bound(session: Session, names: Sequence[str], with_data: bool) -> list[Value | None]:
    """The tensors of these names, or None where the name stayed free: the gradient of an unused input."""
    found = [name for name in dict.fromkeys(names) if name in session.tensors]
    fetched = dict(zip(found, work.fetch(session, found, with_data), strict=True))
    return [fetched.get(name) for name in names]


def member(pending: dict[str, object] | None) -> bytes:
    """``"pending": …`` of an answer that is about one pass."""
    call = None if pending is None else {key: pending[key] for key in PendingCall.model_fields}
    return b'"pending":' + json_codec.dumps(call)
