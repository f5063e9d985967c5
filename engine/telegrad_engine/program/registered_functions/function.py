"""Functions that can be applied by name: registered as data, or installed by the operator.

A registered function is applied as an autograd Function: its forward runs the forward program, its backward the
backward program, on any kind of tensors. So it is differentiated, checkpointed and profiled like a user's own Function.
Without a backward program the forward is recorded op by op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ...autograd.custom_function import Function, once_differentiable
from ...autograd.custom_function.ctx import is_tensor
from ...autograd.custom_function.node import FunctionNode, _plan
from ...errors import InvalidArgument, InvalidFunction, LimitExceeded
from ...graph.node import camel
from ...schema.signature import Signature
from ..members import Members
from .blocks import Block, Scope
from .budget import Budget
from .limits import MAX_DOC, MAX_TENSORS, weight
from .parameters import parse_parameters, signature
from .reader import Find, Reader, at, is_list, is_tensor_output

NAMES = "name", "doc", "attrs", "order", "forward", "backward", "jvp", "once_differentiable"
FUNCTION = Members("a function", NAMES, {"parameters": "attrs"})


class Applicable(Protocol):
    """A function that sessions find by name."""

    name: str
    doc: str
    signature: Signature
    definition: Mapping[str, Any] | None
    """The JSON with which it was registered; None for Python that the operator installed."""
    size: int
    """The number of its instructions, including those of the functions that it applies."""
    levels: int
    """The nesting depth of its branches and loops, including the functions that it applies."""

    @property
    def inputs(self) -> int:
        """The number of tensors that it takes."""
        ...

    @property
    def outputs(self) -> int:
        """The number of tensors that it returns."""
        ...

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs."""
        ...


class FunctionProgram:
    """A function defined as data, made from its definition, which is fully checked.

    Raises InvalidFunction, with the invalid instruction as ``where`` in the context, or LimitExceeded.
    """

    def __init__(self, definition: Mapping[str, Any], find: Find) -> None:
        if not isinstance(definition, Mapping) or not {"name", "forward"} <= definition.keys():
            raise InvalidFunction(f"a function has a name, a forward program and perhaps {', '.join(NAMES)}")
        self.weight = weight(definition)
        self.definition: Mapping[str, Any] | None = definition
        definition = FUNCTION.of(definition, InvalidFunction)
        self.name: str = definition["name"]
        self.doc = definition.get("doc") or ""
        if not isinstance(self.doc, str):
            raise InvalidFunction("doc is text")
        if len(self.doc) > MAX_DOC:
            raise LimitExceeded(f"doc has at most {MAX_DOC} characters, not {len(self.doc)}")
        parameters = parse_parameters(definition.get("attrs", ()))
        self.uses: dict[str, Applicable] = {}
        """The functions that it applies, by the names that they had when it was registered."""
        self._read(Reader({p.name for p in parameters}, partial(self._note, find)), definition)
        self.signature = signature(self.name, self.forward.inputs, parameters, definition.get("order"))
        self._names = [p.name for p in self.signature.tensor_params]
        self.Function = _make(self, bool(definition.get("once_differentiable")))

    def _note(self, find: Find, name: str) -> Applicable:
        found: Applicable = find(name)
        self.uses[name] = found
        return found

    def _read(self, reader: Reader, definition: Mapping[str, Any]) -> None:
        data = definition["forward"]
        self.forward = reader.block(data, "forward", (), keys=("saves", "non_differentiable"))
        if not 0 < len(self.forward.inputs) <= MAX_TENSORS:
            raise at(InvalidFunction("forward has at least one input, a tensor"), "forward.inputs")
        if not self.forward.outputs or not all(map(is_tensor_output, self.forward.outputs)):
            raise at(InvalidFunction("forward has at least one output, and all are tensors"), "forward.outputs")
        made = {name for step in self.forward.steps for name in step.outputs} | set(self.forward.inputs)
        self.saves = _names(data, "saves", made)
        self.constants = _names(data, "non_differentiable", set(self.forward.outputs))
        outputs, inputs = len(self.forward.outputs), len(self.forward.inputs)
        self.backward = self._derivative(reader, definition, "backward", outputs, inputs)
        self.jvp = self._derivative(reader, definition, "jvp", inputs, outputs)
        self.size, self.levels = reader.expanded, reader.levels

    def _derivative(
        self, reader: Reader, definition: Mapping[str, Any], name: str, given: int, returned: int
    ) -> Block | None:
        """Read the backward or jvp program, which takes the saved tensors, then gradients, and returns gradients."""
        if definition.get(name) is None:
            return None
        block = reader.block(definition[name], name, ())
        if len(block.inputs) != len(self.saves) + given:
            error = InvalidFunction(
                f"{name} takes what forward saves and then the gradients: {len(self.saves)} and {given} inputs, "
                f"not {len(block.inputs)}"
            )
            raise at(error, f"{name}.inputs")
        if len(block.outputs) != returned:
            error = InvalidFunction(
                f"{name} returned an incorrect number of gradients (expected {returned}, got {len(block.outputs)}); "
                "give null where there is none"
            )
            raise at(error, f"{name}.outputs")
        if not all(output is None or is_tensor_output(output) for output in block.outputs):
            error = InvalidFunction(f"the outputs of {name} are tensors, or null where there is no gradient")
            raise at(error, f"{name}.outputs")
        return block

    @property
    def inputs(self) -> int:
        """The number of tensors that it takes."""
        return len(self.forward.inputs)

    @property
    def outputs(self) -> int:
        """The number of tensors that it returns."""
        return len(self.forward.outputs)

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs. Raises the error of a failing instruction."""
        by_name = dict(zip(self._names, check_tensors(self, tensors), strict=True))
        tensors = [by_name[name] for name in self.forward.inputs]
        values = self.signature.defaults | self.signature.check_attrs(parameters)
        if budget is not None:
            return self._run(tensors, Call(values, budget))
        budget = Budget()
        try:
            return self._run(tensors, Call(values, budget))
        finally:
            budget.close()

    def _run(self, tensors: Sequence[Any], call: Call) -> list[Any]:
        if self.backward is None and self.jvp is None:
            return self.forward.run(call.scope(self.forward.inputs, tensors))
        outputs = list(self.Function.apply(*tensors, call))
        self._cut(outputs)
        return outputs

    def _cut(self, outputs: Sequence[Any]) -> None:
        """Remove edges to inputs that get no gradient from backward, so that an abstract pass sees the same graph."""
        node = next((o._node for o in outputs if isinstance(o._node, FunctionNode)), None)
        if node is None or node.ctx._forward_cls is not self.Function or self.backward is None:
            return
        kept = [name is not None for name in self.backward.outputs]
        if not all(kept):
            node.next_edges = tuple(
                [target if keep else None for target, keep in zip(node.next_edges, kept, strict=True)]
            )
        node.plan = _plan(len(node.next_edges))._replace(holds_tensors=bool(self.saves))

    def encode(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked parameters as JSON data."""
        return self.signature.encode_attrs(parameters)


