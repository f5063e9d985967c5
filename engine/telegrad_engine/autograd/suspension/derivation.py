"""One call of ``backward`` or ``grad``, split into parts so that its pass can stop and continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from ...context import state
from ...graph import differentiation
from ...graph.backward_pass import observed
from ...graph.differentiation import Place, Root
from ..anomaly import watchful
from .passes import suspendable


class Derivation(NamedTuple):
    """A checked call of ``backward`` or ``grad``: the arguments of its pass, and the function that ends it."""

    roots: list[Root]
    values: Any
    keep_graph: bool
    wanted: list[Place] | None
    stores: bool
    """Whether captured gradients of leaves are accumulated, as for ``backward`` with ``inputs``."""
    width: int
    """The number of results that ``finish`` returns."""
    finish: Callable[[dict[Place, Any]], tuple[Any, ...]]
    """Returns the results from the captured gradients; it runs inside ``values``."""

    @classmethod
    def of_backward(
        cls, tensors: Any, gradients: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
    ) -> Self:
        """Check and prepare ``backward`` with these arguments. Raises the errors that it raises before its pass."""
        roots, values, keep, inputs, wanted = differentiation.plan_backward(
            tensors, gradients, retain_graph, create_graph, inputs
        )

        def finish(captured: dict[Place, Any]) -> tuple[Any, ...]:
            differentiation.run_hooks_of_ends(values, wanted or (), captured)
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
        """Check and prepare ``grad`` with these arguments. Raises the errors that it raises before its pass."""
        roots, values, keep, inputs, wanted = differentiation.plan_grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )

        def finish(captured: dict[Place, Any]) -> tuple[Any, ...]:
            return differentiation.collect(
                values, inputs, wanted, captured, create_graph, allow_unused, materialize_grads
            )

        return cls(roots, values, keep, wanted, False, len(inputs), finish)

    def new_pass(self) -> Any:
        """Return a new pass for this call that can stop."""
        values, accumulate = observed(self.values, self.values.accumulate)
        kind = values.Pass if state.anomaly is None else watchful(values.Pass)
        found = suspendable(kind)(self.roots, values, self.keep_graph, self.wanted, accumulate)
        found.stores = self.stores
        return found
