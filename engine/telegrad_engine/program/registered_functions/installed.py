"""Functions that the server's operator installed, found in the entry point group ``telegrad.functions``.

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
from typing import Any

from ...autograd.custom_function import Function
from ...errors import InvalidFunction
from ...schema.signature import Signature, read_params
from .budget import Budget
from .function import Applicable, FunctionProgram, check_tensors
from .reader import Find

GROUP = "telegrad.functions"


class Installed:
    """An autograd Function with a name."""

    definition: Mapping[str, Any] | None = None
    size = levels = 1

    def __init__(self, name: str, cls: type[Function]) -> None:
        self.name = name
        self.cls = cls
        self.doc = inspect.getdoc(cls) or ""
        separate = cls.setup_context is not Function.setup_context
        self.signature = Signature(name, read_params(cls.forward, skip=0 if separate else 1))

    @property
    def inputs(self) -> int:
        """The number of tensors that it takes."""
        return len(self.signature.tensor_params)

    @property
    def outputs(self) -> int:
        """The number of tensors that it returns: ``outputs`` of the class, or one."""
        return int(getattr(self.cls, "outputs", 1))

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs."""
        if budget is not None:
            budget.admit(self.name)
        given = iter(check_tensors(self, tensors))
        values = self.signature.defaults | self.signature.check_attrs(parameters)
        result = self.cls.apply(*[next(given) if p.kind.is_tensor else values[p.name] for p in self.signature.params])
        return list(result) if isinstance(result, (list, tuple)) else [result]


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
