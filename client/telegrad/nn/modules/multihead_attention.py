"""Multi-head attention (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidChoice, InvalidValue

from ...tensor.handle import Tensor
from .. import init
from ..composed_functions import multi_head_attention_forward
from ..parameter import Parameter, add_parameters
from .linear import Linear
from .module import Module


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear with the class name that torch prints for the output projection."""


class MultiheadAttention(Module):
    """Attention with ``num_heads`` heads, each on ``embed_dim / num_heads`` features of the projected inputs.

    query (L, N, E), key (S, N, kdim), value (S, N, vdim), or (N, L, E) and so on with ``batch_first``, or without N.
    ``add_bias_kv`` adds a learned key and value to each sequence, ``add_zero_attn`` a zero key and value; ``dropout``
    applies to the attention weights. Raises ValueError unless the sizes are positive, AssertionError unless
    ``embed_dim`` is divisible by ``num_heads``.

    ``forward`` returns the result (L, N, E) and the weights (N, L, S), their mean over the heads.

    Args:
        embed_dim: The number of features E of queries and of the result.
        num_heads: The number of heads.
        dropout: The probability of dropout of the attention weights, in training.
        bias: Whether the projections have biases.
        add_bias_kv: Whether a learned key and value are added to each sequence.
        add_zero_attn: Whether a zero key and value are added to each sequence.
        kdim: The number of features of keys; None is ``embed_dim``.
        vdim: The number of features of values; None is ``embed_dim``.
        batch_first: Whether the batch is the first dimension of the input and of the output.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> attention = tg.nn.MultiheadAttention(8, num_heads=2, batch_first=True)
        >>> x = tg.ones(1, 5, 8)
        >>> result, weights = attention(x, x, x)
        >>> result.shape, weights.shape
        (telegrad.Size([1, 5, 8]), telegrad.Size([1, 5, 5]))
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
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
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        shapes: dict[str, tuple[int, ...]] = {
            "in_proj_weight": (3 * embed_dim, embed_dim),
            "q_proj_weight": (embed_dim, embed_dim),
            "k_proj_weight": (embed_dim, self.kdim),
            "v_proj_weight": (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,),
        }
        separate = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        absent = [*(separate if self._qkv_same_embed_dim else ["in_proj_weight"]), *([] if bias else ["in_proj_bias"])]
        add_parameters(self, shapes, device, dtype, absent)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        extra = {"bias_k": (1, 1, embed_dim), "bias_v": (1, 1, embed_dim)}
        add_parameters(self, extra, device, dtype, () if add_bias_kv else extra)
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
        """Return the attention output, with the shape of ``query``, and the weights (N, L, S) averaged over the heads.

        ``key_padding_mask`` (N, S) and ``attn_mask``, (L, S) or (N·heads, L, S), are bool masks that are True where
        attention is not allowed, or float masks that are added to the scores. ``is_causal`` says that ``attn_mask`` is
        the causal one. Without ``average_attn_weights``, the weights are (N, heads, L, S); without ``need_weights``,
        they are None.
        """
        batched = query.dim() == 3
        inputs = (query, key, value)
        if batched and self.batch_first:
            alike = query is key and key is value
            first = query.transpose(0, 1)
            inputs = (first, first, first) if alike else (first, key.transpose(0, 1), value.transpose(0, 1))
        biases = (self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn)
        result, weights = multi_head_attention_forward(
            *(*inputs, self.embed_dim, self.num_heads, self.in_proj_weight, *biases),
            *(self.dropout, self.out_proj.weight, self.out_proj.bias, self.training),
            *(key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim),
            *(self.q_proj_weight, self.k_proj_weight, self.v_proj_weight),
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (result.transpose(0, 1) if batched and self.batch_first else result), weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Merge the masks; return the result and its type: 1 for padding (N, L), 2 for (N, num_heads, L, L).

        ``query`` is (N, L, E). An attention mask alone also has type 2. Without masks, both results are None.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            padding = key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
            merged = merged + padding
        return merged, 2