class Call:
    """The parameters and the budget that one call passes to forward besides tensors."""

    __slots__ = ("budget", "parameters")

    def __init__(self, parameters: Mapping[str, Any], budget: Budget) -> None:
        self.parameters = parameters
        self.budget = budget

    def scope(self, names: Sequence[str], tensors: Sequence[Any]) -> Scope:
        """Return the scope for a program with these inputs."""
        return Scope(dict(zip(names, tensors, strict=True)), self.parameters, self.budget)


def _make(program: FunctionProgram, once: bool) -> type[Function]:
    """Return the autograd Function that runs a program."""

    def forward(ctx: Any, *args: Any) -> Any:
        *tensors, call = args
        scope = call.scope(program.forward.inputs, tensors)
        outputs = program.forward.run(scope)
        saved = [scope.tensors[name] for name in program.saves]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.mark_non_differentiable(*[scope.tensors[name] for name in program.constants])
        ctx.call = call
        return tuple(outputs)

    def derivative(block: Block) -> Any:
        def run(ctx: Any, *given: Any) -> Any:
            call = Call(ctx.call.parameters, ctx.call.budget.anew())
            try:
                return tuple(block.run(call.scope(block.inputs, (*ctx.saved_tensors, *given))))
            finally:
                call.budget.close()

        return run

    members: dict[str, Any] = {"forward": staticmethod(forward), "program": program}
    if program.backward is not None:
        backward = derivative(program.backward)
        run = lambda ctx, *grads: (*backward(ctx, *grads), None)  # noqa: E731 - None for the Call
        members["backward"] = staticmethod(once_differentiable(run) if once else run)
    if program.jvp is not None:
        jvp = derivative(program.jvp)
        members["jvp"] = staticmethod(lambda ctx, *tangents: jvp(ctx, *tangents[:-1]))
    return type(camel(program.name), (Function,), members)


def _names(data: Any, key: str, known: set[str]) -> tuple[str, ...]:
    names = data.get(key, ())
    if not is_list(names):
        raise at(InvalidFunction("this is a list of tensors"), f"forward.{key}")
    if len(names) > MAX_TENSORS:
        raise at(LimitExceeded(f"{len(names)} tensors, {MAX_TENSORS} are possible"), f"forward.{key}")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise at(InvalidFunction(f"{name!r:.60} is no tensor of forward"), f"forward.{key}")
    return tuple(names)


def check_tensors(function: Applicable, tensors: Sequence[Any]) -> Sequence[Any]:
    """Return the tensors of a call. Raises InvalidArgument unless they are as many as the function takes."""
    if len(tensors) != function.inputs:
        raise InvalidArgument(f"{function.name} takes {function.inputs} tensors, but {len(tensors)} were given")
    for position, tensor in enumerate(tensors):
        if not is_tensor(tensor):
            raise InvalidArgument(f"{function.name}: input {position} must be Tensor, not {type(tensor).__name__}")
    return tensors


__all__ = ["Applicable", "Call", "FunctionProgram"]
