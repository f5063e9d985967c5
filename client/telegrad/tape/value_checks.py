"""Errors that depend on values: raised at once if the client knows the values, or if the user's code catches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from telegrad_engine.arrays.numpy import NUMPY
from telegrad_engine.schema.op import Op, follow_arrays

from ..call_site import errors_are_caught


def check_values(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """Raise the error that the op would raise for the values of its inputs, if the client uploaded them itself."""
    if op.value_check is None:
        return
    recorder, datas = inputs[0]._recorder, list(inputs)
    recorder.checked = None
    for position in op.checked:
        datas[position] = _values(inputs[position])
        if datas[position] is None and inputs[position] is not None:
            return
    op.value_check(NUMPY, *[getattr(x, "_data", x) for x in datas], **attrs)
    recorder.checked = op


def raise_here(recorder: Any, op: Any, frame: FrameType | None = None) -> None:
    """Wait for the op, verb or block that was recorded last if the user's code, from a frame on, catches its error."""
    if op.may_raise and recorder.segment is not None and op is not recorder.checked and errors_are_caught(frame):
        recorder.flush(requested=False)


def _values(x: Any) -> Any:
    """An input's values as a NumPy array or a tuple of arrays; None if they are unknown."""
    if isinstance(x, (tuple, list)):
        found = [None if each is None else _of_tensor(each) for each in x]
        return None if any(f is None and each is not None for f, each in zip(found, x, strict=True)) else tuple(found)
    return None if x is None else _of_tensor(x)


def _of_tensor(tensor: Any) -> Any:
    """The values of an uploaded tensor that has not changed since, or of a view of one; None for other tensors."""
    base = tensor if tensor._base is None else tensor._base
    given = getattr(base, "_given", None)
    if given is None or tensor._version_counter[0] or given[1] is not tensor._version_counter or base._inverse_chain:
        return None
    return follow_arrays(NUMPY, given[0], tensor._view_chain)
