"""Prepares the engine's calls for the call cache: they run the kernel and record the node, without checks."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import state
from ..schema.memory_admission import scratch_of
from ..shapes import Spec
from .call_cache import Call, Ready, entering, gathered
from .eager import Tensor, note_views
from .execution import conform, finish, is_own, own, promote

ndarray = np.ndarray
_new = object.__new__
ROOM = 1 << 20
"""The largest result in bytes of a cached call; for a larger one there may not be enough memory the next time."""
SCRATCH_ROOM = 1 << 24
"""The largest scratch memory in bytes of a cached call's kernel."""


def on_arrays(call: Call) -> Ready | None:
    """Return a function that applies the op to tensors like the call's; None if the call needs too much memory."""
    if any(spec.nbytes > ROOM for spec in call.specs) or _scratch(call) > SCRATCH_ROOM:
        return None
    return _prepared(call)


def _scratch(call: Call) -> int:
    """Return the bytes that the kernel may allocate in addition to its results."""
    if call.op.view:
        return 0
    datas = [Spec(x._data.shape, x._data.dtype) if hasattr(x, "_data") else x for x in call.inputs]
    return scratch_of(call.op, datas, call.attrs, sum(spec.nbytes for spec in call.specs))


def count_hidden(arrays: Any) -> None:
    """Count the memory of hidden results, which only the graph holds."""
    memory = state.memory
    if memory is not None:
        for array in arrays:
            if type(array) is ndarray:
                memory.count(array)


def _gathering(call: Call) -> Any:
    """Return a function from a call's tensors to the op's inputs, with numbers already cast; None if both are equal."""
    op, inputs, _, _, order = call
    if order is None:
        return None
    constants = [x._data if hasattr(x, "_data") else x for x in inputs]
    if op.common is not None:
        kept = op.unpromoted
        constants[kept:] = promote(constants[kept:], op.common(tuple(constants)), NUMPY)
    blank = [c if i is None else None for c, i in zip(constants, order, strict=True)]
    return functools.partial(gathered, blank, order)


def _prepared(call: Call) -> Ready:
    """Return the function that applies the op: it runs the kernel and finishes the outputs, without checks."""
    op, attrs, enter, gather = call.op, call.attrs, entering(call), _gathering(call)
    kernel = functools.partial(op.kernel, NUMPY, **attrs)
    dtypes, count, many = [spec.dtype for spec in call.specs], len(op.outputs), call.many
    only, has_hidden, view = dtypes[0], bool(op.hidden), op.view

    def made(out: Any, dtype: Any, datas: list[Any]) -> Tensor:
        if type(out) is not ndarray or out.dtype is not dtype:
            out = conform(out, dtype, NUMPY)
        if not view and not is_own(out, datas):
            out = own(out, datas, NUMPY)
        tensor = _new(Tensor)
        tensor._data = out
        tensor._version_counter = [0]
        return tensor

    def run(tensors: list[Any]) -> Any:
        inputs = tensors if gather is None else gather(tensors)
        datas = [x._data if type(x) is Tensor else x for x in inputs]
        out = kernel(*datas)
        hidden: Any = ()
        if has_hidden:
            hidden = out[count:]
            out = out[0] if count == 1 else out[:count]
            count_hidden(hidden)
        if many:
            outputs: Any = [made(each, dtype, datas) for each, dtype in zip(out, dtypes, strict=True)]
        else:
            outputs = (made(out, only, datas),)
        return finish(op, inputs, attrs, outputs, hidden, enter, note_views)

    return run
