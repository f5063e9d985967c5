"""The modules that are compared with torch's, each with functions that make its inputs."""

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


def signs(*shape: int) -> Maker:
    """Integers that are 1 or -1."""
    return lambda rng: rng.integers(0, 2, shape) * 2 - 1


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
    plain = (
        "GELU SiLU LeakyReLU ELU CELU SELU PReLU ReLU ReLU6 Mish Hardtanh Hardsigmoid Hardswish Hardshrink Softshrink"
    )
    names = f"{plain} Tanhshrink Softsign LogSigmoid Softplus Sigmoid Tanh Identity".split()
    rows: dict[str, Row] = {name: (of(name), [X(3, 4)]) for name in names}
    for name in _INPLACE:
        rows[f"{name} in place"] = (
            lambda lib, name=name: _Call(lib, getattr(lib.nn, name)(inplace=True), before=lambda x: x + 1),
            [X(3, 4)],
        )
    return rows | {
        "GELU by tanh": (of("GELU", "tanh"), [X(3, 4)]),
        "PReLU each": (of("PReLU", 4, 0.1), [X(3, 4)]),
        "Hardtanh wide": (of("Hardtanh", -0.5, 2), [X(3, 4)]),
        "Threshold": (of("Threshold", 0.1, 2), [X(3, 4)]),
        "Softmax": (of("Softmax", 1), [X(3, 4)]),
        "Softmin": (of("Softmin", -1), [X(3, 4)]),
        "LogSoftmax": (of("LogSoftmax", 0), [X(3, 4)]),
        "Softmax2d": (of("Softmax2d"), [X(2, 3, 2, 2)]),
        "RReLU": (of("RReLU"), [X(3, 4)]),
        "GLU": (of("GLU", 1), [X(3, 4)]),
    }


