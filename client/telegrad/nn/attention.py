"""Multi-head attention (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

from telegrad_engine.errors import InvalidChoice, InvalidOperation, InvalidValue
from telegrad_engine.specs import Size

from ..tensor import Tensor, functions
from . import functional as F
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under the name that torch prints for the output projection."""


class MultiheadAttention(Module):
    """``num_heads`` attentions side by side, each on ``embed_dim / num_heads`` features of projected inputs.

    query (L, N, E), key (S, N, kdim), value (S, N, vdim), or (N, L, E) and so on with ``batch_first``, or without N.
    ``add_bias_kv`` adds a learnt key and value to each sequence, ``add_zero_attn`` a zero one; ``dropout`` is of the
    attention weights. Raises ValueError for sizes that are not positive, AssertionError where heads do not divide
    ``embed_dim``.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise InvalidValue(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise InvalidChoice("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._same_dims = self.kdim == embed_dim and self.vdim == embed_dim
        kind = {"dtype": dtype, "device": device}

        def new(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(functions.empty(shape, **kind)) if wanted else None

        self.register_parameter("in_proj_weight", new(self._same_dims, 3 * embed_dim, embed_dim))
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", new(not self._same_dims, embed_dim, size))
        self.register_parameter("in_proj_bias", new(bias, 3 * embed_dim))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kind)
        self.register_parameter("bias_k", new(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", new(add_bias_kv, 1, 1, embed_dim))
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters(recurse=False):
            if name.endswith("proj_weight"):
                init.xavier_uniform_(parameter)
            elif name == "in_proj_bias":
                init.constant_(parameter, 0.0)
            else:
                init.xavier_normal_(parameter)
        if self.out_proj.bias is not None:
            init.constant_(self.out_proj.bias, 0.0)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """What each query attends to, of its shape, and the weights (N, L, S), their mean over the heads if averaged.

        ``key_padding_mask`` (N, S) and ``attn_mask``, (L, S) or (N·heads, L, S), are True where a key must not be
        seen, or are added to the scores. ``is_causal`` says that ``attn_mask`` is the causal one. Without
        ``need_weights`` the second result is None.
        """
        batched = query.dim() == 3
        _check_dims(query, key, value, key_padding_mask, attn_mask, self.num_heads)
        if not batched:
            alike = query is key and key is value
            query = query.unsqueeze(1)
            key, value = (query, query) if alike else (key.unsqueeze(1), value.unsqueeze(1))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif self.batch_first:
            alike = query is key and key is value
            query = query.transpose(0, 1)
            key, value = (query, query) if alike else (key.transpose(0, 1), value.transpose(0, 1))
        self._check_sizes(query, key, value, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise InvalidOperation(
                "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                "`generate_square_subsequent_mask` to create this mask."
            )
        hint = is_causal and key_padding_mask is None and not need_weights
        mask = None if hint else _as_added(attn_mask, query)
        q, k, v = self._projected(query, key, value)
        k, v, mask, padding = self._extended(k, v, mask, _as_added(key_padding_mask, query))
        result, weights = self._attended(q, k, v, self._merged(mask, padding), need_weights, hint)
        if not batched:
            result = result.squeeze(1)
        elif self.batch_first:
            result = result.transpose(0, 1)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        return result, weights if batched or weights is None else weights.squeeze(0)

    def _check_sizes(self, query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any) -> None:
        if query.shape[2] != self.embed_dim:
            raise InvalidChoice(f"was expecting embedding dimension of {self.embed_dim}, but got {query.shape[2]}")
        if self._same_dims and tuple(key.shape) != tuple(value.shape):
            raise InvalidChoice(f"key shape {key.shape} does not match value shape {value.shape}")
        if not self._same_dims and tuple(key.shape[:2]) != tuple(value.shape[:2]):
            raise InvalidChoice(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
        length, batch, keys = query.shape[0], query.shape[1], key.shape[0]
        for name, given in (("key_padding_mask", padding), ("attn_mask", mask)):
            if given is not None and not (given.dtype.name == "bool" or given.is_floating_point()):
                raise InvalidChoice(f"only bool and floating types of {name} are supported")
        if mask is not None:
            wanted = (length, keys) if mask.dim() == 2 else (batch * self.num_heads, length, keys)
            if tuple(mask.shape) != wanted:
                raise InvalidOperation(
                    f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {wanted}."
                )
        for dim, size in enumerate((batch, keys) if padding is not None else ()):
            if padding.shape[dim] != size:
                raise InvalidChoice(f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {padding.shape[dim]}")

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> Any:
        """Queries, keys and values; with one product where all three are of one tensor."""
        if self.in_proj_weight is not None and query is key and key is value:
            return F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases: Any = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(*each) for each in zip((query, key, value), weights, biases, strict=True)]

    def _extended(self, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None) -> Any:
        """Keys and values with the learnt and the zero ones, which every query may see."""
        batch = k.shape[1]
        for extra in self._extra_keys(k, batch):
            k, v = functions.cat([k, extra[0]]), functions.cat([v, extra[1]])
            mask = None if mask is None else F.pad(mask, (0, 1))
            padding = None if padding is None else F.pad(padding, (0, 1))
        return k, v, mask, padding

    def _extra_keys(self, k: Tensor, batch: int) -> list[tuple[Tensor, Tensor]]:
        extra: list[tuple[Tensor, Tensor]] = []
        if self.bias_k is not None and self.bias_v is not None:
            extra.append((self.bias_k.repeat(1, batch, 1), self.bias_v.repeat(1, batch, 1)))
        if self.add_zero_attn:
            zeros = functions.zeros((1, batch, self.embed_dim), dtype=k.dtype)
            extra.append((zeros, zeros))
        return extra

    def _merged(self, mask: Tensor | None, padding: Tensor | None) -> Tensor | None:
        """Both masks as one that broadcasts with scores (N, heads, L, S)."""
        if mask is not None and mask.dim() == 3:
            mask = mask.reshape(-1, self.num_heads, *mask.shape[1:])
        if padding is None:
            return mask
        padding = padding.reshape(padding.shape[0], 1, 1, padding.shape[1])
        return padding if mask is None else mask + padding

    def _attended(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool, causal: bool
    ) -> tuple[Tensor, Tensor | None]:
        length, batch, _ = q.shape
        q, k, v = (x.reshape(x.shape[0], batch, self.num_heads, self.head_dim).permute(1, 2, 0, 3) for x in (q, k, v))
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = functions.matmul(q * math.sqrt(1.0 / self.head_dim), k.transpose(-2, -1))
            weights = F.dropout(F.softmax(scores if mask is None else scores + mask, -1), p, self.training)
            heads = functions.matmul(weights, v)
        else:
            heads = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
        return self.out_proj(heads.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim)), weights


def _as_added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask as what is added to the scores: minus infinity where a bool one is True."""
    if mask is None or mask.dtype.name != "bool":
        return mask
    filled: Tensor = functions.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
    return filled


def _check_dims(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> None:
    if query.dim() not in (2, 3):
        raise InvalidChoice(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    dims = query.dim()
    kind = f"For {'batched' if dims == 3 else 'unbatched'} ({dims}-D) `query`, expected"
    if (key.dim(), value.dim()) != (dims, dims):
        raise InvalidChoice(
            f"{kind} `key` and `value` to be {dims}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != dims - 1:
        raise InvalidChoice(
            f"{kind} `key_padding_mask` to be `None` or {dims - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is None:
        return
    if mask.dim() not in (2, 3):
        raise InvalidChoice(f"{kind} `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead")
    if dims == 2 and mask.dim() == 3:
        wanted = (heads, query.shape[0], key.shape[0])
        if tuple(mask.shape) != wanted:
            raise InvalidChoice(f"Expected `attn_mask` shape to be {wanted} but got {Size(mask.shape)!r}")
