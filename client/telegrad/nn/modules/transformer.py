"""Transformers (Vaswani et al. 2017): encoder, decoder, and both combined."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

from telegrad_engine.errors import InvalidOperation

from ...tensor.handle import Tensor, functions
from .. import functional as F
from .. import init
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm

Mask = Tensor | None
"""A mask, as for MultiheadAttention, or None."""


class _TransformerLayer(Module):
    """Attention blocks and a feed-forward block, each with dropout, a residual connection and its own norm.

    The blocks are methods with torch's names, so that subclasses can override them.
    """

    attentions: ClassVar[tuple[str, ...]]
    """The names of the attention modules."""
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

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
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **kind))
        self.linear1 = Linear(d_model, dim_feedforward, bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **kind)
        self.norm_first = norm_first
        blocks = range(1, len(self.attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **kind))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _add(self, x: Tensor, norm: Module, block: Callable[..., Tensor], *args: Any) -> Tensor:
        """Apply a block and its residual connection, with the norm before or after."""
        return x + block(norm(x), *args) if self.norm_first else norm(x + block(x, *args))

    def _sa_block(self, x: Tensor, attn_mask: Mask, key_padding_mask: Mask, is_causal: bool = False) -> Tensor:
        """Apply the self-attention block."""
        attended = self.self_attn(x, x, x, key_padding_mask, False, attn_mask, is_causal=is_causal)
        return cast(Tensor, self.dropout1(attended[0]))

    def _ff_block(self, x: Tensor) -> Tensor:
        """Apply the feed-forward block."""
        last_dropout = getattr(self, f"dropout{len(self.attentions) + 1}")
        return cast(Tensor, last_dropout(self.linear2(self.dropout(self.activation(self.linear1(x))))))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward block.

    src is (L, N, d_model), or (N, L, d_model) with ``batch_first``, or (L, d_model). With ``norm_first`` each block
    normalizes its input instead of its result; ``activation`` is "relu", "gelu" or a function.

    Args:
        d_model: The number of features.
        nhead: The number of heads, which divides ``d_model``.
        dim_feedforward: The number of features between the two layers of the feed-forward block.
        dropout: The probability of dropout, in training.
        activation: "relu", "gelu" or a function of a tensor.
        layer_norm_eps: A small number that is added to the variance in layer normalization.
        batch_first: Whether the batch is the first dimension of inputs and results.
        norm_first: Whether each block normalizes its input instead of its result.
        bias: Whether linear layers and normalizations have biases.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> tg.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)(tg.ones(5, 1, 8)).shape
        telegrad.Size([5, 1, 8])
    """

    attentions = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Mask = None, src_key_padding_mask: Mask = None, is_causal: bool = False
    ) -> Tensor:
        """Return the encoded sequence, with the shape of ``src``; the masks are those of MultiheadAttention."""
        x = self._add(src, self.norm1, self._sa_block, src_mask, src_key_padding_mask, is_causal)
        return self._add(x, self.norm2, self._ff_block)


class TransformerEncoder(Module):
    """``num_layers`` copies of a layer in sequence, then ``norm`` if given.

    ``enable_nested_tensor`` and ``mask_check`` have no effect: padded positions are computed like all others, whereas
    torch's inference path returns 0 there.

    ``encoder_layer`` is copied; ``forward`` takes ``src``, and optionally masks.

    Examples:
        >>> layer = tg.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)
        >>> tg.nn.TransformerEncoder(layer, num_layers=2)(tg.ones(5, 1, 8)).shape
        telegrad.Size([5, 1, 8])
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
        self, src: Tensor, mask: Mask = None, src_key_padding_mask: Mask = None, is_causal: bool | None = None
    ) -> Tensor:
        """Return the encoded sequence, shaped like ``src``; all layers use the same masks, as in MultiheadAttention."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to ``memory`` and a feed-forward block.

    tgt is (T, N, d_model) and memory (S, N, d_model), with N first for ``batch_first``, or both without N. The options
    are those of :class:`TransformerEncoderLayer`.

    The arguments are those of ``TransformerEncoderLayer``.

    Examples:
        >>> tg.nn.TransformerDecoderLayer(8, 2, dim_feedforward=16)(tg.ones(3, 1, 8), tg.ones(5, 1, 8)).shape
        telegrad.Size([3, 1, 8])
    """

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoded sequence, with the shape of ``tgt``; the masks are those of MultiheadAttention."""
        x = self._add(tgt, self.norm1, self._sa_block, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._add(x, self.norm2, self._mha_block, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self._add(x, self.norm3, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Mask, key_padding_mask: Mask, is_causal: bool = False
    ) -> Tensor:
        """Apply attention to the encoder's output."""
        attended = self.multihead_attn(x, mem, mem, key_padding_mask, False, attn_mask, is_causal=is_causal)
        return cast(Tensor, self.dropout2(attended[0]))


class TransformerDecoder(Module):
    """``num_layers`` copies of a layer in sequence, then ``norm`` if given.

    ``decoder_layer`` is copied; ``forward`` takes ``tgt`` and ``memory``, as the layer does.

    Examples:
        >>> layer = tg.nn.TransformerDecoderLayer(8, 2, dim_feedforward=16)
        >>> tg.nn.TransformerDecoder(layer, num_layers=2)(tg.ones(3, 1, 8), tg.ones(5, 1, 8)).shape
        telegrad.Size([3, 1, 8])
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoded sequence, shaped like ``tgt``; all layers use the same masks, as in MultiheadAttention."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder for ``src`` and a decoder for ``tgt`` that attends to the encoder's output.

    src is (S, N, d_model) and tgt (T, N, d_model), with N first for ``batch_first``, or both without N. Matrices are
    initialized as in Glorot and Bengio 2010. ``custom_encoder`` and ``custom_decoder`` replace the standard ones.

    Args:
        d_model: The number of features.
        nhead: The number of heads, which divides ``d_model``.
        num_encoder_layers: The number of layers of the encoder.
        num_decoder_layers: The number of layers of the decoder.
        dim_feedforward: The number of features between the two layers of the feed-forward block.
        dropout: The probability of dropout in each layer, in training.
        activation: "relu", "gelu" or a function of a tensor.
        custom_encoder: A module in place of the encoder.
        custom_decoder: A module in place of the decoder.
        layer_norm_eps: A small number that is added to the variance in layer normalization.
        batch_first: Whether the batch is the first dimension of inputs and results.
        norm_first: Whether each block normalizes its input instead of its result.
        bias: Whether linear layers and normalizations have biases.
        device: The device of the parameters: only that of the session.
        dtype: The dtype of the parameters; None is the default dtype.

    Examples:
        >>> model = tg.nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
        >>> model(tg.ones(5, 1, 8), tg.ones(3, 1, 8)).shape
        telegrad.Size([3, 1, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        options: dict[str, Any] = {"dropout": dropout, "activation": activation, "layer_norm_eps": layer_norm_eps}
        options |= {"batch_first": batch_first, "norm_first": norm_first, "bias": bias, **kind}
        sizes = (d_model, nhead, dim_feedforward)
        self.encoder = custom_encoder
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*sizes, **options), num_encoder_layers, norm)
        self.decoder = custom_decoder
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*sizes, **options), num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Mask = None,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoded sequence, shaped like ``tgt``. Raises RuntimeError if batch or feature sizes differ."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise InvalidOperation("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise InvalidOperation("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        decoded: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return decoded

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return the causal mask (sz, sz): minus infinity above the diagonal, 0 elsewhere."""
        return functions.full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
    if activation not in known:
        raise InvalidOperation(f"activation should be relu/gelu, not {activation}")
    return known[activation]
