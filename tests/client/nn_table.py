"""Modules and options that PyTorch's module database does not have, each with functions that make its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Maker = Callable[[np.random.Generator], Any]


def X(*shape: int) -> Maker:
    """Normal numbers."""
    return lambda rng: rng.standard_normal(shape)


def P(*shape: int) -> Maker:
    """Numbers between 0.05 and 0.95."""
    return lambda rng: rng.uniform(0.05, 0.95, shape)


def I(*shape: int, high: int) -> Maker:  # noqa: E743 - reads as X does
    """Whole numbers below ``high``."""
    return lambda rng: rng.integers(0, high, shape)


def A(*values: Any) -> Maker:
    """The given numbers."""
    return lambda rng: np.array(values)


def both(*makers: Maker) -> Maker:
    """A tuple."""
    return lambda rng: tuple(make(rng) for make in makers)


Row = tuple[Callable[[Any], Any], list[Maker]]


def of(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A function that creates the module of this name with these arguments."""
    return lambda lib: getattr(lib.nn, name)(*args, **kwargs)


_INPLACE = (
    *("SiLU", "LeakyReLU", "ELU", "CELU", "SELU", "ReLU"),
    *("ReLU6", "Mish", "Hardtanh", "Hardsigmoid", "Hardswish"),
)


def _activations() -> dict[str, Row]:
    rows: dict[str, Row] = {name: (of(name), [X(3, 4)]) for name in ("Hardsigmoid", "Identity", "RReLU")}
    for name in _INPLACE:
        rows[f"{name} in place"] = (
            lambda lib, name=name: _Call(lib, getattr(lib.nn, name)(inplace=True), before=lambda x: x + 1),
            [X(3, 4)],
        )
    return rows | {
        "GELU by tanh": (of("GELU", "tanh"), [X(3, 4)]),
        "Hardtanh wide": (of("Hardtanh", -0.5, 2), [X(3, 4)]),
    }


