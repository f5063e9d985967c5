"""Runs an op's kernel on arrays: checks and casts the arguments, and casts the results to the rule's dtypes.

Tensors made under ``inference_mode`` are inference tensors, which have no version and cannot be recorded. One has an
:class:`InferenceVersion` as its version counter. Its views share the counter, so they are inference tensors too. Saving
a tensor for backward reads its version, which raises the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import NUMPY, Backend
from ..context import generator, observers, state
from ..errors import InvalidOperation, TooLarge
from ..schema.memory_admission import LARGE, OBJECT_BYTES, count_large, scratch_of
from ..schema.op import Op
from ..shapes import Spec, check_size

ndarray = np.ndarray
Enter = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], None]
"""``enter(inputs, outputs, hidden)`` records an operation."""


def is_view_of(array: Any, source: Any) -> bool:
    """Whether the result of a view op is a view of ``source``, judged by their ``base`` arrays."""
    if array is source:
        return True
    base, shared = array.base, source.base
    while base is not None:
        if base is source or base is shared:
            return True
        base = getattr(base, "base", None)  # the base of as_strided's result is an object that is not an array
    return False


def execute(op: Op, datas: list[Any], attrs: Mapping[str, Any], xp: Backend = NUMPY) -> tuple[list[Any], Sequence[Any]]:
    """Check the arguments, run the kernel, and return the outputs in the rule's dtypes and the hidden results."""
    if observers and (observer := state.observer) is not None:
        outputs, hidden = observer.kernel(_execute, op, datas, attrs, xp)
        return outputs, hidden
    return _execute(op, datas, attrs, xp)


def _execute(op: Op, datas: list[Any], attrs: Mapping[str, Any], xp: Backend) -> tuple[list[Any], Sequence[Any]]:
    specs = op.rule(*datas, **attrs)
    one = type(specs) is Spec
    nbytes = 0
    for spec in (specs,) if one else specs:
        nbytes += check_size(spec.shape, spec.dtype, op.view)
    dtype = None if op.common is None else op.common(tuple(datas))
    memory = state.memory
    needed = 0 if memory is None else needs(op, datas, attrs, dtype, nbytes, 1 if one else len(specs))
    if needed > LARGE:
        memory.reserve(needed)  # type: ignore[union-attr]
    try:
        if dtype is not None:
            kept = op.unpromoted
            datas = datas[:kept] + promote(datas[kept:], dtype, xp)
        result = op.kernel(xp, generator(), *datas, **attrs) if op.random else op.kernel(xp, *datas, **attrs)
    except MemoryError as error:
        raise TooLarge(f"can't allocate memory: {error}") from None
    finally:
        if needed > LARGE:
            memory.release(needed)  # type: ignore[union-attr]
    hidden: Sequence[Any] = ()
    if op.hidden:
        count = len(op.outputs)
        hidden = result[count:]
        result = result[0] if count == 1 else result[:count]
    arrays = [result] if one else result
    outputs = [conform(array, spec.dtype, xp) for array, spec in zip(arrays, (specs,) if one else specs, strict=True)]
    if not op.view:
        outputs = [array if has_own_memory(array, datas) else in_own_memory(array, datas, xp) for array in outputs]
    if memory is not None:
        # Intermediate results of a composite have no name, but the graph may keep them, as it does hidden results.
        if needed > LARGE:
            count_large(memory, outputs)
        for array in hidden:
            if type(array) is ndarray or (xp is not NUMPY and hasattr(array, "nbytes")):
                memory.count(array)
    return outputs, hidden


def finish(
    op: Op,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    outputs: Sequence[Any],
    hidden: Sequence[Any],
    enter: Enter | None,
) -> Any:
    """Return the result of a call that has made new tensors: record it, and note which outputs are views.

    ``enter`` records it; it is None for a call that is not recorded.
    """
    if enter is not None:
        enter(inputs, outputs, hidden)
    elif state.inference:
        mark_as_inference(outputs)
    if op.view:
        note_views(inputs[0], op, attrs, outputs)
    return op.bundle(outputs)


