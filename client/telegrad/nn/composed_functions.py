"""The functions of ``nn.functional`` composed of ops: losses, fractional max pooling and multi-head attention."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from telegrad_engine.dtypes import int64
from telegrad_engine.errors import InvalidChoice, InvalidOperation, InvalidValue
from telegrad_engine.ops.nn.regression_loss import triplet_loss
from telegrad_engine.shapes import torch_size

from ..tensor.handle import OPS, Tensor, functions
from .modules.module import expanded


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return ``max(d(anchor, positive) - d(anchor, negative) + margin, 0)`` for a distance ``d``.

    ``distance_function`` is the Euclidean distance by default. With ``swap``, the distance from positive to negative
    replaces the distance from anchor to negative where it is smaller. Raises ValueError unless ``margin`` is positive,
    RuntimeError for different numbers of dimensions.

    ``reduction`` is "mean", "sum" or "none". The tensors are (N, D) or (D).

    Examples:
        >>> anchor, positive, negative = tg.tensor([[0.0]]), tg.tensor([[1.0]]), tg.tensor([[1.5]])
        >>> tg.nn.functional.triplet_margin_with_distance_loss(anchor, positive, negative)
        tensor(0.5000)
    """
    distance: Any = distance_function or functions.pairwise_distance
    loss: Tensor = triplet_loss(functions, (anchor, positive, negative), distance, margin, swap, reduction)
    return loss


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """torch's chunking options for ``linear_cross_entropy``, which are validated and have no effect.

    ``allow_retain_graph``, ``batch_chunk_size``, ``chunking_method``, ``acc_policy`` and ``acc_dtype`` are as in
    torch. Raises ValueError for one that torch refuses.

    Examples:
        >>> tg.nn.LinearCrossEntropyOptions(batch_chunk_size=16).batch_chunk_size
        16
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise InvalidValue(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise InvalidValue(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise InvalidValue(f"batch_chunk_size must be positive int or None, got {size!r}")


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """Return the cross entropy between ``linear(input, linear_weight, linear_bias)`` and ``target``.

    input (N, in) or (in), linear_weight (C, …, in), target (N, …) of class indices or (N, C, …) of probabilities.
    Raises RuntimeError for incompatible shapes.

    The other arguments are those of ``cross_entropy``; ``options`` has no effect.

    Examples:
        >>> input, weight = tg.ones(2, 4), tg.zeros(3, 4)
        >>> tg.nn.functional.linear_cross_entropy(input, weight, tg.tensor([0, 2]))
        tensor(1.0986)
    """
    _check_linear(input, linear_weight, linear_bias)
    classes, *places = linear_weight.shape[:-1]
    shape = (*input.shape[:-1], classes, *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise InvalidOperation("ignore_index cannot be specified when target contains probabilities")
    indices = target.dtype.name == "int64"
    if options is not None and (
        places or reduction not in ("mean", "sum", "none") or label_smoothing != 0.0 or not indices
    ):
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            f"label_smoothing == 0, target.dtype == int64, out_features == (). Got reduction={reduction!r}, "
            f"label_smoothing={label_smoothing}, target.dtype={target.dtype}, out_features={tuple(places)}",
            stacklevel=2,
        )
    flat = None if linear_bias is None else linear_bias.reshape(-1)
    logits = OPS.linear(input, linear_weight.reshape(-1, input.shape[-1]), flat).reshape(shape)
    loss: Tensor = OPS.cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if input.dim() not in (1, 2):
        raise InvalidOperation(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if weight.dim() < 2:
        raise InvalidOperation(f"expected linear_weight with dimensionality at least 2, got {weight.dim()}")
    if input.shape[-1] != weight.shape[-1]:
        raise InvalidOperation(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise InvalidOperation(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")
    if weight.dim() > 2 and input.dim() == 1:
        raise InvalidOperation(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )


# Fractional max pooling (Graham 2014) -------------------------------------------------------------


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return the maxima of pseudorandom windows of ``input`` (N, C, H, W) or (C, H, W).

    The result has ``output_size``, or ``output_ratio`` times the input's size; with ``return_indices`` it is a pair of
    values and int64 indices. ``_random_samples`` (N, C, 2), in [0, 1), determine the windows. Raises ValueError
    without a size, RuntimeError if the windows do not fit.

    ``kernel_size`` is the size of a window.

    Examples:
        >>> tg.nn.functional.fractional_max_pool2d(tg.ones(1, 3, 8, 8), 2, output_size=3).shape
        telegrad.Size([1, 3, 3, 3])
    """
    result = _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """``fractional_max_pool2d`` for volumes (N, C, D, H, W) or (C, D, H, W), with ``_random_samples`` (N, C, 3).

    The other arguments are those of ``fractional_max_pool2d``.

    Examples:
        >>> tg.nn.functional.fractional_max_pool3d(tg.ones(1, 3, 8, 8, 8), 2, output_size=3).shape
        telegrad.Size([1, 3, 3, 3, 3])
    """
    result = _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def _fractional_max_pool(
    dims: int, input: Tensor, kernel_size: Any, output_size: Any, ratio: Any, samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{dims}d"
    if output_size is None and ratio is None:
        raise InvalidValue(f"{name} requires specifying either an output_size or an output_ratio")
    if input.dim() not in (dims + 1, dims + 2):
        kind = f"{dims + 1}D or {dims + 2}D"
        raise InvalidOperation(f"{name}(): Expected {kind} tensor, but got: {list(input.shape)}")
    if input.dim() == dims + 1:
        values, indices = _fractional_max_pool(dims, input.unsqueeze(0), kernel_size, output_size, ratio, samples)
        return values.squeeze(0), indices.squeeze(0)
    space, kernel = tuple(input.shape[2:]), expanded(kernel_size, dims)
    if output_size is None:
        output_size = tuple(int(size * part) for size, part in zip(space, expanded(ratio, dims), strict=True))
    output = expanded(output_size, dims)
    if samples is None:
        samples = functions.rand(input.shape[0], input.shape[1], dims, dtype=input.dtype)
    _check_windows(name, space, kernel, output)
    return _pooled_at(input, samples[: input.shape[0]], space, kernel, output)


def _check_windows(name: str, space: Sequence[int], kernel: Sequence[int], output: Sequence[int]) -> None:
    """Raise RuntimeError for the first axis that is too short, with torch's order and bounds."""
    of_volume = len(space) == 3
    axes = ("time", "height", "width") if of_volume else ("height", "width")
    for axis in (0, 2, 1) if of_volume else (0, 1):
        if output[axis] + kernel[axis] - 1 > space[axis] - of_volume:
            raise InvalidOperation(
                f"{name}{'_out' * of_volume}(): pool {axes[axis]} {kernel[axis]} too large relative to input "
                f"{axes[axis]} {space[axis]}"
            )


def _pooled_at(
    input: Tensor, samples: Tensor, space: tuple[int, ...], kernel: Sequence[int], output: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the maxima of the windows that the samples determine, and their indices in the flattened space."""
    dims = len(space)
    indices_in: Any = None
    for axis in range(dims):
        # torch orders the samples of an image as (width, height), those of a volume as (depth, height, width).
        own = samples[:, :, dims - 1 - axis if dims == 2 else axis]
        starts = _starts(own, space[axis], kernel[axis], output[axis])
        inside = functions.arange(kernel[axis])
        along = starts.unsqueeze(-1) + inside  # (N, C, out, kernel)
        shape = [along.shape[0], along.shape[1], *[1] * (2 * dims)]
        shape[2 + axis], shape[2 + dims + axis] = output[axis], kernel[axis]
        part = along.reshape(shape) * math.prod(space[axis + 1 :])
        indices_in = part if indices_in is None else indices_in + part
    n, c = input.shape[:2]
    flat = indices_in.reshape(n, c, -1)
    found = input.reshape(n, c, -1).gather(2, flat).reshape(n, c, *output, -1)
    values, best = found.max(-1)
    indices = flat.reshape(n, c, *output, -1).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return values, indices


def _starts(samples: Tensor, size: int, window: int, out: int) -> Tensor:
    """Return the windows' first indices (N, C, out), a pseudorandom sequence; the last window ends at the border."""
    last: Tensor = functions.full((*samples.shape, 1), size - window, dtype="int64")
    if out == 1:
        return last
    step = (size - window) / (out - 1)
    own = samples.unsqueeze(-1)
    counted = functions.arange(out - 1).to(samples.dtype)
    starts = ((counted + own) * step).trunc() - (own * step).trunc()
    return functions.cat([starts.to(int64), last], -1)


# Multi-head attention as a function of its weights ------------------------------------------------


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the attention output (L, N, E) and the weights (N, L, S), as :class:`MultiheadAttention` does.

    ``static_k`` and ``static_v`` (N · heads, S, E / heads) replace the projected keys and values. Raises
    AssertionError or RuntimeError for incompatible shapes.

    ``embed_dim_to_check`` is E, and ``in_proj_weight`` (3E, E), ``in_proj_bias`` (3E), ``out_proj_weight`` (E, E) and
    ``out_proj_bias`` (E) are the projections; with ``use_separate_proj_weight``, ``q_proj_weight``, ``k_proj_weight``
    and ``v_proj_weight`` replace the first. ``bias_k`` and ``bias_v`` (1, 1, E) are added to each sequence,
    ``dropout_p`` is the probability of dropout if ``training``, ``key_padding_mask`` (N, S) and ``attn_mask`` (L, S)
    are the masks, ``is_causal`` says that the latter is causal, and ``need_weights`` and ``average_attn_weights`` say
    which weights are returned.

    Examples:
        >>> x, eye = tg.ones(5, 1, 4), tg.eye(4)
        >>> result, weights = tg.nn.functional.multi_head_attention_forward(
        ...     x, x, x, 4, 2, tg.ones(12, 4), None, None, None, False, 0.0, eye, None
        ... )
        >>> result.shape, weights.shape
        (telegrad.Size([5, 1, 4]), telegrad.Size([1, 5, 5]))
    """
    batched = query.dim() == 3
    _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        alike = query is key and key is value
        query = query.unsqueeze(1)
        key, value = (query, query) if alike else (key.unsqueeze(1), value.unsqueeze(1))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed_dim = query.shape
    if is_causal and attn_mask is None:
        raise InvalidOperation(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if embed_dim != embed_dim_to_check:
        raise InvalidChoice(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    if embed_dim % num_heads:
        raise InvalidChoice(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    _check_sizes(query, key, value, key_padding_mask, attn_mask, num_heads, use_separate_proj_weight)
    hint = is_causal and key_padding_mask is None and not need_weights
    mask, padding = None if hint else _as_added(attn_mask, query), _as_added(key_padding_mask, query)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, separate, in_proj_bias)
    by_head = [x.reshape(*x.shape[:2], num_heads, embed_dim // num_heads) for x in (q, k, v)]
    heads = [x.permute(1, 2, 0, 3) for x in by_head]  # (N, heads, L, E / heads)
    for place, static in ((1, static_k), (2, static_v)):
        if static is not None:
            for dim, wanted in ((0, batch * num_heads), (2, embed_dim // num_heads)):
                if static.shape[dim] != wanted:
                    name = f"static_{' kv'[place]}.size({dim})"
                    raise InvalidChoice(f"expecting {name} of {wanted}, but got {static.shape[dim]}")
            heads[place] = static.reshape(batch, num_heads, static.shape[1], embed_dim // num_heads)
    for extra in _extra_keys(bias_k, bias_v, add_zero_attn, heads[1], static_k, static_v):
        heads[1:] = [functions.cat([x, more], 2) for x, more in zip(heads[1:], extra, strict=True)]
        mask, padding = (None if x is None else functions.constant_pad_nd(x, (0, 1)) for x in (mask, padding))
    p = dropout_p if training else 0.0
    result, weights = _attended(heads[0], heads[1], heads[2], _merged(mask, padding, num_heads), p, need_weights, hint)
    result = OPS.linear(result.permute(2, 0, 1, 3).reshape(length, batch, embed_dim), out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if batched:
        return result, weights
    return result.squeeze(1), None if weights is None else weights.squeeze(0)


def _check_sizes(
    query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, num_heads: int, separate: bool
) -> None:
    if not separate and tuple(key.shape) != tuple(value.shape):
        raise InvalidChoice(f"key shape {torch_size(key.shape)} does not match value shape {torch_size(value.shape)}")
    if separate and tuple(key.shape[:2]) != tuple(value.shape[:2]):
        dims = [torch_size(x.shape[:2]) for x in (key, value)]
        raise InvalidChoice(f"key's sequence and batch dims {dims[0]} do not match value's {dims[1]}")
    length, batch, keys = query.shape[0], query.shape[1], key.shape[0]
    for name, given in (("key_padding_mask", padding), ("attn_mask", mask)):
        if given is not None and not (given.dtype.name == "bool" or given.is_floating_point()):
            raise InvalidChoice(f"only bool and floating types of {name} are supported")
    if mask is not None:
        wanted = (length, keys) if mask.dim() == 2 else (batch * num_heads, length, keys)
        if tuple(mask.shape) != wanted:
            raise InvalidOperation(
                f"The shape of the {mask.dim()}D attn_mask is {torch_size(mask.shape)}, but should be {wanted}."
            )
    for dim, size in enumerate((batch, keys) if padding is not None else ()):
        if padding.shape[dim] != size:
            raise InvalidChoice(f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {padding.shape[dim]}")


def _projected(query: Tensor, key: Tensor, value: Tensor, packed: Any, separate: Any, bias: Tensor | None) -> Any:
    """Return the projected queries, keys and values, with one product if all three come from the same tensor."""
    if separate is None:
        if packed is None:
            raise InvalidChoice("use_separate_proj_weight is False but in_proj_weight is None")
        if query is key and key is value:
            return OPS.linear(query, packed, bias).chunk(3, -1)
        separate = packed.chunk(3)
    for name, weight in zip("qkv", separate, strict=True):
        if weight is None:
            raise InvalidChoice(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    biases: Any = (None,) * 3 if bias is None else bias.chunk(3)
    return [OPS.linear(*each) for each in zip((query, key, value), separate, biases, strict=True)]


def _extra_keys(
    bias_k: Tensor | None, bias_v: Tensor | None, zero: bool, k: Tensor, static_k: Any, static_v: Any
) -> list[tuple[Tensor, Tensor]]:
    """Return the learned and the zero key-value pairs, (N, heads, 1, E / heads) each, which are never masked."""
    batch, heads, _, size = k.shape
    extra: list[tuple[Tensor, Tensor]] = []
    if (bias_k is None) != (bias_v is None):
        there, absent = ("bias_k", "bias_v") if bias_v is None else ("bias_v", "bias_k")
        raise InvalidChoice(f"{there} is set but {absent} is None")
    if bias_k is not None and bias_v is not None:
        for name, static in (("key", static_k), ("value", static_v)):
            if static is not None:
                raise InvalidChoice(f"bias cannot be added to static {name}.")
        both = [bias.reshape(1, heads, 1, size).expand(batch, heads, 1, size) for bias in (bias_k, bias_v)]
        extra.append((both[0], both[1]))
    if zero:
        zeros = functions.zeros((batch, heads, 1, size), dtype=k.dtype)
        extra.append((zeros, zeros))
    return extra


def _merged(mask: Tensor | None, padding: Tensor | None, heads: int) -> Tensor | None:
    """Combine both masks into one that broadcasts with scores (N, heads, L, S)."""
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(-1, heads, *mask.shape[1:])
    if padding is None:
        return mask
    padding = padding.reshape(padding.shape[0], 1, 1, padding.shape[1])
    return padding if mask is None else mask + padding


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, need_weights: bool, causal: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        return OPS.scaled_dot_product_attention(q, k, v, mask, p, causal), None
    scores = functions.matmul(q * math.sqrt(1.0 / q.shape[3]), k.transpose(-2, -1))
    weights = functions.softmax(scores if mask is None else scores + mask, -1)
    if p:
        weights = OPS.dropout(weights, p, True)
    return functions.matmul(weights, v), weights


def _as_added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return an additive mask for the scores: minus infinity where a bool mask is True."""
    if mask is None or mask.dtype.name != "bool":
        return mask
    return functions.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


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
            raise InvalidChoice(f"Expected `attn_mask` shape to be {wanted} but got {torch_size(mask.shape)}")
