"""Functions in Python: those that the server's operator installed, in the entry point group ``telegrad.functions``.

An entry point's name is the function's name. It refers to an autograd Function whose ``forward`` declares its
parameters like an op's kernel, or to a definition, which is the same JSON data that a client would send::

    class Swish(Function):
        '''``x * sigmoid(beta * x)``.'''

        @staticmethod
        def forward(ctx, x: Array, beta: Number = 1.0): ...

If a Function returns several tensors, the class attribute ``outputs`` is their number.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...autograd.custom_function import Function
from ...errors import DataDependentShape, InvalidFunction
from ...schema.parameters import Kind, TensorKind
from ...schema.signature import REQUIRED, Param, Signature, read_params
from .function import Applicable, FunctionProgram
from .limits import Budget
from .reader import Find

GROUP = "telegrad.functions"


class Installed(Applicable):
    """An autograd Function with a name."""

    def __init__(self, name: str, cls: type[Function]) -> None:
        self.cls = cls
        separate = cls.setup_context is not Function.setup_context
        signature = Signature(name, read_params(cls.forward, skip=0 if separate else 1))
        super().__init__(signature, inspect.getdoc(cls) or "", int(getattr(cls, "outputs", 1)))

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs."""
        if budget is not None:
            budget.admit(self.name)
        given, values = self.check_arguments(tensors, parameters)
        values.update(given)
        result = self.cls.apply(*[values[p.name] for p in self.signature.params])
        return list(result) if isinstance(result, (list, tuple)) else [result]


class Foreign(Applicable):
    """A function that is installed on a server, of which a client knows the signature alone."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        params = sorted([*entry["inputs"], *entry["attrs"]], key=itemgetter("position"))
        super().__init__(Signature(entry["name"], tuple(map(_param, params))), entry["doc"], entry["outputs"])

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Raise DataDependentShape: the outputs are known only where the function is installed."""
        raise DataDependentShape(f"what {self.name} gives is known only where it is installed")


def _param(data: Mapping[str, Any]) -> Param:
    kind = TensorKind() if data["source"] == "input" else Kind()
    return Param(data["name"], kind, REQUIRED if data["required"] else data["default"], False)


def from_entry(entry: Mapping[str, Any], find: Find) -> Applicable:
    """Return the function in a response of ``GET …/functions/{name}``; ``find`` returns the functions it applies."""
    return Foreign(entry) if entry["definition"] is None else FunctionProgram(entry["definition"], find)


def points() -> Iterator[tuple[str, Any]]:
    """Yield the name and the object of each installed entry point, in the order of names."""
    from importlib.metadata import entry_points  # its import takes a tenth of the time that the engine's takes

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        yield point.name, point.load()


def make(name: str, found: Any, find: Find) -> Applicable:
    """Return the function of an installed object. Raises InvalidFunction if it is no Function and no definition."""
    if isinstance(found, Mapping):
        return FunctionProgram({**found, "name": name}, find)
    if isinstance(found, type) and issubclass(found, Function):
        return Installed(name, found)
    raise InvalidFunction(f"{name}: {GROUP} points to {found!r:.100}, neither a Function nor a definition")
