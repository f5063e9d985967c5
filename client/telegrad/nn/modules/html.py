"""A module in a notebook: a table of its layers with their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from ... import html_output
from ...tensor.handle import Tensor
from ..parameter import UninitializedParameter

UNKNOWN = "known after the first call"


def module_html(module: Any) -> str:
    """Return the totals of a module, and a row for each layer: a module that has parameters or no submodules."""
    parameters = [*module.parameters()]
    known = [p for p in parameters if not isinstance(p, UninitializedParameter)]
    totals = [
        ("parameters", f"{_count(known):,}" + (", more after the first call" if len(known) < len(parameters) else "")),
        ("trainable", f"{_count([p for p in known if p.requires_grad]):,}"),
        ("memory", html_output.amount(sum(p.numel() * p.element_size() for p in known))),
        ("mode", "training" if module.training else "evaluation"),
    ]
    return html_output.block(
        "module",
        html_output.properties(type(module).__name__, totals),
        html_output.table(("name", "layer", "parameters", "count"), _rows(module)),
    )


def _rows(module: Any) -> Iterator[tuple[str, str, str, str]]:
    for name, layer in module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own and layer._modules:
            continue
        shapes = ", ".join(f"{key} {_shape(parameter)}" for key, parameter in own.items())
        known = [p for p in own.values() if not isinstance(p, UninitializedParameter)]
        text = f"{type(layer).__name__}({' '.join(layer.extra_repr().split())})"
        yield name, text, shapes, f"{_count(known):,}" if own else ""


def _shape(parameter: Tensor) -> str:
    unknown = isinstance(parameter, UninitializedParameter)
    return UNKNOWN if unknown else html_output.dimensions(parameter.shape)


def _count(parameters: Sequence[Tensor]) -> int:
    return sum(prod(parameter.shape) for parameter in parameters)
