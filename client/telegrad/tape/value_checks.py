"""Errors that depend on values: the client raises them on the user's line where it uploaded the values itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.arrays.numpy import NUMPY
from telegrad_engine.schema.op import Op


def check(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """Raise the error that the op would raise for the values of its inputs, if the client knows them."""
    if op.value_check is None:
        return
    datas = list(inputs)
    for position in op.checked:
        datas[position] = _values(inputs[position])
        if datas[position] is None:
            return
    op.value_check(NUMPY, *[getattr(x, "_data", x) for x in datas], **attrs)


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
    if given is None or tensor._version_counter[0] or given[1] is not tensor._version_counter or base._undo:
        return None
    values = given[0]
    for op, attrs, index in tensor._chain:
        result = op.kernel(NUMPY, values, **attrs)
        values = result[index] if isinstance(result, (tuple, list)) else result
    return values
