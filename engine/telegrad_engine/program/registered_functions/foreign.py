"""A function that runs elsewhere, as its description over REST shows it: for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DataDependentShape
from ...schema.parameters import Kind, TensorKind
from ...schema.signature import REQUIRED, Param, Signature
from .budget import Budget
from .function import Applicable, FunctionProgram
from .reader import Find


class Foreign:
    """A function of which only the signature is known: Python that a server's operator installed."""

    definition: Mapping[str, Any] | None = None
    size = levels = 1

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.doc: str = entry["doc"]
        self.outputs: int = entry["outputs"]
        self.signature = Signature(self.name, tuple(map(_param, entry["params"])))

    @property
    def inputs(self) -> int:
        """The number of tensors that it takes."""
        return len(self.signature.tensor_params)

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Not possible here: what comes out is known where the function is."""
        raise DataDependentShape(f"what {self.name} gives is known only where it is installed")


def _param(data: Mapping[str, Any]) -> Param:
    kind = TensorKind() if data["source"] == "input" else Kind()
    return Param(data["name"], kind, REQUIRED if data["required"] else data["default"], False)


def from_entry(entry: Mapping[str, Any], find: Find) -> Applicable:
    """The function that an answer of ``GET …/functions/{name}`` describes; ``find`` gives those that it applies."""
    return Foreign(entry) if entry["definition"] is None else FunctionProgram(entry["definition"], find)
