"""Embeddings and bags of embeddings."""

from __future__ import annotations

import math
from typing import Any

from ...context import no_grad
from ...dtypes import int32, int64
from ...errors import (
    DTypeMismatch,
    IndexOutOfBounds,
    IndexOutOfRange,
    InvalidChoice,
    InvalidOperation,
    InvalidValue,
    NotImplementedForDType,
    ShapeMismatch,
)
from ...schema.declaration import INTERNAL, NN_FUNCTION, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Int, Number, OptionalInt, OptionalNumber, Str
from ...shapes import Spec, size_at, torch_size
from ..batching import nn_rules
from ..guards import kernel_name
from ..shape.scatter import any_outside


def _wrong_type(function: str, argument: str, types: str, x: Any) -> DTypeMismatch:
    return DTypeMismatch(
        f"Expected tensor for argument #1 '{argument}' to have one of the following scalar types: {types}; but got "
        f"torch.{kernel_name(x)}Tensor instead (while checking arguments for {function})"
    )


def _rows_rule(input: Any, weight: Any) -> Spec:
    if input.dtype not in (int64.numpy, int32.numpy):
        raise _wrong_type("embedding", "indices", "Long, Int", input)
    if len(weight.shape) != 2:
        raise ShapeMismatch("'weight' must be 2-D")
    return Spec((*input.shape, weight.shape[1]), weight.dtype)


@op(_rows_rule, variants=INTERNAL, node="EmbeddingBackward0", memory=scratch(2.0), batching=nn_rules.embedded)
def embedded(xp: Any, input: Array, weight: Array, padding_idx: Int, scale_grad_by_freq: Bool) -> Any:
    """The rows of ``weight`` that ``input`` numbers."""
    _check_rows(xp, input, weight)
    return weight[input]


@embedded.checks("input")
def _check_rows(xp: Any, input: Any, weight: Any) -> None:
    if any_outside(xp, input, 0, weight.shape[0]):
        raise IndexOutOfRange("index out of range in self")