_CONVOLUTIONS: dict[str, Row] = {
    "Conv1d circular": (of("Conv1d", 2, 4, 3, padding=1, padding_mode="circular"), [X(2, 2, 6)]),
    "Conv2d all": (of("Conv2d", 2, 4, (3, 2), 2, 1, 2, 2, False, "reflect"), [X(2, 2, 7, 6)]),
    "Conv2d same": (of("Conv2d", 2, 4, (3, 2), padding="same", padding_mode="replicate"), [X(2, 5, 6)]),
    "Conv2d valid": (of("Conv2d", 2, 4, 3, padding="valid"), [X(1, 2, 5, 6)]),
    "ConvTranspose2d all": (of("ConvTranspose2d", 2, 4, 3, 2, 1, 1, 2, False, 2), [X(2, 2, 3, 4)]),
    "ConvTranspose2d sized": (of("ConvTranspose2d", 2, 4, 3, stride=2), [X(1, 2, 3, 3)]),
    "MaxPool2d all": (of("MaxPool2d", (2, 3), 2, 1, 2, True, True), [X(2, 3, 7, 8)]),
    "AvgPool1d": (of("AvgPool1d", 2, 1, 1, True, False), [X(2, 3, 7)]),
    "AvgPool2d all": (of("AvgPool2d", (2, 1), 1, (1, 0), True, False, 3), [X(2, 3, 5, 6)]),
    "AdaptiveMaxPool2d": (of("AdaptiveMaxPool2d", (2, None), True), [X(2, 3, 5, 6)]),
    "LPPool2d": (of("LPPool2d", 3, (2, 1), 1, True), [P(2, 3, 5, 6)]),
    "MaxUnpool1d": (of("MaxUnpool1d", 2), [X(1, 1, 3), A([[1, 2, 5]])]),
    "MaxUnpool2d": (of("MaxUnpool2d", 3, 2, 1), [X(1, 1, 2, 2), A([[[0, 2], [6, 8]]])]),
    "MaxUnpool2d sized": (
        lambda lib: _Call(lib, lib.nn.MaxUnpool2d(2), output_size=(1, 1, 5, 5)),
        [X(1, 1, 2, 2), A([[[0, 4], [10, 24]]])],
    ),
    "MaxUnpool3d": (of("MaxUnpool3d", 2), [X(1, 1, 1, 1, 2), A([[[[0, 9]]]])]),
    "Fold": (of("Fold", (4, 5), 2), [X(2, 12, 12)]),
    "Unfold": (of("Unfold", (3, 2), (2, 1), (1, 0), 2), [X(2, 3, 6, 5)]),
    "Upsample": (of("Upsample", 5), [X(1, 2, 3)]),
    "Upsample bilinear": (of("Upsample", scale_factor=2, mode="bilinear", align_corners=True), [X(1, 2, 3, 3)]),
    "Upsample factors": (of("Upsample", scale_factor=(2, 3)), [X(1, 2, 3, 3)]),
    "UpsamplingNearest2d": (of("UpsamplingNearest2d", 5), [X(1, 2, 3, 3)]),
    "UpsamplingBilinear2d": (of("UpsamplingBilinear2d", scale_factor=2), [X(1, 2, 3, 3)]),
    "PixelShuffle": (of("PixelShuffle", 2), [X(1, 8, 2, 2)]),
    "PixelUnshuffle": (of("PixelUnshuffle", 2), [X(1, 2, 4, 4)]),
    "ChannelShuffle": (of("ChannelShuffle", 2), [X(1, 4, 2, 2)]),
    "Flatten": (of("Flatten", 1, 2), [X(2, 3, 4, 2)]),
    "Unflatten": (of("Unflatten", 1, (2, -1)), [X(2, 6, 2)]),
}
_LAYERS: dict[str, Row] = {
    "Embedding padded": (of("Embedding", 5, 3, -1, scale_grad_by_freq=True), [I(2, 9, high=5)]),
    "Embedding short": (of("Embedding", 5, 3, None, 1.0, 1.0), [A(0, 2, 4)]),
    "EmbeddingBag": (of("EmbeddingBag", 5, 3), [I(2, 4, high=5)]),
    "EmbeddingBag of offsets": (
        of("EmbeddingBag", 5, 3, mode="sum", include_last_offset=True, padding_idx=-1),
        [I(6, high=5), A(0, 2, 2, 6), X(6)],
    ),
    "EmbeddingBag largest": (of("EmbeddingBag", 5, 3, 1.0, 1.0, mode="max"), [A(0, 2, 4), A(0, 2)]),
    "FeatureAlphaDropout": (of("FeatureAlphaDropout", 0.2), [X(2, 3, 4)]),
    "Dropout": (of("Dropout", 0.2), [X(3, 4)]),
    "Dropout1d": (of("Dropout1d", 0.2), [X(2, 3, 4)]),
    "Dropout2d": (of("Dropout2d", 0.2), [X(2, 3, 4, 4)]),
    "Dropout3d": (of("Dropout3d"), [X(1, 2, 2, 2, 2)]),
    "ModuleList": (lambda lib: _Each(lib, lib.nn.ModuleList([lib.nn.Linear(3, 3) for _ in range(2)])), [X(2, 3)]),
    "ModuleDict": (lambda lib: _Each(lib, lib.nn.ModuleDict({"a": lib.nn.Linear(3, 3)})), [X(2, 3)]),
    "Sequential": (lambda lib: lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Linear(4, 2)), [X(2, 3)]),
}
_RECURRENT: dict[str, Row] = {
    "RNNCell relu": (of("RNNCell", 3, 4, False, "relu"), [X(2, 3), X(2, 4)]),
    "GRUCell": (of("GRUCell", 3, 4), [X(2, 3), X(2, 4)]),
    "GRUCell one": (of("GRUCell", 3, 4, bias=False), [X(3)]),
    "LSTMCell": (of("LSTMCell", 3, 4), [X(2, 3)]),
    "RNN deep": (of("RNN", 3, 4, 2, "relu", False, True, 0.0, True), [X(2, 5, 3), X(4, 2, 4)]),
    "GRU deep": (of("GRU", 3, 4, 2, bidirectional=True), [X(5, 2, 3), X(4, 2, 4)]),
    "LSTM deep": (of("LSTM", 3, 4, 2, False, True, 0.0, True), [X(2, 5, 3), both(X(4, 2, 4), X(4, 2, 4))]),
    "LSTM with dropout": (of("LSTM", 3, 4, 2, dropout=0.5), [X(5, 2, 3)]),
}
_MASK = np.triu(np.ones((3, 3), bool), 1)
_PADDING = np.array([[False, False, True], [False, False, False]])
_ATTENTION: dict[str, Row] = {
    "MultiheadAttention": (of("MultiheadAttention", 4, 2), [X(3, 2, 4), X(5, 2, 4), X(5, 2, 4)]),
    "MultiheadAttention of two": (
        of("MultiheadAttention", 4, 2, kdim=3, vdim=5, batch_first=True, bias=False),
        [X(2, 3, 4), X(2, 5, 3), X(2, 5, 5)],
    ),
    "MultiheadAttention extended": (
        of("MultiheadAttention", 4, 2, add_bias_kv=True, add_zero_attn=True),
        [X(3, 2, 4), X(3, 2, 4), X(3, 2, 4), lambda rng: _PADDING],
    ),
    "MultiheadAttention masked": (
        lambda lib: _Call(lib, lib.nn.MultiheadAttention(4, 2), need_weights=False, attn_mask=lib.tensor(_MASK)),
        [X(3, 2, 4), X(3, 2, 4), X(3, 2, 4)],
    ),
    "MultiheadAttention by head": (
        lambda lib: _Call(lib, lib.nn.MultiheadAttention(4, 2), average_attn_weights=False),
        [X(3, 4), X(3, 4), X(3, 4)],
    ),
}
_LOSSES: dict[str, Row] = {
    "CosineSimilarity": (of("CosineSimilarity", 0), [X(3, 4), X(3, 4)]),
    **{
        f"AdaptiveLogSoftmaxWithLoss {targets}": (
            of("AdaptiveLogSoftmaxWithLoss", 6, 12, [3, 7], 2.0, True),
            [X(4, 6), A(*targets)],
        )
        for targets in ([0, 2, 5, 11], [1, 1, 0, 2], [7, 3, 8, 9])
    },
    "AdaptiveLogSoftmaxWithLoss one": (
        of("AdaptiveLogSoftmaxWithLoss", 6, 12, [3, 7], 2.0, True),
        [X(6), lambda rng: np.array(5)],
    ),
    "PairwiseDistance": (of("PairwiseDistance", 1, keepdim=True), [X(3, 4), X(3, 4)]),
    "TripletMarginWithDistanceLoss": (
        of("TripletMarginWithDistanceLoss", swap=True, margin=2.0),
        [X(3, 4), X(3, 4), X(3, 4)],
    ),
    "TripletMarginWithDistanceLoss of our own": (
        of("TripletMarginWithDistanceLoss", distance_function=lambda a, b: (a - b).abs().sum(1), reduction="sum"),
        [X(3, 4), X(3, 4), X(3, 4)],
    ),
    "TripletMarginLoss": (of("TripletMarginLoss", swap=True), [X(3, 4), X(3, 4), X(3, 4)]),
}
MODULES: dict[str, Row] = _activations() | _CONVOLUTIONS | _LAYERS | _RECURRENT | _ATTENTION | _LOSSES
"""The modules, by names that start with the module's class."""
STATEFUL = {row for row in MODULES if row.startswith(("Embedding", "MultiheadAttention"))}
"""The modules that are also compared in training mode, where they draw no random numbers."""


def _Each(lib: Any, held: Any) -> Any:
    """A module that calls the modules in a list or dict one after the other."""

    class Each(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = held

        def forward(self, x: Any) -> Any:
            for module in self.held.values() if hasattr(self.held, "values") else self.held:
                x = module(x).tanh()
            return x

    return Each()


def _Call(lib: Any, module: Any, *args: Any, before: Any = None, **kwargs: Any) -> Any:
    """A module that calls another with extra arguments, after ``before`` has converted the inputs, if given."""

    class Call(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: Any) -> Any:
            return self.module(*(map(before, inputs) if before else inputs), *args, **kwargs)

    return Call()
