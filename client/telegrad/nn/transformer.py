"""The encoder of a transformer (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import InvalidOperation

from ..tensor import Tensor
from . import functional as F
from .attention import MultiheadAttention
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm


class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself, then two linear layers, each added to its input and normalised.

    src is (L, N, d_model), or (N, L, d_model) with ``batch_first``, or (L, d_model); ``norm_first`` normalises before
    instead of after; ``activation`` is "relu", "gelu" or a function.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **kind)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Of ``src``'s shape; the masks are those of MultiheadAttention."""

        def attend(x: Tensor) -> Tensor:
            seen = {"attn_mask": src_mask, "key_padding_mask": src_key_padding_mask, "is_causal": is_causal}
            attended: Tensor = self.self_attn(x, x, x, need_weights=False, **seen)[0]
            thinned: Tensor = self.dropout1(attended)
            return thinned

        if self.norm_first:
            attended = src + attend(self.norm1(src))
            result: Tensor = attended + self._feed_forward(self.norm2(attended))
        else:
            attended = self.norm1(src + attend(src))
            result = self.norm2(attended + self._feed_forward(attended))
        return result

    def _feed_forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return fed


class TransformerEncoder(Module):
    """``num_layers`` copies of a layer one after the other, then ``norm`` if given.

    ``enable_nested_tensor`` and ``mask_check`` are torch's, about a faster way for padded input that there is none of
    here: the result at padded places is what the layers compute, not 0.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Of ``src``'s shape; the masks are those of MultiheadAttention, for all layers."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
    if activation not in known:
        raise InvalidOperation(f"activation should be relu/gelu, not {activation}")
    return known[activation]
