"""A call of an op on batched tensors, which batching rules take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...dtypes import from_numpy
from ...errors import InternalError
from ...schema.op import Op
from ...schema.signature import mapped
from ...shapes import Spec
from ...tensor.namespace import Functions


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
