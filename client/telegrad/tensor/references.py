"""The ids of tensors in instructions, and the recorder of the session that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation

from ..sessions.session import current
from ..tape.recorder import Recorder
from ..transport.base import Transport
from .host_values import HostValues


def refs(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return inputs as an instruction has them: tensors as ids, other values unchanged."""
    return tuple([_ref(x) for x in inputs])


def _ref(x: Any) -> Any:
    if isinstance(x, HostValues):
        return x._id
    return tuple([_ref(v) for v in x]) if isinstance(x, tuple) else x


def recorder_of(inputs: Sequence[Any]) -> Recorder:
    """Return the inputs' recorder, or the current session's. Raises InvalidOperation for tensors of two sessions."""
    found: Recorder | None = None
    for x in inputs:
        if isinstance(x, tuple):
            if not any(isinstance(v, HostValues) for v in x):
                continue
            recorder = recorder_of(x)
        elif isinstance(x, HostValues):
            recorder = x._recorder
        else:
            continue
        if found is not None and recorder is not found:
            raise _of_two_sessions(found.transport, recorder.transport)
        found = recorder
    return found if found is not None else current().recorder


def _of_two_sessions(one: Transport, other: Transport) -> InvalidOperation:
    names = [f"{transport.session_id} at {transport.url}" for transport in (one, other)]
    if names[0] == names[1]:
        return InvalidOperation(
            f"Expected all tensors to be of the same client, but found two clients of session {names[0]}"
        )
    text = f"Expected all tensors to be in the same session, but found at least two: {names[0]} and {names[1]}"
    if one.url != other.url and "local://" in (one.url, other.url):
        text += ". What is made before telegrad.connect is in a session of this process, local://"
    return InvalidOperation(text)