def note_views(source: Any, op: Op, attrs: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """Make the outputs of a view op views of ``source``, unless they are copies."""
    for index, output in enumerate(outputs):
        output._note_view(source, op, attrs, index)


def needs(
    op: Op,
    datas: Sequence[Any],
    attrs: Mapping[str, Any],
    dtype: np.dtype[Any] | None,
    results: int,
    count: int = 1,
) -> int:
    """Return the bytes that a call of the op takes while it runs.

    ``results`` is the total size of the ``count`` results; ``dtype`` is the dtype that the inputs are cast to first.
    """
    if op.view:  # a view op that may copy declares the copy as scratch
        return OBJECT_BYTES * count + (op.scratch(*datas, **attrs) if callable(op.scratch) else 0)
    total = results + OBJECT_BYTES * count + scratch_of(op, datas, attrs, results)
    if dtype is not None:
        for x in datas[op.unpromoted :]:
            if type(x) is ndarray and x.dtype is not dtype:
                total += x.size * dtype.itemsize + results
    return total


def has_own_memory(array: Any, datas: Sequence[Any]) -> bool:
    """Whether an array is evidently in row-major order and shares no memory with the inputs ``datas``."""
    if type(array) is not ndarray or array.base is not None or not array.flags.c_contiguous:
        return False
    for x in datas:  # noqa: SIM110  # a generator takes twice as long
        if x is array:
            return False
    return True


def in_own_memory(array: Any, datas: Sequence[Any], xp: Backend) -> Any:
    """Return the result of an op that is not a view in row-major order, as in torch, and in memory of its own.

    Every device and every planned program uses this layout, so reshapes are views in the same cases, and sums are
    taken in the same order, everywhere.
    """
    if not xp.is_contiguous(array):
        return xp.ascontiguousarray(array)
    return xp.array(array) if xp.aliases and _is_borrowed(array, datas) else array


def _is_borrowed(array: Any, datas: Sequence[Any]) -> bool:
    """Whether an array shares memory with one of the inputs ``datas``."""
    root = memory_owner(array)
    for x in datas:
        if isinstance(x, (tuple, list)):
            if _is_borrowed(array, x):
                return True
        elif hasattr(x, "astype") and (x is root or memory_owner(x) is root):
            return True
    return False


def memory_owner(array: Any) -> Any:
    """Return the owner of an array's memory: itself, the array that it is a view of, or a buffer."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array


def run_composite(op: Op, functions: Any, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Run a composite op on ``functions``; results that share memory with an input are cloned unless it may alias."""
    result = op.kernel(functions, *inputs, **attrs)
    if op.may_alias:
        return result
    if not isinstance(result, (tuple, list)):
        return functions.clone(result) if _is_among(result, inputs) else result
    if not any(_is_among(x, inputs) for x in result):
        return result
    parts = [functions.clone(x) if _is_among(x, inputs) else x for x in result]
    return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)


def _is_among(tensor: Any, values: Any) -> bool:
    """Whether a tensor shares its version counter, and so its memory, with one of the values."""
    cell = getattr(tensor, "_version_counter", None)
    if cell is None:
        return False
    for x in values:
        if isinstance(x, (tuple, list)):
            if _is_among(tensor, x):
                return True
        elif getattr(x, "_version_counter", None) is cell:
            return True
    return False


def conform(array: Any, dtype: np.dtype[Any], xp: Backend) -> Any:
    """Return a kernel's result as an array of ``dtype``."""
    if type(array) is not ndarray:
        array = xp.asarray(array)
    return array if array.dtype is dtype or array.dtype == dtype else array.astype(dtype)


def promote(datas: list[Any], dtype: np.dtype[Any], xp: Backend) -> list[Any]:
    """Cast arrays to ``dtype``; numbers become arrays unless NumPy would treat them as weak scalars of ``dtype``."""
    promoted: list[Any] = []
    for x in datas:
        if type(x) is ndarray or hasattr(x, "astype"):
            promoted.append(x if x.dtype == dtype else x.astype(dtype))
        elif x is None or (isinstance(x, float) and dtype.kind == "f"):
            promoted.append(x)
        else:
            # Integers wrap around as in torch, where NumPy would raise.
            promoted.append(xp.wrapped(x, dtype))
    return promoted


INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
    "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
    "autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)
INFERENCE_UNVERSIONED = "Inference tensors do not track version counter."
INFERENCE_MODIFIED = (
    "Inplace update to inference tensor outside InferenceMode is not allowed."
    "You can make a clone to get a normal tensor before doing inplace update."
    "See https://github.com/pytorch/rfcs/pull/17 for more details."
)
INFERENCE_REQUIRING = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."


class InferenceVersion(list[int]):
    """A version counter that stays 0 and raises if it is read while gradients are enabled."""

    def __getitem__(self, index: Any) -> Any:
        if state.grad_enabled:
            raise InvalidOperation(INFERENCE_SAVED)
        return 0

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


def mark_as_inference(tensors: Iterable[Any]) -> None:
    """Turn new tensors into inference tensors."""
    for tensor in tensors:
        tensor._version_counter = InferenceVersion([0])


def is_inference_tensor(tensor: Any) -> bool:
    """Whether ``tensor`` is an inference tensor."""
    return type(tensor._version_counter) is InferenceVersion
