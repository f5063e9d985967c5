"""The batching rules that follow from an op's declaration, and the look-up of an op's rule.

A pointwise op broadcasts over the batch, an op along dimensions has its dimension numbers shifted by one, an op that
makes a tensor makes the whole batch, and random ops and torch.linalg's functions take the batch as one more leading
dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dtypes import from_numpy, result_type
from ...schema.declaration import Batching
from ...schema.op import Op
from ...schema.promotion import default_float
from ...schema.signature import flattened, mapped
from .batched_call import BatchedCall, finished, is_tensor, looped, shape_of

DIM_NAMES = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "dimension"})
"""Attributes that are dimension numbers."""


def rule(function: Callable[[BatchedCall], Any]) -> Batching:
    """Make a function of a batched call the batching of the ops that name it."""
    return Batching(function)


def decomposition(parts: Callable[..., Any]) -> Batching:
    """Make a decomposition into other ops, ``parts(F, *inputs, **attrs)``, the batching of the ops that name it."""
    return Batching(parts=parts)


def rule_of(op: Op) -> Callable[[BatchedCall], Any] | None:
    """Return the batching rule of an op; None if it must run once for each sample."""
    if op.batching.rule is not None:
        return op.batching.rule
    if op.pointwise:
        return pointwise
    if op.factory:
        return made
    if any(p.name in DIM_NAMES for p in op.attr_params):
        return along_dims
    return leading if op.random or op.namespace == "torch.linalg" else None


def apply_to_batch(call: BatchedCall, looping: Callable[[], None] = lambda: None) -> list[Any]:
    """Apply the op to the whole batch by its rule, or else to each sample in turn, after a call of ``looping``."""
    found = rule_of(call.op)
    results = NotImplemented if found is None else found(call)
    if results is NotImplemented:
        looping()
        results = looped(call)
    return finished(call, results)


def pointwise(call: BatchedCall) -> Any:
    """Broadcast samples against each other; samples with fewer dimensions get dimensions of size 1 after the batch."""
    ndim = max(len(shape_of(x)) for x in call.inputs)
    return call.apply(*[call.aligned(x, ndim) for x in promoted(call)], **call.attrs)


def promoted(call: BatchedCall) -> list[Any]:
    """Return the inputs, cast to the dtype that one sample's call computes in if some samples are 0-dim.

    Type promotion gives 0-dim tensors a lower priority, which the batch dimension would change.
    """
    inputs, lead = list(call.inputs), call.op.unpromoted
    shapes = [shape_of(x) for x in inputs[lead:] if is_tensor(x)]
    if call.op.common is None or (len({not shape for shape in shapes}) < 2 and any(shapes)):
        return inputs
    values = tuple([_Sample(x) if is_tensor(x) else x for x in inputs[lead:] if x is not None])
    if len({v.dtype for v in values if isinstance(v, _Sample)}) < 2:
        return inputs
    dtype = result_type(values, default_float())
    for i, x in enumerate(inputs):
        if i >= lead and is_tensor(x) and _Sample(x).dtype != dtype:
            inputs[i] = _cast(x, dtype)
    return inputs


class _Sample:
    """The shape and dtype of one sample of an input."""

    def __init__(self, value: Any) -> None:
        self.shape = shape_of(value)
        self.ndim = len(self.shape)
        self.dtype = value._data.dtype if hasattr(value, "_data") else value.dtype


def _cast(value: Any, dtype: Any) -> Any:
    if hasattr(value, "_data"):
        return value.to(dtype=from_numpy(dtype))
    return type(value)(value.value.to(dtype=from_numpy(dtype)))


def leading(call: BatchedCall) -> Any:
    """Apply the op with the batch as one more leading dimension."""
    return call.apply(*[call.lifted(x) if is_tensor(x) else x for x in call.inputs], **call.attrs)


def padded(call: BatchedCall) -> Any:
    """Apply an op that broadcasts the leading dimensions of its inputs."""
    return call.apply(*call.padded(), **call.attrs)


def made(call: BatchedCall) -> Any:
    """Make a tensor for each sample, because it may be drawn, or modified in place."""
    attrs = dict(call.attrs)
    if "size" in attrs:
        attrs["size"] = (call.size, *attrs["size"])
    return call.apply(*[call.lifted(x) for x in call.inputs], **attrs)


LEADING = rule(leading)
"""The batching of an op that accepts any number of leading dimensions."""
PADDED = rule(padded)
"""The batching of an op that also broadcasts the leading dimensions of its inputs."""


def along_dims(call: BatchedCall) -> Any:
    """Apply the op with its dimension numbers shifted by one. No dimensions means all dimensions of a sample."""
    ndim = len(shape_of(next(x for x in flattened(call.inputs) if is_tensor(x))))

    def lift(value: Any) -> Any:
        if not is_tensor(value):
            return value
        raised = call.lifted(value)
        return call.F.reshape(raised, (call.size, 1)) if not shape_of(value) else raised

    inputs, extent = [mapped(lift, x) for x in call.inputs], max(ndim, 1)
    attrs = dict(call.attrs)
    for name in DIM_NAMES & attrs.keys():
        dims = attrs[name]
        if dims is None and not _takes_several(call.op, name):
            inputs[0] = call.F.reshape(inputs[0], (call.size, -1))
            attrs[name] = 1
        else:
            attrs[name] = shifted(dims, extent)
    return call.apply(*inputs, **attrs)


def _takes_several(op: Op, name: str) -> bool:
    kind = next(p.kind for p in op.attr_params if p.name == name)
    return "ints" in kind.word


def shifted(dims: Any, ndim: int) -> Any:
    """Convert dimension numbers of a sample to those of the batched tensor; None or () means all of them."""
    if isinstance(dims, int):
        return dims % ndim + 1
    return tuple([d % ndim + 1 for d in dims]) if dims else tuple(range(1, ndim + 1))
