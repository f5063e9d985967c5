"""The verbs for procedures: see docs/procedures.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from ..errors import TelegradError
from ..schema.parameters import Str, TensorKind
from .verb_params import Settings
from .verbs import verb


class ValuesKind(TensorKind):
    """A list of tensors and numbers."""

    word = "tuple of Tensors and numbers"
    schema = {"type": "array", "items": {"description": "a tensor id, or a number"}}

    def parse(self, value: Any) -> Any:
        """A list in which each item is a tensor or a number."""
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return [v if isinstance(v, (bool, int, float)) else super(ValuesKind, self).parse(v) for v in value]


Values = Annotated[Any, ValuesKind()]


@verb
def define(session: Any, out: Sequence[str], *, name: Str, program: Settings) -> None:
    """Keep a program under a name, to be run on other tensors by ``call``.

    ``program`` is ``{"in": [name, …], "instructions": […], "out": [name, …]}``; its names mean nothing outside of it.
    A setting of an ``optim_step`` may be the name of an input that is a number.
    """
    session.procedures.define(name, program)


@verb
def call(session: Any, out: Sequence[str], inputs: Values = (), *, name: Str) -> Sequence[Any]:
    """Run a procedure on tensors and numbers. An error says as ``step`` and ``step_op`` which instruction of it failed.

    Those before it stand, as in a program; what it made and did not give back is gone.
    """
    try:
        found: Sequence[Any] = session.procedures.find(name).run(session, inputs)
    except TelegradError as error:
        error.context["procedure"] = name
        raise
    return found


@verb
def undefine(session: Any, out: Sequence[str], *, name: Str) -> None:
    """Forget a procedure."""
    session.procedures.undefine(name)
