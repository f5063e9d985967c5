"""Calls of ops on batched tensors, the rules that follow from an op's declaration, and the look-up of an op's rule.

A pointwise op broadcasts over the batch, an op along dimensions has its dimension numbers shifted by one, an op that
makes a tensor makes the whole batch, and random ops and torch.linalg's functions take the batch as one more leading
dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...dtypes import from_numpy, result_type
from ...errors import InternalError
from ...schema.declaration import Batching
from ...schema.op import Op
from ...schema.promotion import default_float
from ...schema.signature import flattened, mapped
from ...shapes import Spec
from ...tensor.namespace import Functions

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


class BatchedValue:
    """A tensor whose dimension 0 is the batch. ``shape`` is the shape of one sample."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.value._data.shape[1:])

    @property
    def dtype(self) -> Any:
        """The NumPy dtype."""
        return self.value._data.dtype


class BatchedCall:
    """An op, its attributes, and its inputs: each a BatchedValue, a tensor that all samples share, a number or None.

    ``attrs`` includes the op's defaults. ``specs`` are the outputs of one sample's call; ``F`` has the functions that
    compute on tensors with the batch as an ordinary dimension.
    """

    def __init__(
        self, F: Functions, size: int, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], specs: Sequence[Spec]
    ) -> None:
        self.F = F
        self.size = size
        self.op = op
        self.inputs = inputs
        self.attrs = {**op.defaults, **attrs}
        self.specs = specs

    def apply(self, *inputs: Any, **attrs: Any) -> Any:
        """Apply the op itself to these inputs."""
        return self.F._apply(self.op, inputs, attrs)

    def ndim(self, value: Any) -> int:
        """Return the number of dimensions of one sample."""
        return len(shape_of(value))

    def lifted(self, value: Any) -> Any:
        """Return the tensor with the batch as dimension 0; one that is the same for all samples is expanded."""
        if isinstance(value, BatchedValue):
            return value.value
        return self.F.expand(self.F.unsqueeze(value, 0), (self.size, *value._data.shape))

    def aligned(self, value: Any, ndim: int) -> Any:
        """Return the tensor for an op that broadcasts, with samples padded to ``ndim`` dimensions after the batch."""
        if not isinstance(value, BatchedValue):
            return value
        missing = ndim - len(value.shape)
        if missing <= 0:
            return value.value
        return self.F.reshape(value.value, (self.size, *(1,) * missing, *value.shape))

    def padded(self) -> list[Any]:
        """Return the inputs with the batch as dimension 0, and samples padded to the largest number of dimensions."""
        ndim = max(len(shape_of(x)) for x in self.inputs)
        return [self.aligned(BatchedValue(self.lifted(x)), ndim) if is_tensor(x) else x for x in self.inputs]

    def broadcast(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Return the tensor with the batch as dimension 0 and each sample broadcast to ``shape``."""
        return self.F.expand(self.aligned(BatchedValue(self.lifted(value)), len(shape)), (self.size, *shape))

    def numbers(self, ndim: int) -> Any:
        """Return the sample numbers 0 to size - 1, shaped to index dimension 0 next to ``ndim``-dimensional indices."""
        return self.F.reshape(self.F.arange(self.size), (self.size, *(1,) * ndim))


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of one sample of an input; () for a number."""
    if isinstance(value, BatchedValue):
        return value.shape
    return tuple(value._data.shape) if hasattr(value, "_data") else ()


def is_tensor(value: Any) -> bool:
    """Whether an input is a tensor, batched or not."""
    return isinstance(value, BatchedValue) or hasattr(value, "_data")


def finished(call: BatchedCall, results: Any) -> list[Any]:
    """Return a rule's results in the shapes and dtypes of ``call.specs``, with the batch as dimension 0."""
    found = list(results) if isinstance(results, (list, tuple)) else [results]
    if len(found) != len(call.specs):
        raise InternalError(f"the batching rule of {call.op.key} returned {len(found)} results, not {len(call.specs)}")
    for i, (result, spec) in enumerate(zip(found, call.specs, strict=True)):
        wanted = (call.size, *spec.shape)
        if tuple(result._data.shape) != wanted:
            result = call.F.reshape(result, wanted)
        if result._data.dtype != spec.dtype:
            result = result.to(dtype=from_numpy(spec.dtype))
        found[i] = result
    return found


def looped(call: BatchedCall) -> list[Any]:
    """Apply the op to each sample in turn and stack the results."""

    def sample(i: int, value: Any) -> Any:
        return call.F.select(value.value, 0, i) if isinstance(value, BatchedValue) else value

    rows: list[Sequence[Any]] = []
    for i in range(call.size):
        result = call.F._apply(call.op, mapped(partial(sample, i), call.inputs), call.attrs)
        rows.append(result if isinstance(result, (list, tuple)) else [result])
    return [call.F.stack(list(column)) for column in zip(*rows, strict=True)]
