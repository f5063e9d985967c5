"""What cannot be computed by neural, loss and index ops: one call on torch and on ours, the same class and words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import telegrad_engine as tg

from . import oracle

Call = Callable[[Any], Any]

OURS = SimpleNamespace(F=tg.functions, nn=tg.functions, tensor=tg.tensor, zeros=tg.functions.zeros)
THEIRS = SimpleNamespace(F=torch, nn=torch.nn.functional, tensor=torch.tensor, zeros=torch.zeros)


def ones(t: Any, *shape: int) -> Any:
    return t.zeros(shape) + 1


def ints(t: Any, *values: int) -> Any:
    return t.tensor(list(values))


CONVOLUTIONS: dict[str, Call] = {
    "channels": lambda t: t.nn.conv2d(ones(t, 1, 3, 5, 5), ones(t, 2, 2, 3, 3)),
    "kernel larger than input": lambda t: t.nn.conv2d(ones(t, 1, 1, 2, 2), ones(t, 1, 1, 3, 3)),
    "dims": lambda t: t.nn.conv2d(ones(t, 5, 5), ones(t, 1, 1, 3, 3)),
    "bias": lambda t: t.nn.conv1d(ones(t, 1, 1, 5), ones(t, 2, 1, 3), ones(t, 3)),
    "groups": lambda t: t.nn.conv2d(ones(t, 1, 4, 5, 5), ones(t, 3, 2, 3, 3), groups=2),
    "groups zero": lambda t: t.nn.conv2d(ones(t, 1, 4, 5, 5), ones(t, 3, 2, 3, 3), groups=0),
    "stride zero": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3), stride=0),
    "stride negative": lambda t: t.nn.conv1d(ones(t, 1, 1, 5), ones(t, 1, 1, 3), stride=-1),
    "padding negative": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3), padding=-1),
    "dilation zero": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3), dilation=0),
    "same with stride": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3), padding="same", stride=2),
    "padding word": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3), padding="full"),
    "dtypes": lambda t: t.nn.conv2d(ones(t, 1, 1, 5, 5), ones(t, 1, 1, 3, 3).double()),
    "transpose channels": lambda t: t.nn.conv_transpose2d(ones(t, 1, 3, 5, 5), ones(t, 2, 2, 3, 3)),
    "output padding": lambda t: t.nn.conv_transpose2d(ones(t, 1, 2, 5, 5), ones(t, 2, 2, 3, 3), output_padding=1),
}
POOLINGS: dict[str, Call] = {
    "max kernel": lambda t: t.nn.max_pool2d(ones(t, 1, 1, 3, 3), 4),
    "max padding": lambda t: t.nn.max_pool2d(ones(t, 1, 1, 3, 3), 2, padding=2),
    "max stride": lambda t: t.nn.max_pool2d(ones(t, 1, 1, 3, 3), 2, 0),
    "avg kernel zero": lambda t: t.nn.avg_pool2d(ones(t, 1, 1, 3, 3), 0, 1),
    "max tuple": lambda t: t.nn.max_pool2d(ones(t, 1, 1, 3, 3), (2, 2, 2)),
    "max dims": lambda t: t.nn.max_pool2d(ones(t, 3, 3), 2),
    "max1d kernel": lambda t: t.nn.max_pool1d(ones(t, 1, 3), 4),
    "max3d dims": lambda t: t.nn.max_pool3d(ones(t, 3, 3), 2),
    "max3d tuple": lambda t: t.nn.max_pool3d(ones(t, 1, 3, 3, 3), (2, 2)),
    "max3d kernel": lambda t: t.nn.max_pool3d(ones(t, 1, 3, 3, 3), 4),
    "max3d stride": lambda t: t.nn.max_pool3d(ones(t, 1, 3, 3, 3), 2, -1),
    "max3d empty": lambda t: t.nn.max_pool3d(ones(t, 1, 0, 3, 3), 2),
    "avg3d kernel": lambda t: t.nn.avg_pool3d(ones(t, 1, 3, 3, 3), 4),
    "avg divisor": lambda t: t.nn.avg_pool2d(ones(t, 1, 3, 3), 2, divisor_override=0),
    "adaptive negative": lambda t: t.nn.adaptive_avg_pool2d(ones(t, 1, 3, 3), -1),
}
NORMALISATIONS: dict[str, Call] = {
    "layer shape": lambda t: t.nn.layer_norm(ones(t, 2, 3), (2,)),
    "layer weight": lambda t: t.nn.layer_norm(ones(t, 2, 3), (3,), ones(t, 2)),
    "layer nothing": lambda t: t.nn.layer_norm(ones(t, 2, 3), ()),
    "layer ints": lambda t: t.nn.layer_norm(t.tensor([[1, 2]]), (2,)),
    "group channels": lambda t: t.nn.group_norm(ones(t, 2, 3), 2),
    "group weight": lambda t: t.nn.group_norm(ones(t, 2, 4), 2, ones(t, 3)),
    "batch one": lambda t: t.nn.batch_norm(ones(t, 1, 3), None, None, training=True),
    "batch statistics": lambda t: t.nn.batch_norm(ones(t, 2, 3), ones(t, 2), ones(t, 3)),
    "batch missing": lambda t: t.nn.batch_norm(ones(t, 2, 3), None, None),
    "batch one of two": lambda t: t.nn.batch_norm(ones(t, 2, 3), ones(t, 3), None, training=True),
    "batch tracked": lambda t: t.nn.batch_norm(
        ones(t, 2, 3).requires_grad_(), ones(t, 3).requires_grad_(), ones(t, 3), training=True
    ),
    "instance one": lambda t: t.nn.instance_norm(ones(t, 2, 3, 1)),
    "instance missing": lambda t: t.nn.instance_norm(ones(t, 2, 3, 4), use_input_stats=False),
}
LOOKUPS: dict[str, Call] = {
    "embedding range": lambda t: t.nn.embedding(ints(t, 0, 3), ones(t, 3, 2)),
    "embedding negative": lambda t: t.nn.embedding(ints(t, -1), ones(t, 3, 2)),
    "embedding floats": lambda t: t.nn.embedding(ones(t, 2), ones(t, 3, 2)),
    "embedding vector": lambda t: t.nn.embedding(ints(t, 0), ones(t, 3)),
    "attention sizes": lambda t: t.nn.scaled_dot_product_attention(ones(t, 3, 4), ones(t, 5, 3), ones(t, 5, 3)),
    "attention dtypes": lambda t: t.nn.scaled_dot_product_attention(*[ones(t, 3, 4)] * 2, ones(t, 3, 4).double()),
    "attention causal mask": lambda t: t.nn.scaled_dot_product_attention(
        *[ones(t, 3, 4)] * 3, ones(t, 3, 3), is_causal=True
    ),
    "attention vector": lambda t: t.nn.scaled_dot_product_attention(*[ones(t, 4)] * 3),
    "attention heads": lambda t: t.nn.scaled_dot_product_attention(
        ones(t, 4, 3, 4), *[ones(t, 3, 3, 4)] * 2, enable_gqa=True
    ),
    "linear": lambda t: t.nn.linear(ones(t, 2, 3), ones(t, 4, 2)),
    "interpolate both": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), 2, 2.0),
    "interpolate neither": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3)),
    "interpolate corners": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), 2, align_corners=True),
    "interpolate zero": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), 0),
    "interpolate dims": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), 2, mode="linear"),
    "interpolate word": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), 2, mode="foo"),
    "interpolate factors": lambda t: t.nn.interpolate(ones(t, 1, 1, 3, 3), scale_factor=[2.0, 1.0, 3.0]),
    "grid mode": lambda t: t.nn.grid_sample(ones(t, 1, 1, 3, 3), ones(t, 1, 2, 2, 2), "foo"),
    "grid padding": lambda t: t.nn.grid_sample(ones(t, 1, 1, 3, 3), ones(t, 1, 2, 2, 2), padding_mode="foo"),
    "grid last": lambda t: t.nn.grid_sample(ones(t, 1, 1, 3, 3), ones(t, 1, 2, 2, 3)),
    "grid batch": lambda t: t.nn.grid_sample(ones(t, 1, 1, 3, 3), ones(t, 2, 2, 2, 2)),
    "grid dtype": lambda t: t.nn.grid_sample(ones(t, 1, 1, 3, 3), ones(t, 1, 2, 2, 2).double()),
    "pad reflect": lambda t: t.nn.pad(ones(t, 2, 3), (3, 0), mode="reflect"),
    "pad odd": lambda t: t.nn.pad(ones(t, 2, 3), (3,)),
    "pad long": lambda t: t.nn.pad(ones(t, 2), (1, 1, 1, 1)),
    "pad word": lambda t: t.nn.pad(ones(t, 2, 3), (1, 1), mode="mirror"),
    "glu odd": lambda t: t.nn.glu(ones(t, 2, 3)),
    "glu scalar": lambda t: t.nn.glu(t.tensor(1.0)),
    "dropout": lambda t: t.nn.dropout(ones(t, 2), 1.5),
    "dropout1d": lambda t: t.nn.dropout1d(ones(t, 2, 3, 4, 5), 0.5),
    "prelu": lambda t: t.nn.prelu(ones(t, 2, 3), ones(t, 2)),
    "celu": lambda t: t.nn.celu(ones(t, 2), 0.0),
    "softshrink": lambda t: t.nn.softshrink(ones(t, 2), -1.0),
    "softmax dim": lambda t: t.nn.softmax(ones(t, 2, 3), 2),
    "pixel_shuffle": lambda t: t.nn.pixel_shuffle(ones(t, 1, 3, 2, 2), 2),
    "pixel_unshuffle": lambda t: t.nn.pixel_unshuffle(ones(t, 1, 3, 3, 2), 2),
    "channel_shuffle": lambda t: t.nn.channel_shuffle(ones(t, 1, 3, 3, 2), 2),
}
LOSSES: dict[str, Call] = {
    "target above": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ints(t, 0, 3)),
    "target below": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ints(t, 0, -1)),
    "target batch": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ints(t, 0, 1, 2)),
    "target floats": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ones(t, 2)),
    "target dims": lambda t: t.nn.cross_entropy(ones(t, 2, 3, 4), t.tensor([[0, 1], [1, 2]])),
    "target multi": lambda t: t.nn.cross_entropy(ones(t, 2, 3), t.tensor([[0], [1]])),
    "target like input": lambda t: t.nn.cross_entropy(ones(t, 2, 3), t.tensor([[0, 1, 1], [1, 2, 1]])),
    "smoothing": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ints(t, 0, 1), label_smoothing=1.5),
    "weight": lambda t: t.nn.nll_loss(ones(t, 2, 3), ints(t, 0, 1), ones(t, 2)),
    "soft weight": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ones(t, 2, 3), ones(t, 2)),
    "soft ignore": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ones(t, 2, 3), ignore_index=1),
    "reduction": lambda t: t.nn.cross_entropy(ones(t, 2, 3), ints(t, 0, 1), reduction="median"),
    "nll ints": lambda t: t.nn.nll_loss(t.tensor([[1, 2]]), ints(t, 0)),
    "mse sizes": lambda t: t.nn.mse_loss(ones(t, 2, 3), ones(t, 2, 2)),
    "l1 weight": lambda t: t.nn.l1_loss(ones(t, 2, 3), ones(t, 2, 3), weight=ones(t, 3)),
    "huber delta": lambda t: t.nn.huber_loss(ones(t, 2), ones(t, 2), delta=0.0),
    "smooth beta": lambda t: t.nn.smooth_l1_loss(ones(t, 2), ones(t, 2), beta=-1.0),
    "bce range": lambda t: t.nn.binary_cross_entropy(ones(t, 2) + 1, ones(t, 2)),
    "bce sizes": lambda t: t.nn.binary_cross_entropy(ones(t, 2), ones(t, 3)),
    "bce logits sizes": lambda t: t.nn.binary_cross_entropy_with_logits(ones(t, 2), ones(t, 3)),
    "cosine target": lambda t: t.nn.cosine_embedding_loss(ones(t, 2, 3), ones(t, 2, 3), t.tensor([[1], [1]])),
    "ranking": lambda t: t.nn.margin_ranking_loss(ones(t, 2, 3), ones(t, 2, 3), ones(t, 3)),
    "triplet": lambda t: t.nn.triplet_margin_loss(ones(t, 2, 3), ones(t, 2, 3), ones(t, 3)),
    "triplet margin": lambda t: t.nn.triplet_margin_loss(*[ones(t, 2, 3)] * 3, margin=0),
    "multi margin": lambda t: t.nn.multi_margin_loss(ones(t, 2, 3), ints(t, 0)),
    "variance": lambda t: t.nn.gaussian_nll_loss(ones(t, 2, 3), ones(t, 2, 3), -ones(t, 2, 3)),
    "variance number": lambda t: t.nn.gaussian_nll_loss(ones(t, 2, 3), ones(t, 2, 3), -1.0),
    "variance size": lambda t: t.nn.gaussian_nll_loss(ones(t, 2, 3), ones(t, 2, 3), ones(t, 3)),
    "poisson": lambda t: t.nn.poisson_nll_loss(ones(t, 2, 3), ones(t, 2, 3), reduction="median"),
}


def ctc(t: Any, inputs: list[int], targets: list[int], labels: Any = None, **options: Any) -> Any:
    """A batch of two sequences of five steps over four classes."""
    labels = t.tensor([[1, 2], [3, 3]]) if labels is None else labels
    return t.nn.ctc_loss(ones(t, 5, 2, 4), labels, ints(t, *inputs), ints(t, *targets), **options)


SEQUENCES: dict[str, Call] = {
    "blank": lambda t: ctc(t, [5, 5], [2, 2], blank=4),
    "long input": lambda t: ctc(t, [6, 5], [2, 2]),
    "negative input": lambda t: ctc(t, [-1, 5], [2, 2]),
    "long target": lambda t: ctc(t, [5, 5], [3, 2]),
    "negative target": lambda t: ctc(t, [5, 5], [-1, 2]),
    "batch": lambda t: ctc(t, [5], [2, 2]),
    "vector": lambda t: ctc(t, [5, 5], [2, 2], ints(t, 1, 2, 3)),
    "rows": lambda t: ctc(t, [5, 5], [2, 2], t.tensor([[1, 2]])),
    "labels": lambda t: ctc(t, [5, 5], [2, 2], t.zeros((1, 2, 2)).long()),
    "reduction": lambda t: ctc(t, [5, 5], [2, 2], reduction="median"),
    "empty": lambda t: t.nn.ctc_loss(ones(t, 5, 0, 4), t.zeros((0, 2)).long(), t.zeros(0).long(), t.zeros(0).long()),
}
INDEXING: dict[str, Call] = {
    "index": lambda t: ones(t, 3)[ints(t, 3)],
    "index negative": lambda t: ones(t, 3)[ints(t, -4)],
    "index int": lambda t: ones(t, 3)[3],
    "too many": lambda t: ones(t, 3)[0, 0],
    "index floats": lambda t: ones(t, 3)[ones(t, 2)],
    "index shapes": lambda t: ones(t, 3, 3)[ints(t, 0, 1), ints(t, 0, 1, 2)],
    "mask": lambda t: ones(t, 3)[t.tensor([True, False])],
    "index_select": lambda t: t.F.index_select(ones(t, 3), 0, ints(t, 3)),
    "index_select dims": lambda t: t.F.index_select(ones(t, 3), 0, t.tensor([[0]])),
    "gather": lambda t: t.F.gather(ones(t, 3), 0, ints(t, 3)),
    "gather dims": lambda t: t.F.gather(ones(t, 3, 3), 0, ints(t, 0)),
    "gather dtype": lambda t: t.F.gather(ones(t, 3), 0, ones(t, 1)),
    "gather larger": lambda t: t.F.gather(ones(t, 2, 3), 1, t.zeros((3, 1)).long()),
    "scatter": lambda t: t.F.scatter(ones(t, 3), 0, ints(t, 3), ones(t, 1)),
    "scatter dtype": lambda t: t.F.scatter(ones(t, 3), 0, ints(t, 0), ones(t, 1).double()),
    "scatter_add": lambda t: t.F.scatter_add(ones(t, 3), 0, ints(t, -1), ones(t, 1)),
    "scatter_reduce": lambda t: t.F.scatter_reduce(ones(t, 3), 0, ints(t, 0), ones(t, 1), "median"),
    "index_add": lambda t: t.F.index_add(ones(t, 3), 0, ints(t, 0, 1), ones(t, 3)),
    "index_add range": lambda t: t.F.index_add(ones(t, 3, 1), 0, ints(t, 3), ones(t, 1, 1)),
    "index_copy": lambda t: t.F.index_copy(ones(t, 3), 0, ints(t, 3), ones(t, 1)),
    "index_fill": lambda t: t.F.index_fill(ones(t, 3), 0, ints(t, 3), 1.0),
    "index_put": lambda t: t.F.index_put(ones(t, 3), (ints(t, 3),), ones(t, 1)),
    "index_put shape": lambda t: t.F.index_put(ones(t, 3), (ints(t, 0, 1),), ones(t, 3)),
    "index_reduce": lambda t: t.F.index_reduce(ones(t, 3), 0, ints(t, 0), ones(t, 1), "sum"),
    "masked_fill": lambda t: t.F.masked_fill(ones(t, 3), ints(t, 0, 1, 1), 1.0),
    "masked_fill value": lambda t: t.F.masked_fill(ones(t, 2), t.tensor([True, False]), ones(t, 2)),
    "masked_select": lambda t: t.F.masked_select(ones(t, 3), t.tensor([True, False])),
    "masked_scatter": lambda t: t.F.masked_scatter(ones(t, 2), t.tensor([True, True]), ones(t, 1)),
    "take": lambda t: t.F.take(ones(t, 3), ints(t, 3)),
    "take_along_dim": lambda t: t.F.take_along_dim(ones(t, 3, 3), ints(t, 0), 1),
    "topk": lambda t: t.F.topk(ones(t, 3), 4),
    "kthvalue": lambda t: t.F.kthvalue(ones(t, 3), 4),
    "repeat_interleave": lambda t: t.F.repeat_interleave(ones(t, 3), -1),
    "repeat_interleave size": lambda t: t.F.repeat_interleave(ones(t, 3), ints(t, 1, 2)),
    "bincount": lambda t: t.F.bincount(ints(t, -1)),
    "one_hot": lambda t: t.nn.one_hot(ints(t, 3), 3),
}
CALLS = {
    f"{family}: {name}": call
    for family, calls in {
        "conv": CONVOLUTIONS, "pool": POOLINGS, "norm": NORMALISATIONS, "lookup": LOOKUPS, "loss": LOSSES,
        "ctc": SEQUENCES, "index": INDEXING,
    }.items()
    for name, call in calls.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_error_is_that_of_torch(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = oracle.attempt(lambda: CALLS[name](THEIRS))
    assert isinstance(theirs, oracle.Failure), "torch does not raise"
    ours = oracle.attempt(lambda: CALLS[name](OURS))
    assert isinstance(ours, oracle.Failure), f"torch raises {theirs}"
    assert ours == theirs
