"""The functions of one session: its own, and behind them those that all sessions of a server share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...context import Grantor
from ...devices import on
from ...errors import InvalidValue
from ...tensor.eager import Tensor
from .budget import Budget
from .library import Library
from .verify import verify


class SessionLibrary(Library):
    """What a session finds by name, registers and applies; ``shared`` are the functions with the scope "server"."""

    def __init__(self, shared: Library) -> None:
        super().__init__(shared)
        self.shared = shared

    def of_scope(self, scope: str) -> Library:
        """The functions of a scope: "session" or "server"."""
        if scope not in ("session", "server"):
            raise InvalidValue(f"a function's scope is session or server, not {scope!r:.40}")
        return self if scope == "session" else self.shared

    def register(self, definition: Any, scope: str, verified: bool, shapes: Any) -> None:
        """Keep a function in the library of a scope, once its derivative is right if that is to be verified."""
        library = self.of_scope(scope)
        function = library.read(definition)
        if verified:
            with on("cpu"):
                verify(function, shapes)
        library.add(function)

    def apply(
        self, name: str, tensors: Sequence[Tensor], parameters: Mapping[str, Any], memory: Grantor
    ) -> tuple[Sequence[Tensor], list[bool]]:
        """Call a function: its outputs, and what it decided by values.

        What it made and the graph keeps counts as the session's memory.
        """
        budget = Budget()
        try:
            return self.find(name).call(tensors, parameters, budget), budget.decisions
        finally:
            for array in budget.close():
                memory.count(array)
