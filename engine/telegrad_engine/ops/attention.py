"""Looking up rows, and attending to them."""

from __future__ import annotations

import math
from typing import Any

from ..cases import I, M, T, case
from ..dtypes import from_numpy, int32, int64
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidOperation, InvalidValue, ShapeMismatch
from ..params import Array, Bool, Number, OptionalInt, OptionalNumber
from ..registry import composite, op
from ..specs import Spec

# Embedding -----------------------------------------------------------------------------------------------


def _embedding_rule(input: Any, weight: Any, padding_idx: int | None = None) -> Spec:
    if len(weight.shape) == 2 and padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise InvalidValue("Padding_idx must be within num_embeddings")
    if len(weight.shape) != 2:
        raise ShapeMismatch("'weight' must be 2-D")
    if input.dtype not in (int64.numpy, int32.numpy):
        raise DTypeMismatch(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"torch.{from_numpy(input.dtype).kernel_name}Tensor instead (while checking arguments for embedding)"
        )
    return Spec((*input.shape, weight.shape[1]), weight.dtype)


@op(
    _embedding_rule,
    namespace="torch.nn.functional",
    cases=[
        case(I(4, high=3), T(3, 2)),
        case(I(2, 3, high=3), T(3, 2), padding_idx=-1),
        case(T(4, values=[0, 1, 1, 2], dtype="int64"), T(3, 2), 1),
        case(T(values=1, dtype="int64"), T(3, 2)),
        case(T(2, values=[0, 1], dtype="int32"), T(3, 2)),
        case(I(0, 2, high=3), T(3, 2, constant=True)),
        case(I(4, high=3), T(3)),
        case(T(2, values=[0.0, 1.0], dtype="float32", constant=True), T(3, 2)),
    ],
)
def embedding(xp: Any, input: Array, weight: Array, padding_idx: OptionalInt = None) -> Any:
    """The rows of ``weight`` that ``input`` numbers; the row ``padding_idx`` gets no gradient."""
    if not xp.all(xp.logical_and(input >= 0, input < weight.shape[0])):
        raise IndexOutOfRange("index out of range in self")
    return weight[input]


def _embedding_grad(F: Any, grad: Any, input: Any, weight_shape: Any, padding_idx: int | None) -> Any:
    if padding_idx is not None:
        grad = F.where(F.unsqueeze(F.eq(input, padding_idx % weight_shape[0]), -1), 0.0, grad)
    rows = F.reshape(grad, (math.prod(input.shape), weight_shape[1]))
    return F.index_put(F.new_zeros(rows, weight_shape), (F.reshape(input, (-1,)),), rows, True)


embedding.derivative(weight=_embedding_grad)

# Attention -----------------------------------------------------------------------------------------------


def _c_name(x: Any) -> str:
    name: str = x.dtype.name
    return {"float32": "float", "float64": "double", "int64": "long int", "float16": "c10::Half"}.get(name, name)


def _check_attention(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool) -> None:
    dims = [len(x.shape) for x in (query, key, value)]
    if len({x.dtype for x in (query, key, value)}) > 1:
        raise DTypeMismatch(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{_c_name(query)} key.dtype: {_c_name(key)} and value.dtype: {_c_name(value)} instead."
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
                f"{_c_name(attn_mask)} and  query.dtype: {_c_name(query)} instead."
            )
        if is_causal:
            raise InvalidOperation(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
    if not query.is_floating_point():
        raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: float != {_c_name(query)}")
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
) -> Any:
    """``softmax(scale * query @ key.mT + mask) @ value``; a query that may see nothing gets 0 (Vaswani et al. 2017)."""
    _check_attention(query, key, value, attn_mask, dropout_p, is_causal)
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


def _masked_softmax(F: Any, scores: Any, mask: Any) -> Any:
    scores = F.where(mask, scores, -math.inf) if mask.dtype.name == "bool" else scores + mask
    # Where nothing is seen, the softmax would be 0 / 0, in the derivative too.
    unseen = F.eq(F.amax(scores, (-1,), True), -math.inf)
    return F.masked_fill(F.softmax(F.masked_fill(scores, unseen, 0.0), -1), unseen, 0.0)
