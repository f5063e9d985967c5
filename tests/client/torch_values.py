"""Values of PyTorch's databases of ops, modules and optimizers, converted for either library."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import telegrad as tg

Pairs = dict[int, tuple[Any, Any]]
"""The tensors of torch's that were converted and what they became, by the ids of the former."""


def converted(lib: Any, value: Any, pairs: Pairs | None = None) -> Any:
    """Convert a value for a library: tensors become new leaves, and one that occurs twice occurs twice again."""
    pairs = {} if pairs is None else pairs
    if torch.is_tensor(value):
        if id(value) not in pairs:
            pairs[id(value)] = value, _leaf(lib, value)
        return pairs[id(value)][1]
    if isinstance(value, dict):
        return {key: converted(lib, item, pairs) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(converted(lib, item, pairs) for item in value)
    return value if lib is torch else _ours(value)


def _leaf(lib: Any, value: Any) -> Any:
    detached = value.detach().clone()
    made = detached if lib is torch else tg.tensor(np.array(detached.resolve_neg().numpy(force=True), order="C"))
    made.requires_grad_(value.requires_grad)
    if value.is_leaf and value.grad is not None:
        made.grad = converted(lib, value.grad)
    return made


def _ours(value: Any) -> Any:
    """Telegrad's counterpart of a dtype, a device, a module, a function or options; other values are the same."""
    if isinstance(value, torch.dtype):
        return getattr(tg, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.nn.PairwiseDistance):
        return tg.nn.PairwiseDistance()
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return tg.nn.LinearCrossEntropyOptions(
            value.allow_retain_graph, value.batch_chunk_size, value.chunking_method, value.acc_policy
        )
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        attention = value.self_attn
        return tg.nn.TransformerEncoderLayer(
            *(attention.embed_dim, attention.num_heads, value.linear1.out_features, value.dropout.p),
            norm_first=value.norm_first,
            batch_first=attention.batch_first,
            bias=attention.in_proj_bias is not None,
            activation=_ours(value.activation),
        )
    for function in ("gelu", "relu"):
        if value is getattr(torch.nn.functional, function):
            return getattr(tg.nn.functional, function)
    return value
