"""Attention."""

from __future__ import annotations

import math
from typing import Any

from ..cases import M, T, case
from ..dtypes import bool_, widened
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..params import Array, Bool, Number, OptionalNumber
from ..registry import composite, op
from ..specs import Spec, check_keeps_shape, wrap_dim
from .nn import row_sums


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
        if is_causal:
            raise InvalidOperation(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
    if not query.is_floating_point():
        raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: float != {query.dtype.c_name}")
    if not 0 <= dropout_p <= 1:
        raise InvalidOperation(f"dropout probability has to be between 0 and 1, but got {dropout_p:g}")


@composite(
    namespace="torch.nn.functional",
    cases=[
        case(T(2, 3, 4), T(2, 5, 4), T(2, 5, 6)),
        case(T(3, 4), T(5, 4), T(5, 6), scale=0.3),
        case(T(3, 4), T(5, 4), T(5, 6), is_causal=True),
        case(T(2, 5, 4), T(2, 3, 4), T(2, 3, 6), is_causal=True),
        case(T(2, 1, 3, 4), T(1, 4, 5, 4), T(2, 4, 5, 6)),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5)),
        case(T(2, 3, 4), T(2, 5, 4), T(2, 5, 6), M(3, 5)),
        case(T(2, 4), T(3, 4), T(3, 6), T(2, 3, values=[[0, 0, 0], [1, 0, 1]], dtype="bool")),
        case(*[T(*shape, dtype="float32") for shape in ((0, 4), (5, 4), (5, 6))]),
        case(T(2, 4, 3, 4), T(2, 2, 5, 4), T(2, 2, 5, 6), enable_gqa=True),
        case(T(4, 3, 4), T(2, 5, 4), T(1, 5, 6), None, 0.0, True, enable_gqa=True),
        case(T(4, 3, 4), T(3, 5, 4), T(3, 5, 6), enable_gqa=True),
        case(*[T(*shape, dtype="float32") for shape in ((3, 4), (5, 4), (5, 6))], enable_gqa=True),
        case(T(3, 4), T(5, 3), T(5, 6)),
        case(T(4), T(4), T(4)),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5), is_causal=True),
        case(T(3, 4), T(5, 4), T(5, 6), T(3, 5, dtype="int64")),
    ],
)
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

    With ``enable_gqa`` the heads (dim -3) of ``query`` share those of ``key`` and ``value`` in groups.
    """
    _check_attention(query, key, value, attn_mask, dropout_p, is_causal)
    if enable_gqa:
        key, value = (_each_head(F, x, query.shape[wrap_dim(-3, query.dim())]) for x in (key, value))
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    if attn_mask is None and not dropout_p and _is_regular(query, key, value):
        return F.attend(query, key, value, factor, is_causal)
    scores = F.matmul(query * factor, F.transpose(key, -2, -1))
    if attn_mask is not None:
        check_keeps_shape(scores.shape, attn_mask.shape)
        weights = _masked_softmax(F, scores, attn_mask)
    else:
        weights = F.softmax(_seen(F, scores) if is_causal else scores, -1)
    return F.matmul(F.dropout(weights, dropout_p), value)


def _seen(F: Any, scores: Any) -> Any:
    """The scores with minus infinity where a key comes after the query."""
    return F.where(F.tril(F.ones(tuple(scores.shape[-2:]), dtype="bool")), scores, -math.inf)


def _each_head(F: Any, x: Any, heads: int) -> Any:
    """``x`` with each of its heads repeated for the queries' heads that share it."""
    own = x.shape[wrap_dim(-3, x.dim())]
    if heads % max(own, 1):
        raise InvalidOperation("Number of heads in key and value must divide the number of heads in ")
    return F.repeat_interleave(x, heads // max(own, 1), -3)


def _masked_softmax(F: Any, scores: Any, mask: Any) -> Any:
    scores = F.where(mask, scores, -math.inf) if mask.dtype.name == "bool" else scores + mask
    # Where nothing is seen, the softmax would be 0 / 0, in the derivative too.
    unseen = F.eq(F.amax(scores, (-1,), True), -math.inf)
    return F.masked_fill(F.softmax(F.masked_fill(scores, unseen, 0.0), -1), unseen, 0.0)


# The commonest, in one step ------------------------------------------------------------------------------


def _is_regular(query: Any, key: Any, value: Any) -> bool:
    """Whether ``attend`` takes them: nothing is empty, broadcast or amiss."""
    *batch, _, width = query.shape
    *also, length, width_of_key = key.shape
    return (
        batch == also
        and width == width_of_key
        and (*batch, length) == tuple(value.shape[:-1])
        and 0 not in (*query.shape, length)
    )


def _attend_rule(query: Any, key: Any, value: Any, scale: float, is_causal: bool) -> Spec:
    return Spec((*query.shape[:-1], value.shape[-1]), query.dtype)


def _weights_rule(query: Any, key: Any, value: Any, scale: float, is_causal: bool) -> list[Spec]:
    return [Spec((*query.shape[:-1], key.shape[-2]), query.dtype)]


def _attend_node(node: Any) -> str:
    return {2: "MmBackward0", 4: "ScaledDotProductFlashAttentionForCpuBackward0"}.get(
        len(node.shape), "UnsafeViewBackward0"
    )


@op(
    _attend_rule,
    internal=True,
    method=False,
    node=_attend_node,
    hidden=("weights",),
    hidden_rule=_weights_rule,
)
def attend(xp: Any, query: Array, key: Array, value: Array, scale: Number, is_causal: Bool) -> Any:
    """``softmax(scale * query @ key.mT) @ value``, all of one batch shape; each query sees the keys up to its own."""
    query, key, value = widened(query), widened(key), widened(value)
    scores = xp.affine(xp.matmul(query, xp.swapaxes(key, -1, -2)), scale)
    if is_causal:
        seen = xp.tril(xp.ones(scores.shape[-2:], bool_.numpy))
        scores = xp.where(seen, scores, xp.asarray(-math.inf, scores.dtype))
    weights = xp.softmax(scores, -1)
    return xp.matmul_like(query, weights, value), weights


@attend.joint_derivative
def _attend_grads(
    F: Any,
    grad: Any,
    needs: Any,
    query: Any,
    key: Any,
    value: Any,
    scale: float,
    is_causal: bool,
    weights: Any,
) -> Any:
    if F.xp is not None:
        return _attend_fused(F.xp, widened(grad), widened(query), widened(key), widened(value), scale, weights)
    scores = F.matmul(query * scale, F.transpose(key, -2, -1))
    weights = F.softmax(_seen(F, scores) if is_causal else scores, -1)
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