def _rows_grad(F: Any, grad: Any, input: Any, weight_shape: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    places = F.reshape(input, (math.prod(input.shape),))
    rows = F.reshape(grad, (places.shape[0], weight_shape[1]))
    if padding_idx >= 0:
        rows = F.where(F.unsqueeze(F.eq(places, padding_idx), -1), 0.0, rows)
    if scale_grad_by_freq:
        ones = F.new_zeros(rows, (rows.shape[0],)) + 1
        counts = F.index_put(F.new_zeros(rows, (weight_shape[0],)), (places,), ones, True)
        rows = rows / F.unsqueeze(F.index(counts, (places,)), -1)
    return F.index_put(F.new_zeros(rows, weight_shape), (places,), rows, True)


embedded.derivative(weight=_rows_grad)


def shorten(F: Any, input: Any, weight: Any, max_norm: float, norm_type: float) -> None:
    """Scale the rows that ``input`` looks up down to ``max_norm``, in place."""
    with no_grad():
        rows = F.to(F.reshape(input, (math.prod(input.shape),)), dtype=int64)
        found = F.index_select(weight.detach(), 0, rows)
        lengths = F.norm(found, norm_type, (-1,), True)
        shorter = F.where(lengths > max_norm, found * (max_norm / (lengths + 1e-7)), found)
        weight.detach().index_copy_(0, rows, shorter)


@composite(variants=NN_FUNCTION)
def embedding(
    F: Any,
    input: Array,
    weight: Array,
    padding_idx: OptionalInt = None,
    max_norm: OptionalNumber = None,
    norm_type: Number = 2.0,
    scale_grad_by_freq: Bool = False,
    sparse: Bool = False,
) -> Any:
    """The rows of ``weight`` (V, D) that ``input``, of whole numbers, names.

    The row ``padding_idx`` gets no gradient; rows longer than ``max_norm`` are first scaled down to it, in place;
    ``scale_grad_by_freq`` divides a row's gradient by how often it was looked up.
    """
    padding = -1
    if padding_idx is not None:
        count = size_at(weight.shape, 0)
        if not -count <= padding_idx < count:
            raise InvalidChoice("Padding_idx must be within num_embeddings")
        padding = padding_idx % count
    if len(weight.shape) != 2:
        raise ShapeMismatch("'weight' must be 2-D")
    if sparse:
        raise InvalidOperation("embedding: sparse gradients are not supported; leave sparse=False")
    if max_norm is not None and math.prod(input.shape):
        shorten(F, input, weight, max_norm, norm_type)
    return F.embedded(input, weight, padding, scale_grad_by_freq)


# Bags of embeddings --------------------------------------------------------------------------------------


def _check_places(
    input: Any, weight: Any, offsets: Any, mode: str, scale_grad_by_freq: bool, sparse: bool, weights: Any
) -> None:
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise InvalidValue(
            f"embedding_bag: If per_sample_weights ({torch_size(weights.shape)}) is not None, then it must have the "
            f"same shape as the input ({torch_size(input.shape)})"
        )
    if weight.dim() != 2:
        raise InvalidValue(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2 and offsets is not None:
        raise InvalidValue(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
            "sequences. However, found offsets of type <class 'torch.Tensor'>"
        )
    if input.dim() == 1 and offsets is None:
        raise InvalidValue("offsets has to be a 1D Tensor but got None")
    if input.dim() == 1 and offsets.dim() != 1:
        raise InvalidValue("offsets has to be a 1D Tensor")
    if input.dim() not in (1, 2):
        raise InvalidValue(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if mode not in ("sum", "mean", "max"):
        raise InvalidValue("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise InvalidValue("max mode does not support scaling the gradient by the frequency")
    if sparse:
        if mode == "max":
            raise InvalidValue("max mode does not support sparse weights")
        raise InvalidOperation("embedding_bag: sparse gradients are not supported; leave sparse=False")
    if weights is not None and mode != "sum":
        raise NotImplementedForDType(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )
    for indices in (input, offsets):
        if indices is not None and indices.dtype not in (int64, int32):
            raise _wrong_type("embedding_bag", "indices", "Long, Int", indices)
    if not weight.is_floating_point():
        raise _wrong_type("embedding_bag", "weight", "Half, BFloat16, Float, Double", weight)
    if weights is not None and weights.dtype != weight.dtype:
        raise DTypeMismatch(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type torch.{kernel_name(weight)}Tensor does not equal "
            f"torch.{kernel_name(weights)}Tensor (while checking arguments for embedding_bag)"
        )


def _places_rule(numbers: Any, offsets: Any) -> Spec:
    whole = int64.numpy, int32.numpy
    if not numbers.shape or numbers.dtype not in whole:
        raise ShapeMismatch("bag_places(): numbers must be vectors of int64 or int32")
    if offsets is not None and (len(offsets.shape) != 1 or offsets.dtype not in whole):
        raise ShapeMismatch("bag_places(): offsets must be a vector of int64 or int32")
    return Spec(numbers.shape, int64.numpy)


@op(_places_rule, variants=INTERNAL, memory=scratch(2.0), batching=nn_rules.bag_places)
def bag_places(xp: Any, numbers: Array, offsets: Array = None, bags: Int = 0, rows: Int = 0) -> Any:
    """Which bag each of the numbers is in, by where each bag starts or, without ``offsets``, in bags of one size.

    Leading dimensions of ``numbers`` are vectors with the same offsets. Raises for offsets that do not start at 0 or
    that end beyond the numbers; their order is not checked.
    """
    count = numbers.shape[-1]
    _check_offsets(xp, numbers, offsets, rows)
    order = xp.arange(count)
    if offsets is None:
        return xp.broadcast_to(order // max(count // max(bags, 1), 1), numbers.shape)
    places = xp.searchsorted(offsets[:bags].astype(int64.numpy), order, side="right") - 1
    return xp.broadcast_to(places, numbers.shape)


@bag_places.checks("numbers", "offsets")
def _check_offsets(xp: Any, numbers: Any, offsets: Any, rows: int) -> None:
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < rows:
        wrong = int(numbers.max()) if int(numbers.max()) >= rows else int(numbers.min())
        raise IndexOutOfBounds(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {wrong}")
    if offsets is not None and offsets.size and int(offsets[0]):
        raise InvalidOperation(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, "
            f"got {int(offsets[0])}"
        )
    if offsets is not None and offsets.size and int(offsets[-1]) > (count := numbers.shape[-1]):
        raise InvalidOperation(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {int(offsets[-1])}"
        )


@composite(variants=NN_FUNCTION)
def embedding_bag(
    F: Any,
    input: Array,
    weight: Array,
    offsets: Array = None,
    max_norm: OptionalNumber = None,
    norm_type: Number = 2.0,
    scale_grad_by_freq: Bool = False,
    mode: Str = "mean",
    sparse: Bool = False,
    per_sample_weights: Array = None,
    include_last_offset: Bool = False,
    padding_idx: OptionalInt = None,
) -> Any:
    """The sum, mean or maximum of the rows of ``weight`` (V, D) that each bag names: (bags, D); of an empty one, 0.

    A bag is a row of ``input`` (B, n), or the elements of ``input`` (n) from one of ``offsets`` to the next. Rows of
    ``padding_idx`` are ignored; with mode "sum", ``per_sample_weights`` multiply the rows.
    """
    _check_places(input, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights)
    if offsets is None and not input.shape[1] and input.shape[0]:
        raise InvalidOperation("step must be nonzero")  # torch's error, from its range of bag starts
    count = weight.shape[0]
    if padding_idx is not None and not -count <= padding_idx < count:
        raise IndexOutOfBounds(
            f"padding_idx must be within the number of embeddings, {-count} through {count - 1}, but got {padding_idx}"
        )
    padding = None if padding_idx is None else padding_idx % count
    bags = input.shape[0] if offsets is None else offsets.shape[0] - include_last_offset
    numbers = F.to(F.reshape(input, (math.prod(input.shape),)), dtype=int64)
    places = F.bag_places(numbers, offsets, bags, count)
    if max_norm is not None and math.prod(input.shape):
        shorten(F, numbers, weight, max_norm, norm_type)
    rows = F.embedding(numbers, weight, padding, scale_grad_by_freq=scale_grad_by_freq)
    counted = None if padding is None else F.unsqueeze(F.ne(numbers, padding), -1)
    return _reduce_bags(F, rows, places, bags, mode, per_sample_weights, counted)


def _largest_of_bags(F: Any, rows: Any, places: Any, bags: int, counted: Any) -> Any:
    """The largest elements of the rows of each bag; the gradient goes to the first of equals."""
    n, width = rows.shape
    values = rows.detach() if counted is None else F.where(counted, rows.detach(), -math.inf)
    at = F.expand(F.unsqueeze(places, -1), (n, width))
    most = F.scatter_reduce(F.new_zeros(values, (bags, width)), 0, at, values, "amax", include_self=False)
    largest = F.logical_not(F.lt(values, F.gather(most, 0, at)))  # or NaN
    if counted is not None:
        largest = F.logical_and(largest, counted)
    numbers = F.where(largest, F.unsqueeze(F.arange(n), -1), n)
    first = F.scatter_reduce(F.expand(F.new_zeros(places, (1, 1)) + n, (bags, width)), 0, at, numbers, "amin")
    return F.gather(F.cat([rows, F.new_zeros(rows, (1, width))]), 0, first)


def _reduce_bags(F: Any, rows: Any, places: Any, bags: int, mode: str, weights: Any, counted: Any) -> Any:
    """Reduce the rows of each bag to one; ``counted`` is False for padding rows, and None if there are none."""
    if mode == "max":
        return _largest_of_bags(F, rows, places, bags, counted)
    if weights is not None:
        rows = rows * F.reshape(weights, (-1, 1))
    if counted is not None:
        rows = F.where(counted, rows, 0.0)
    sums = F.index_add(F.new_zeros(rows, (bags, rows.shape[1])), 0, places, rows)
    if mode == "sum":
        return sums
    ones = F.new_zeros(rows.detach(), (rows.shape[0], 1)) + 1
    if counted is not None:
        ones = F.where(counted, ones, 0.0)
    counts = F.index_add(F.new_zeros(ones, (bags, 1)), 0, places, ones)
    return sums / F.clamp(counts, min=1)
