"""``torch.nn.functional``: the catalogue's ops that torch has there, under the same names.

``import telegrad.nn.functional as F``. Activations and dropout also take torch's ``inplace``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from telegrad_engine.registry import CATALOGUE

from ..tensor import functions

# Ops that torch has here although they are declared as tensor functions, torch.relu and the like.
_ALSO_HERE = frozenset(
    """bilinear celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity
    dropout elu embedding gelu glu group_norm grid_sample hardshrink hardsigmoid hardswish hardtanh
    instance_norm layer_norm leaky_relu log_softmax logsigmoid mish normalize one_hot pad pairwise_distance
    pixel_shuffle pixel_unshuffle prelu relu relu6 rms_norm rrelu selu sigmoid silu softmax softmin softplus
    softshrink softsign tanh tanhshrink threshold unfold""".split()
)
_TAKES_INPLACE = frozenset(
    """celu dropout elu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 rrelu selu silu
    threshold""".split()
)


def _names() -> list[str]:
    return sorted(
        name
        for name, overloads in CATALOGUE.overloads.items()
        if any(not op.internal and (op.namespace == "torch.nn.functional" or name in _ALSO_HERE) for op in overloads)
    )


def _with_inplace(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with torch's last parameter, ``inplace``: the result is written into the input."""
    position = len(CATALOGUE.overloads[name][0].params)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == position + 1:
            *rest, inplace = args
            args = tuple(rest)
        else:
            inplace = kwargs.pop("inplace", False)
        if not inplace:
            return function(*args, **kwargs)
        target = args[0] if args else kwargs["input"]
        method = getattr(target, f"{name}_", None)
        if method is not None and args:
            return method(*args[1:], **kwargs)
        return target.copy_(function(*args, **kwargs))

    return call


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in _names():
        raise AttributeError(f"module 'telegrad.nn.functional' has no attribute {name!r}")
    function = getattr(functions, name)
    if name in _TAKES_INPLACE:
        function = _with_inplace(name, function)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return _names()
