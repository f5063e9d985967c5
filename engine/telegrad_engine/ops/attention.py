"""Attention."""

from __future__ import annotations

import math
from typing import Any

from ..cases import M, T, case
from ..errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ..params import Array, Bool, Number, OptionalNumber
from ..registry import composite
from ..specs import wrap_dim


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
    scores = F.matmul(query * factor, F.transpose(key, -2, -1))
    if is_causal:
        seen = F.tril(F.ones(tuple(scores.shape[-2:]), dtype="bool"))
        weights = F.softmax(F.where(seen, scores, -math.inf), -1)
    elif attn_mask is not None:
        weights = _masked_softmax(F, scores, attn_mask)
    else:
        weights = F.softmax(scores, -1)
    return F.matmul(F.dropout(weights, dropout_p), value)


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
