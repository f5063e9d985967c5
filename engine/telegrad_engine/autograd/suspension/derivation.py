"""One call of ``backward`` or ``grad``, taken apart so that its pass can stop and go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from ...context import state
from ...graph import differentiation
from ...graph.differentiation import Place, Root
from ..anomaly import watchful
from .passes import suspendable


class Derivation(NamedTuple):
    """A checked call of ``backward`` or ``grad``: its roots, and what to do with the captured gradients."""

    roots: list[Root]
    values: Any
    keep_graph: bool
    wanted: list[Place] | None
    stores: bool
    """Whether captured gradients of leaves are accumulated: ``backward`` with inputs."""
    width: int
    """How many results ``finish`` gives."""
    finish: Callable[[dict[Place, Any]], tuple[Any, ...]]
    """Makes the results of what was captured; runs within ``values``."""

    @classmethod
    def of_backward(
        cls, tensors: Any, gradients: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
    ) -> Self:
        """``backward`` with these arguments; raises what it raises before its pass begins."""
        roots, values, keep, inputs, wanted = differentiation.plan_backward(
            tensors, gradients, retain_graph, create_graph, inputs
        )

        def finish(captured: dict[Place, Any]) -> tuple[Any, ...]:
            if inputs is not None:
                differentiation.store(values, inputs, wanted or [], captured)
            return ()

        return cls(roots, values, keep, wanted, inputs is not None, 0, finish)

    @classmethod
    def of_grad(
        cls,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any,
        retain_graph: bool | None,
        create_graph: bool,
        allow_unused: bool | None,
        materialize_grads: bool,
    ) -> Self:
        """``grad`` with these arguments; raises what it raises before its pass begins."""
        roots, values, keep, inputs, wanted = differentiation.plan_grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )

        def finish(captured: dict[Place, Any]) -> tuple[Any, ...]:
            return differentiation.collect(
                values, inputs, wanted, captured, create_graph, allow_unused, materialize_grads
            )

        return cls(roots, values, keep, wanted, False, len(inputs), finish)

    def new_pass(self) -> Any:
        """Its pass, which can stop."""
        kind = self.values.Pass if state.anomaly is None else watchful(self.values.Pass)
        found = suspendable(kind)(self.roots, self.values, self.keep_graph, self.wanted, self.values.accumulate)
        found.stores = self.stores
        return found
