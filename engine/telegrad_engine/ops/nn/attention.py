"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from ...dtypes import FLOATING, bool_, widened
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import INTERNAL, NN_FUNCTION, hiding, scratch
from ...schema.memory_admission import BLOCK, elements, reserved
from ...schema.op import composite, op
from ...schema.parameters import Array, Bool, Number, OptionalNumber
from ...schema.promotion import LOWER
from ...shapes import Spec, check_keeps_shape, wrap_dim
from ..batching.rules import LEADING, PADDED
from ..blocked_loops import blocks, map_in_blocks
from .activation import row_sums


def _check_attention(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool) -> None:
    dims = [len(x.shape) for x in (query, key, value)]
    if len({x.dtype for x in (query, key, value)}) > 1:
        raise DTypeMismatch(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype.c_name} key.dtype: {key.dtype.c_name} and value.dtype: {value.dtype.c_name} instead."
        )
    if min(dims) < 2:
        raise ShapeMismatch(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{dims[0]} key.dim: {dims[1]} and value.dim: {dims[2]} instead."
        )
    if attn_mask is not None:
        if attn_mask.dtype.name not in ("bool", "float32", query.dtype.name):
            raise DTypeMismatch(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                f"{attn_mask.dtype.c_name} and  query.dtype: {query.dtype.c_name} instead."
            )
        if is_causal and not _is_fused(query, key, value, attn_mask, dropout_p):
            raise InvalidOperation(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
    if not query.is_floating_point():
        raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: float != {query.dtype.c_name}")
    if not 0 <= dropout_p <= 1:
        raise InvalidOperation(f"dropout probability has to be between 0 and 1, but got {dropout_p:g}")


def _is_fused(query: Any, key: Any, value: Any, mask: Any, dropout_p: float) -> bool:
    """Whether torch has a fused kernel for these on the CPU, which takes a mask together with ``is_causal``."""
    if dropout_p or mask.requires_grad or [x.dim() for x in (query, key, value)] != [4, 4, 4]:
        return False
    batch, heads, length, width = query.shape
    (of_key, own, *rest), (of_value, also, *_) = key.shape, value.shape
    sizes = (batch, heads, length, rest[0])[-mask.dim() :]
    return (
        batch == of_key == of_value
        and own == also
        and width == rest[1] == value.shape[-1]
        and 0 not in (length, rest[0], value.shape[2])
        and mask.dim() in (2, 4)
        and all(size in (1, wanted) for size, wanted in zip(mask.shape, sizes, strict=True))
        and all(x.shape[-1] == 1 or x.stride(-1) == 1 for x in (query, key, value))
    )


@composite(variants=NN_FUNCTION, autocast=LOWER)
def scaled_dot_product_attention(
    F: Any,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array = None,
    dropout_p: Number = 0.0,
    is_causal: Bool = False,
    *,
    scale: OptionalNumber = None,
    enable_gqa: Bool = False,
) -> Any:
    """``softmax(scale * query @ key.mT + mask) @ value``; a query that may see nothing gets 0 (Vaswani et al. 2017).

    With ``enable_gqa``, groups of query heads (dim -3) share one head of ``key`` and ``value``.
    """
    _check_attention(query, key, value, attn_mask, dropout_p, is_causal)
    if enable_gqa:
        key, value = (_each_head(F, x, query.shape[wrap_dim(-3, query.dim())]) for x in (key, value))
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    if not dropout_p and _is_regular(query, key, value):
        large = _scores_bytes(query, key) > BLOCK
        if attn_mask is None and not large:
            return F.attend(query, key, value, factor, is_causal)
        if large and (attn_mask is None or _is_constant_mask(query, key, attn_mask)):
            return F.attend_in_blocks(query, key, value, factor, is_causal, attn_mask)
    weights = _recorded_weights(F, query, key, factor, is_causal, attn_mask)
    return F.matmul(F.dropout(weights, dropout_p), value)


def _each_head(F: Any, x: Any, heads: int) -> Any:
    """Repeat each head of ``x`` for the query heads that share it."""
    own = x.shape[wrap_dim(-3, x.dim())]
    if heads % max(own, 1):
        raise InvalidOperation("Number of heads in key and value must divide the number of heads in ")
    return F.repeat_interleave(x, heads // max(own, 1), -3)


def _recorded_weights(F: Any, query: Any, key: Any, scale: float, is_causal: bool, mask: Any) -> Any:
    """The softmax of the masked scores, differentiably; 0 for a query whose keys are all masked."""
    scores = F.matmul(query * scale, F.transpose(key, -2, -1))
    if mask is not None:
        check_keeps_shape(scores.shape, mask.shape)
    if is_causal:
        scores = F.where(F.tril(F.ones(tuple(scores.shape[-2:]), dtype="bool")), scores, -math.inf)
    if mask is None:
        return F.softmax(scores, -1)
    scores = F.where(mask, scores, -math.inf) if mask.dtype.name == "bool" else scores + mask
    # If all keys are masked, the softmax would be 0 / 0, also in the derivative.
    unseen = F.eq(F.amax(scores, (-1,), True), -math.inf)
    return F.masked_fill(F.softmax(F.masked_fill(scores, unseen, 0.0), -1), unseen, 0.0)


# As one op -----------------------------------------------------------------------------------------------


def _is_regular(query: Any, key: Any, value: Any) -> bool:
    """Whether ``attend`` supports these shapes: no dimension is empty, broadcast or mismatched."""
    *batch, _, width = query.shape
    *also, length, width_of_key = key.shape
    return (
        batch == also
        and width == width_of_key
        and (*batch, length) == tuple(value.shape[:-1])
        and 0 not in (*query.shape, length, value.shape[-1])
    )


def _scores_bytes(query: Any, key: Any) -> int:
    """The bytes of all scores, in the dtype that they are computed in."""
    return int(math.prod(query.shape[:-1]) * key.shape[-2]) * _itemsize(query)


def _itemsize(query: Any) -> int:
    """The bytes of a score: float16 and bfloat16 are computed in float32."""
    return max(int(query.dtype.itemsize), 4)


def _is_constant_mask(query: Any, key: Any, mask: Any) -> bool:
    """Whether ``attend_in_blocks`` supports a mask: it has no gradient, and is bool or of the queries' dtype."""
    check_keeps_shape((*query.shape[:-1], key.shape[-2]), mask.shape)
    return not getattr(mask, "requires_grad", False) and mask.dtype.name in ("bool", query.dtype.name)


def _attend_rule(query: Any, key: Any, value: Any) -> Spec:
    if min(len(x.shape) for x in (query, key, value)) < 2 or not _is_regular(query, key, value):
        shapes = ", ".join(str(list(x.shape)) for x in (query, key, value))
        raise ShapeMismatch(
            f"attend(): query, key and value must be of one batch shape and not empty, but got {shapes}"
        )
    if not query.dtype == key.dtype == value.dtype or query.dtype not in FLOATING:
        raise DTypeMismatch("attend(): query, key and value must have one floating point dtype")
    return Spec((*query.shape[:-1], value.shape[-1]), query.dtype)


def _attend_node(node: Any) -> str:
    names = {2: "MmBackward0", 4: "ScaledDotProductFlashAttentionForCpuBackward0"}
    return names.get(len(node.shape), "UnsafeViewBackward0")


@op(
    _attend_rule,
    variants=INTERNAL,
    node=_attend_node,
    results=hiding("weights", rule=lambda query, key, value: [Spec((*query.shape[:-1], key.shape[-2]), query.dtype)]),
    memory=scratch(lambda query, key, value: 5 * _scores_bytes(query, key) + 4 * elements(query, key, value) * 4),
    batching=LEADING,
)
def attend(xp: Any, query: Array, key: Array, value: Array, scale: Number, is_causal: Bool) -> Any:
    """``softmax(scale * query @ key.mT) @ value``, all of one batch shape; each query sees the keys up to its own."""
    query, key, value = widened(query), widened(key), widened(value)
    weights = _weights(xp, query, key, scale, 0 if is_causal else None)
    return xp.matmul(weights, value), weights


def _weights(xp: Any, query: Any, key: Any, scale: float, start: int | None, mask: Any = None) -> Any:
    """The softmax of the scores; if ``start``, the index of the first query, is given, later keys get 0."""
    scores = xp.affine(xp.matmul(query, xp.swapaxes(key, -1, -2)), scale)
    unseen = xp.asarray(-math.inf, scores.dtype)
    if start is not None:
        scores = xp.where(xp.tril(xp.ones(scores.shape[-2:], bool_.numpy), start), scores, unseen)
    if mask is None:
        return xp.softmax(scores, -1)
    scores = xp.where(mask, scores, unseen) if mask.dtype == bool_.numpy else scores + mask
    blind = xp.max(scores, axis=-1, keepdims=True) == unseen  # all keys are masked: the softmax would be 0 / 0
    zero = xp.zero(scores)
    return xp.where(blind, zero, xp.softmax(xp.where(blind, zero, scores), -1))


@attend.joint_derivative
def _attend_grads(
    F: Any, grad: Any, needs: Any, query: Any, key: Any, value: Any, scale: float, is_causal: bool, weights: Any
) -> Any:
    if F.xp is not None:
        return _attend_fused(F.xp, widened(grad), widened(query), widened(key), widened(value), scale, weights)
    return _recorded_grads(F, grad, needs, query, key, value, scale, is_causal, None)


def _recorded_grads(
    F: Any, grad: Any, needs: Any, query: Any, key: Any, value: Any, scale: float, is_causal: bool, mask: Any
) -> tuple[Any, Any, Any]:
    """The gradients as tensors with a graph."""
    weights = _recorded_weights(F, query, key, scale, is_causal, mask)
    by_weight = F.matmul(grad, F.transpose(value, -2, -1))
    slopes = weights * (by_weight - F.sum(by_weight * weights, (-1,), True)) * scale
    return (
        F.matmul(slopes, key) if needs[0] else None,
        F.matmul(F.transpose(slopes, -2, -1), query) if needs[1] else None,
        F.matmul(F.transpose(weights, -2, -1), grad) if needs[2] else None,
    )


def _attend_fused(xp: Any, grad: Any, query: Any, key: Any, value: Any, scale: float, weights: Any) -> Any:
    by_weight = xp.matmul(grad, xp.swapaxes(value, -1, -2))
    slopes = xp.affine(xp.affine(by_weight - row_sums(xp, by_weight * weights), weights), scale)
    return (
        xp.matmul_like(query, slopes, key),
        xp.matmul_like(key, xp.swapaxes(slopes, -1, -2), query),
        xp.matmul_like(value, xp.swapaxes(weights, -1, -2), grad),
    )


# In blocks, for large scores -----------------------------------------------------------------------------


def _blocks_rule(query: Any, key: Any, value: Any, attn_mask: Any) -> Spec:
    spec = _attend_rule(query, key, value)
    if attn_mask is not None:
        check_keeps_shape((*query.shape[:-1], key.shape[-2]), attn_mask.shape)
        if attn_mask.dtype not in (bool_.numpy, query.dtype):
            raise DTypeMismatch("attend_in_blocks(): the mask must be of bools or have the dtype of query")
    return spec


def _block_bytes(query: Any, key: Any) -> int:
    """The bytes of the scores that are computed at once: those of a block, or of a single query."""
    row = int(key.shape[-2]) * _itemsize(query)
    return min(_scores_bytes(query, key), max(BLOCK, row))


@op(
    _blocks_rule,
    variants=INTERNAL,
    node=_attend_node,
    memory=scratch(
        lambda query, key, value, attn_mask: (
            6 * _block_bytes(query, key) + 4 * elements(query, key, value) * _itemsize(query)
        )
    ),
    batching=PADDED,
)
def attend_in_blocks(
    xp: Any, query: Array, key: Array, value: Array, scale: Number, is_causal: Bool, attn_mask: Array = None
) -> Any:
    """``attend`` a block of queries at a time, with a mask that has no gradient. The weights are not saved."""

    def attended(query: Any, key: Any, value: Any, mask: Any = None) -> tuple[Any]:
        rows = [
            xp.matmul(_weights(xp, part, key, scale, start, part_of_mask), value)
            for part, part_of_mask, start in _query_blocks(query, key, mask, is_causal)
        ]
        return (xp.concatenate(rows, axis=query.ndim - 2),)

    arrays = [widened(query), widened(key), widened(value), *_full_masks(xp, query, key, attn_mask)]
    return map_in_blocks(xp, attended, arrays, len(query.shape) - 2, _scores_bytes(query, key))[0]


def _full_masks(xp: Any, query: Any, key: Any, mask: Any) -> list[Any]:
    """The mask broadcast to the shape of the scores, in a list; an empty list without a mask."""
    if mask is None:
        return []
    return [xp.broadcast_to(widened(mask), (*query.shape[:-1], key.shape[-2]))]


def _query_blocks(query: Any, key: Any, mask: Any, is_causal: bool) -> Iterator[tuple[Any, Any, int | None]]:
    """Yield blocks of queries, each with its part of the mask and, if causal, the index of its first query."""
    axis, nbytes = query.ndim - 2, _scores_bytes(query, key)
    masks = repeat(None) if mask is None else blocks(mask, axis, nbytes)
    start = 0
    for part, part_of_mask in zip(blocks(query, axis, nbytes), masks, strict=False):
        yield part, part_of_mask, start if is_causal else None
        start += part.shape[axis]


@attend_in_blocks.joint_derivative
def _attend_in_blocks_grads(
    F: Any, grad: Any, needs: Any, query: Any, key: Any, value: Any, attn_mask: Any, scale: float, is_causal: bool
) -> Any:
    if F.xp is None:
        return (*_recorded_grads(F, grad, needs, query, key, value, scale, is_causal, attn_mask), None)
    xp = F.xp

    def grads(grad: Any, query: Any, key: Any, value: Any, mask: Any = None) -> tuple[Any, Any, Any]:
        by_query, by_key, by_value = [], 0, 0
        axis, nbytes = query.ndim - 2, _scores_bytes(query, key)
        parts = zip(blocks(grad, axis, nbytes), _query_blocks(query, key, mask, is_causal), strict=True)
        for part_of_grad, (part, part_of_mask, start) in parts:
            weights = _weights(xp, part, key, scale, start, part_of_mask)
            slopes = _attend_fused(xp, part_of_grad, part, key, value, scale, weights)
            by_query.append(slopes[0])
            by_key, by_value = by_key + slopes[1], by_value + slopes[2]
        return xp.concatenate(by_query, axis=axis), by_key, by_value

    arrays = [widened(grad), widened(query), widened(key), widened(value), *_full_masks(xp, query, key, attn_mask)]
    with reserved(6 * _block_bytes(query, key)):
        slopes = map_in_blocks(xp, grads, arrays, len(query.shape) - 2, _scores_bytes(query, key))
    return (*slopes, None)