_CONVOLUTIONS: dict[str, Row] = {
    "Conv1d": (of("Conv1d", 2, 4, 3), [X(2, 2, 6)]),
    "Conv1d circular": (of("Conv1d", 2, 4, 3, padding=1, padding_mode="circular"), [X(2, 2, 6)]),
    "Conv2d": (of("Conv2d", 2, 4, 3), [X(2, 2, 5, 6)]),
    "Conv2d all": (of("Conv2d", 2, 4, (3, 2), 2, 1, 2, 2, False, "reflect"), [X(2, 2, 7, 6)]),
    "Conv2d same": (of("Conv2d", 2, 4, (3, 2), padding="same", padding_mode="replicate"), [X(2, 5, 6)]),
    "Conv2d valid": (of("Conv2d", 2, 4, 3, padding="valid"), [X(1, 2, 5, 6)]),
    "Conv3d": (of("Conv3d", 2, 2, 2), [X(1, 2, 3, 3, 3)]),
    "ConvTranspose1d": (of("ConvTranspose1d", 2, 4, 3), [X(2, 2, 4)]),
    "ConvTranspose2d": (of("ConvTranspose2d", 2, 4, 3), [X(2, 2, 3, 4)]),
    "ConvTranspose2d all": (of("ConvTranspose2d", 2, 4, 3, 2, 1, 1, 2, False, 2), [X(2, 2, 3, 4)]),
    "ConvTranspose2d sized": (of("ConvTranspose2d", 2, 4, 3, stride=2), [X(1, 2, 3, 3)]),
    "ConvTranspose3d": (of("ConvTranspose3d", 2, 2, 2), [X(1, 2, 2, 2, 2)]),
    "MaxPool1d": (of("MaxPool1d", 2), [X(2, 3, 7)]),
    "MaxPool2d": (of("MaxPool2d", 2), [X(2, 3, 5, 6)]),
    "MaxPool2d all": (of("MaxPool2d", (2, 3), 2, 1, 2, True, True), [X(2, 3, 7, 8)]),
    "MaxPool3d": (of("MaxPool3d", 2), [X(1, 2, 4, 4, 4)]),
    "AvgPool1d": (of("AvgPool1d", 2, 1, 1, True, False), [X(2, 3, 7)]),
    "AvgPool2d": (of("AvgPool2d", 2), [X(2, 3, 5, 6)]),
    "AvgPool2d all": (of("AvgPool2d", (2, 1), 1, (1, 0), True, False, 3), [X(2, 3, 5, 6)]),
    "AvgPool3d": (of("AvgPool3d", 2), [X(1, 2, 4, 4, 4)]),
    "AdaptiveAvgPool1d": (of("AdaptiveAvgPool1d", 3), [X(2, 3, 7)]),
    "AdaptiveAvgPool2d": (of("AdaptiveAvgPool2d", 2), [X(2, 3, 5, 6)]),
    "AdaptiveAvgPool2d kept": (of("AdaptiveAvgPool2d", (2, None)), [X(2, 3, 5, 6)]),
    "AdaptiveAvgPool3d": (of("AdaptiveAvgPool3d", (2, None, 3)), [X(1, 2, 3, 4, 5)]),
    "AdaptiveMaxPool1d": (of("AdaptiveMaxPool1d", 3), [X(2, 3, 7)]),
    "AdaptiveMaxPool2d": (of("AdaptiveMaxPool2d", (2, None), True), [X(2, 3, 5, 6)]),
    "AdaptiveMaxPool3d": (of("AdaptiveMaxPool3d", 2), [X(1, 2, 3, 4, 5)]),
    "LPPool1d": (of("LPPool1d", 2, 3), [P(2, 3, 7)]),
    "LPPool2d": (of("LPPool2d", 3, (2, 1), 1, True), [P(2, 3, 5, 6)]),
    "LPPool3d": (of("LPPool3d", 2, 2), [P(1, 2, 4, 4, 4)]),
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
    "ConstantPad1d": (of("ConstantPad1d", (1, 2), 2.5), [X(2, 3)]),
    "ConstantPad2d": (of("ConstantPad2d", 1, 2.5), [X(2, 3, 3)]),
    "ZeroPad1d": (of("ZeroPad1d", 1), [X(2, 3, 3)]),
    "ZeroPad2d": (of("ZeroPad2d", (1, 0, 2, 1)), [X(2, 3, 3)]),
    "ReflectionPad1d": (of("ReflectionPad1d", 1), [X(2, 3)]),
    "ReflectionPad2d": (of("ReflectionPad2d", 1), [X(2, 3, 3)]),
    "ReflectionPad3d": (of("ReflectionPad3d", 1), [X(2, 2, 3, 3)]),
    "ReplicationPad3d": (of("ReplicationPad3d", (1, 0, 2, 1, 0, 1)), [X(2, 2, 3, 3)]),
    "CircularPad1d": (of("CircularPad1d", (1, 2)), [X(2, 3)]),
    "CircularPad2d": (of("CircularPad2d", 1), [X(2, 3, 3)]),
    "CircularPad3d": (of("CircularPad3d", 1), [X(2, 2, 3, 3)]),
    "ConstantPad3d": (of("ConstantPad3d", 1, 2.5), [X(2, 2, 3)]),
    "ZeroPad3d": (of("ZeroPad3d", (1, 0, 2, 1, 0, 1)), [X(2, 2, 3, 3)]),
    "ReplicationPad1d": (of("ReplicationPad1d", (2, 1)), [X(2, 3)]),
    "ReplicationPad2d": (of("ReplicationPad2d", 1), [X(2, 3, 3)]),
}
_LAYERS: dict[str, Row] = {
    "Linear": (of("Linear", 3, 4), [X(2, 5, 3)]),
    "Linear bare": (of("Linear", 3, 4, bias=False), [X(3)]),
    "Bilinear": (of("Bilinear", 2, 3, 4), [X(5, 2), X(5, 3)]),
    "Bilinear bare": (of("Bilinear", 2, 3, 4, bias=False), [X(2), X(3)]),
    "Embedding": (of("Embedding", 5, 3), [I(2, 4, high=5)]),
    "Embedding padded": (of("Embedding", 5, 3, -1, scale_grad_by_freq=True), [I(2, 9, high=5)]),
    "Embedding short": (of("Embedding", 5, 3, None, 1.0, 1.0), [A(0, 2, 4)]),
    "EmbeddingBag": (of("EmbeddingBag", 5, 3), [I(2, 4, high=5)]),
    "EmbeddingBag of offsets": (
        of("EmbeddingBag", 5, 3, mode="sum", include_last_offset=True, padding_idx=-1),
        [I(6, high=5), A(0, 2, 2, 6), X(6)],
    ),
    "EmbeddingBag largest": (of("EmbeddingBag", 5, 3, 1.0, 1.0, mode="max"), [A(0, 2, 4), A(0, 2)]),
    "FeatureAlphaDropout": (of("FeatureAlphaDropout", 0.2), [X(2, 3, 4)]),
    "LocalResponseNorm": (of("LocalResponseNorm", 3), [X(2, 5, 4)]),
    "Dropout": (of("Dropout", 0.2), [X(3, 4)]),
    "Dropout1d": (of("Dropout1d", 0.2), [X(2, 3, 4)]),
    "Dropout2d": (of("Dropout2d", 0.2), [X(2, 3, 4, 4)]),
    "Dropout3d": (of("Dropout3d"), [X(1, 2, 2, 2, 2)]),
    "LayerNorm": (of("LayerNorm", 4), [X(2, 3, 4)]),
    "LayerNorm two": (of("LayerNorm", (3, 4), 1e-3, bias=False), [X(2, 3, 4)]),
    "LayerNorm bare": (of("LayerNorm", [3, 4], elementwise_affine=False), [X(2, 3, 4)]),
    "GroupNorm": (of("GroupNorm", 2, 4), [X(2, 4, 3)]),
    "GroupNorm bare": (of("GroupNorm", 2, 4, affine=False), [X(2, 4, 3)]),
    "RMSNorm": (of("RMSNorm", 4), [X(2, 3, 4)]),
    "RMSNorm two": (of("RMSNorm", (3, 4), 1e-3, False), [X(2, 3, 4)]),
    "BatchNorm1d": (of("BatchNorm1d", 3), [X(5, 3)]),
    "BatchNorm1d long": (of("BatchNorm1d", 3, bias=False), [X(5, 3, 4)]),
    "BatchNorm2d": (of("BatchNorm2d", 3), [X(4, 3, 2, 2)]),
    "BatchNorm2d mean": (of("BatchNorm2d", 3, 1e-3, None), [X(4, 3, 2, 2)]),
    "BatchNorm2d untracked": (of("BatchNorm2d", 3, affine=False, track_running_stats=False), [X(4, 3, 2, 2)]),
    "BatchNorm3d": (of("BatchNorm3d", 2), [X(3, 2, 2, 2, 2)]),
    "InstanceNorm1d": (of("InstanceNorm1d", 3), [X(2, 3, 4)]),
    "InstanceNorm2d": (of("InstanceNorm2d", 3, affine=True), [X(2, 3, 2, 2)]),
    "InstanceNorm2d one": (of("InstanceNorm2d", 3), [X(3, 2, 2)]),
    "InstanceNorm2d tracked": (of("InstanceNorm2d", 3, track_running_stats=True), [X(2, 3, 2, 2)]),
    "InstanceNorm3d": (of("InstanceNorm3d", 2), [X(2, 2, 2, 2, 2)]),
    "ModuleList": (lambda lib: _Each(lib, lib.nn.ModuleList([lib.nn.Linear(3, 3) for _ in range(2)])), [X(2, 3)]),
    "ModuleDict": (lambda lib: _Each(lib, lib.nn.ModuleDict({"a": lib.nn.Linear(3, 3)})), [X(2, 3)]),
    "Sequential": (lambda lib: lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Linear(4, 2)), [X(2, 3)]),
}
_RECURRENT: dict[str, Row] = {
    "RNNCell": (of("RNNCell", 3, 4), [X(2, 3)]),
    "RNNCell relu": (of("RNNCell", 3, 4, False, "relu"), [X(2, 3), X(2, 4)]),
    "GRUCell": (of("GRUCell", 3, 4), [X(2, 3), X(2, 4)]),
    "GRUCell one": (of("GRUCell", 3, 4, bias=False), [X(3)]),
    "LSTMCell": (of("LSTMCell", 3, 4), [X(2, 3)]),
    "LSTMCell one": (of("LSTMCell", 3, 4), [X(3), both(X(4), X(4))]),
    "RNN": (of("RNN", 3, 4), [X(5, 2, 3)]),
    "RNN deep": (of("RNN", 3, 4, 2, "relu", False, True, 0.0, True), [X(2, 5, 3), X(4, 2, 4)]),
    "GRU": (of("GRU", 3, 4), [X(5, 2, 3)]),
    "GRU deep": (of("GRU", 3, 4, 2, bidirectional=True), [X(5, 2, 3), X(4, 2, 4)]),
    "GRU one": (of("GRU", 3, 4, bias=False), [X(5, 3), X(1, 4)]),
    "LSTM": (of("LSTM", 3, 4), [X(5, 2, 3)]),
    "LSTM deep": (of("LSTM", 3, 4, 2, False, True, 0.0, True), [X(2, 5, 3), both(X(4, 2, 4), X(4, 2, 4))]),
    "LSTM one": (of("LSTM", 3, 4, batch_first=True), [X(5, 3)]),
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
    "TransformerEncoderLayer": (of("TransformerEncoderLayer", 4, 2, 8, 0.0), [X(3, 2, 4)]),
    "TransformerEncoderLayer first": (
        of("TransformerEncoderLayer", 4, 2, 8, 0.0, "gelu", batch_first=True, norm_first=True, bias=False),
        [X(2, 3, 4), lambda rng: _MASK],
    ),
    "TransformerEncoder": (
        lambda lib: lib.nn.TransformerEncoder(
            lib.nn.TransformerEncoderLayer(4, 2, 8, 0.0), 2, lib.nn.LayerNorm(4), enable_nested_tensor=False
        ),
        [X(3, 2, 4), lambda rng: _MASK],
    ),
}
_LOSSES: dict[str, Row] = {
    "MSELoss": (of("MSELoss"), [X(3, 4), X(3, 4)]),
    "L1Loss": (of("L1Loss", reduction="sum"), [X(3, 4), X(3, 4)]),
    "SmoothL1Loss": (of("SmoothL1Loss", beta=0.5), [X(3, 4), X(3, 4)]),
    "HuberLoss": (of("HuberLoss", "none", 0.5), [X(3, 4), X(3, 4)]),
    "GaussianNLLLoss": (of("GaussianNLLLoss", full=True), [X(3, 4), X(3, 4), P(3, 4)]),
    "PoissonNLLLoss": (of("PoissonNLLLoss", full=True), [X(3, 4), I(3, 4, high=5)]),
    "PoissonNLLLoss of rates": (of("PoissonNLLLoss", False), [P(3, 4), I(3, 4, high=5)]),
    "CrossEntropyLoss": (of("CrossEntropyLoss", label_smoothing=0.1, ignore_index=1), [X(5, 4), I(5, high=4)]),
    "CrossEntropyLoss weighted": (
        lambda lib: lib.nn.CrossEntropyLoss(lib.arange(1.0, 5.0)),
        [X(2, 4, 3), I(2, 3, high=4)],
    ),
    "NLLLoss": (lambda lib: lib.nn.NLLLoss(lib.arange(1.0, 5.0), reduction="none"), [X(5, 4), I(5, high=4)]),
    "BCELoss": (lambda lib: lib.nn.BCELoss(lib.arange(1.0, 5.0)), [P(3, 4), P(3, 4)]),
    "BCEWithLogitsLoss": (
        lambda lib: lib.nn.BCEWithLogitsLoss(pos_weight=lib.arange(1.0, 5.0)),
        [X(3, 4), P(3, 4)],
    ),
    "KLDivLoss": (of("KLDivLoss", reduction="batchmean"), [X(3, 4), P(3, 4)]),
    "KLDivLoss of logs": (of("KLDivLoss", reduction="sum", log_target=True), [X(3, 4), X(3, 4)]),
    "CTCLoss": (
        lambda lib: lib.nn.Sequential(lib.nn.LogSoftmax(2), _Call(lib, lib.nn.CTCLoss(), *_targets(lib))),
        [X(6, 2, 4)],
    ),
    "MultiMarginLoss": (of("MultiMarginLoss", 2, 0.5), [X(3, 4), I(3, high=4)]),
    "MultiLabelMarginLoss": (of("MultiLabelMarginLoss"), [X(2, 4), A([0, 2, -1, 1], [3, -1, 0, 0])]),
    "SoftMarginLoss": (of("SoftMarginLoss"), [X(3, 4), signs(3, 4)]),
    "MultiLabelSoftMarginLoss": (of("MultiLabelSoftMarginLoss"), [X(3, 4), I(3, 4, high=2)]),
    "CosineEmbeddingLoss": (of("CosineEmbeddingLoss", 0.1), [X(3, 4), X(3, 4), A(1, -1, 1)]),
    "CosineSimilarity": (of("CosineSimilarity", 0), [X(3, 4), X(3, 4)]),
    "PairwiseDistance": (of("PairwiseDistance", 1, keepdim=True), [X(3, 4), X(3, 4)]),
    "MarginRankingLoss": (of("MarginRankingLoss", 0.5), [X(3), X(3), A(1, -1, 1)]),
    "HingeEmbeddingLoss": (of("HingeEmbeddingLoss", 0.5), [X(3), A(1, -1, 1)]),
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
STATEFUL = {row for row in MODULES if row.startswith(("BatchNorm", "InstanceNorm", "Embedding", "MultiheadAttention"))}
"""The modules that are also compared in training mode, where they draw no random numbers."""


def _targets(lib: Any) -> list[Any]:
    return [lib.tensor(np.array([[1, 2, 3], [3, 3, 0]])), lib.tensor([6, 5]), lib.tensor([3, 2])]


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
