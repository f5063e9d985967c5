"""Running an op's kernel on arrays: arguments checked and cast, results of the dtypes that its rule promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .backends import NUMPY, Backend
from .errors import TooLarge
from .modes import generator
from .registry import Op
from .specs import Spec, check_size

ndarray = np.ndarray


def shows(array: Any, source: Any) -> bool:
    """Whether the result of a view op is a view of ``source``: then both have one base, or one is the other's."""
    base = array.base
    return array is source or (base is not None and (base is source or base is source.base))


def execute(op: Op, datas: list[Any], attrs: Mapping[str, Any], xp: Backend = NUMPY) -> tuple[list[Any], Sequence[Any]]:
    """Check the arguments, run the kernel, and bring its results to the dtypes that the rule promises."""
    specs = op.rule(*datas, **attrs)
    one = type(specs) is Spec
    for spec in (specs,) if one else specs:
        check_size(spec.shape, spec.dtype, op.view)
    if op.common is not None:
        kept = op.unpromoted
        datas = datas[:kept] + promote(datas[kept:], op.common(tuple(datas)), xp)
    try:
        result = op.kernel(xp, generator(), *datas, **attrs) if op.random else op.kernel(xp, *datas, **attrs)
    except MemoryError as error:
        raise TooLarge(f"can't allocate memory: {error}") from None
    hidden: Sequence[Any] = ()
    if op.hidden:
        count = len(op.outputs)
        hidden = result[count:]
        result = result[0] if count == 1 else result[:count]
    if one:
        return [conform(result, specs.dtype, xp)], hidden
    return [conform(array, spec.dtype, xp) for array, spec in zip(result, specs, strict=True)], hidden


def conform(array: Any, dtype: np.dtype[Any], xp: Backend) -> Any:
    """What a kernel returned as an array of ``dtype``."""
    if type(array) is not ndarray:
        array = xp.asarray(array)
    return array if array.dtype is dtype or array.dtype == dtype else array.astype(dtype)


def promote(datas: list[Any], dtype: np.dtype[Any], xp: Backend) -> list[Any]:
    """Arrays cast to ``dtype``; numbers become arrays only where NumPy would not take them as weak."""
    promoted: list[Any] = []
    for x in datas:
        if type(x) is ndarray or hasattr(x, "astype"):
            promoted.append(x if x.dtype == dtype else x.astype(dtype))
        elif x is None or (type(x) is float and dtype.kind == "f"):
            promoted.append(x)
        else:
            # Integers wrap around as torch's do, where NumPy would raise.
            promoted.append(xp.asarray(np.asarray(x).astype(dtype)))
    return promoted
