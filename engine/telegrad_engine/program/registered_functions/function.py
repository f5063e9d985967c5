"""Functions that can be applied by name: registered as data, or Python that the operator of a server installed.

A registered function is applied as an autograd Function: its forward runs the forward program, its backward the
backward program, on any kind of tensors. So it is differentiated, checkpointed and profiled like a user's own Function.
Without a backward program the forward is recorded op by op.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...autograd.custom_function import Function, once_differentiable
from ...autograd.custom_function.ctx import is_tensor
from ...autograd.custom_function.function import FunctionNode, plan_without_rules
from ...errors import DataDependentShape, InvalidArgument, InvalidFunction, LimitExceeded, NotSupported
from ...graph.node import camel
from ...schema.parameters import Kind, TensorKind
from ...schema.signature import REQUIRED, Param, Signature, read_params
from ..instructions import Members
from .blocks import Block, CallContext
from .limits import MAX_DOC, MAX_TENSORS, Budget, weight
from .reader import Find, Reader, is_list, is_tensor_output, located, parse_parameters, signature

NAMES = "name", "doc", "attrs", "order", "forward", "backward", "jvp", "once_differentiable"
FUNCTION = Members("a function", NAMES, {"parameters": "attrs"})


class Applicable:
    """A function that sessions find by name. ``outputs`` is the number of tensors that it returns."""

    definition: Mapping[str, Any] | None = None
    """The JSON with which it was registered; None for Python that the operator installed."""
    size = 1
    """The number of its instructions, including those of the functions that it applies."""
    levels = 1
    """The nesting depth of its branches and loops, including the functions that it applies."""
    weight = 1
    """The number of values and characters of its definition."""

    def __init__(self, signature: Signature, doc: str, outputs: int) -> None:
        self.name = signature.name
        self.signature = signature
        self.doc = doc
        self.outputs = outputs

    @property
    def inputs(self) -> int:
        """The number of tensors that it takes."""
        return len(self.signature.tensor_params)

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs. Raises the error of a failing instruction."""
        raise NotImplementedError

    def check_arguments(
        self, tensors: Sequence[Any], parameters: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tensors of a call, and its parameters, by name. Raises InvalidArgument unless they fit."""
        if len(tensors) != self.inputs:
            raise InvalidArgument(f"{self.name} takes {self.inputs} tensors, but {len(tensors)} were given")
        for position, tensor in enumerate(tensors):
            if not is_tensor(tensor):
                raise InvalidArgument(f"{self.name}: input {position} must be Tensor, not {type(tensor).__name__}")
        given = {p.name: tensor for p, tensor in zip(self.signature.tensor_params, tensors, strict=True)}
        return given, self.signature.defaults | self.signature.check_attrs(parameters)


class FunctionProgram(Applicable):
    """A function defined as data, made from its definition, which is fully checked.

    Raises InvalidFunction, with the invalid instruction as ``where`` in the context, or LimitExceeded.
    """

    def __init__(self, definition: Mapping[str, Any], find: Find) -> None:
        if not isinstance(definition, Mapping) or not {"name", "forward"} <= definition.keys():
            raise InvalidFunction(f"a function has a name, a forward program and perhaps {', '.join(NAMES)}")
        self.weight = weight(definition)
        self.definition = definition
        data = FUNCTION.of(definition, InvalidFunction)
        doc = data.get("doc") or ""
        if not isinstance(doc, str):
            raise InvalidFunction("doc is text")
        if len(doc) > MAX_DOC:
            raise LimitExceeded(f"doc has at most {MAX_DOC} characters, not {len(doc)}")
        parameters = parse_parameters(data.get("attrs", ()))
        reader = Reader({p.name for p in parameters}, find)
        self._read_forward(reader, data["forward"])
        inputs, outputs = self.forward.inputs, len(self.forward.outputs)
        self.backward = self._read_derivative(reader, data, "backward", outputs, len(inputs))
        self.jvp = self._read_derivative(reader, data, "jvp", len(inputs), outputs)
        self.size, self.levels, self.uses = reader.size, reader.levels, reader.uses
        super().__init__(signature(data["name"], inputs, parameters, data.get("order")), doc, outputs)
        self.Function = _make(self, bool(data.get("once_differentiable")))

    def _read_forward(self, reader: Reader, data: Any) -> None:
        self.forward = block = reader.block(data, "forward", (), keys=("saves", "non_differentiable"))
        with located("forward.inputs"):
            if not 0 < len(block.inputs) <= MAX_TENSORS:
                raise InvalidFunction("forward has at least one input, a tensor")
        with located("forward.outputs"):
            if not block.outputs or not all(map(is_tensor_output, block.outputs)):
                raise InvalidFunction("forward has at least one output, and all are tensors")
        made = {name for step in block.steps for name in step.outputs}
        self.saves = _names(data, "saves", made | {*block.inputs})
        self.constants = _names(data, "non_differentiable", {*block.outputs})

    def _read_derivative(
        self, reader: Reader, data: Mapping[str, Any], name: str, given: int, returned: int
    ) -> Block | None:
        """Read the backward or jvp program, which takes the saved tensors, then gradients, and returns gradients."""
        if data.get(name) is None:
            return None
        block = reader.block(data[name], name, ())
        with located(f"{name}.inputs"):
            if len(block.inputs) != len(self.saves) + given:
                raise InvalidFunction(
                    f"{name} takes what forward saves and then the gradients: {len(self.saves)} and {given} inputs, "
                    f"not {len(block.inputs)}"
                )
        with located(f"{name}.outputs"):
            if len(block.outputs) != returned:
                raise InvalidFunction(
                    f"{name} returned an incorrect number of gradients (expected {returned}, got "
                    f"{len(block.outputs)}); give null where there is none"
                )
            if not all(output is None or is_tensor_output(output) for output in block.outputs):
                raise InvalidFunction(f"the outputs of {name} are tensors, or null where there is no gradient")
        return block

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs. Raises the error of a failing instruction."""
        given, values = self.check_arguments(tensors, parameters)
        tensors, call = [given[name] for name in self.forward.inputs], CallContext(values, budget or Budget())
        if self.backward is None and self.jvp is None:
            return self.forward.run(call.scope(self.forward, tensors))
        outputs = list(self.Function.apply(*tensors, call))
        self._cut(outputs)
        return outputs

    def _cut(self, outputs: Sequence[Any]) -> None:
        """Remove edges to inputs that get no gradient from backward, so that an abstract pass sees the same graph."""
        node = next((o._node for o in outputs if isinstance(o._node, FunctionNode)), None)
        if node is None or node.ctx._forward_cls is not self.Function or self.backward is None:
            return
        if None in self.backward.outputs:
            edges = zip(node.next_edges, self.backward.outputs, strict=True)
            node.next_edges = tuple([None if name is None else target for target, name in edges])
        node.plan = plan_without_rules(len(node.next_edges))._replace(holds_tensors=bool(self.saves))


def _make(program: FunctionProgram, once: bool) -> type[Function]:
    """Return the autograd Function that runs a program."""

    def forward(ctx: Any, *args: Any) -> Any:
        *tensors, call = args
        scope = call.scope(program.forward, tensors)
        outputs = program.forward.run(scope)
        saved = [scope.tensors[name] for name in program.saves]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.mark_non_differentiable(*[scope.tensors[name] for name in program.constants])
        ctx.call = call
        return tuple(outputs)

    def derivative(block: Block, ctx: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        call = CallContext(ctx.call.parameters, ctx.call.budget.anew())
        return tuple(block.run(call.scope(block, (*ctx.saved_tensors, *given))))

    members: dict[str, Any] = {"forward": staticmethod(forward), "program": program}
    if (backward := program.backward) is not None:
        run = lambda ctx, *grads: (*derivative(backward, ctx, grads), None)  # noqa: E731 - None for the CallContext
        members["backward"] = staticmethod(once_differentiable(run) if once else run)
    if (jvp := program.jvp) is not None:
        members["jvp"] = staticmethod(lambda ctx, *tangents: derivative(jvp, ctx, tangents[:-1]))
    return type(camel(program.name), (Function,), members)


def _names(data: Any, key: str, known: set[str]) -> tuple[str, ...]:
    """Return a list of tensors of forward. Raises InvalidFunction or LimitExceeded."""
    names = data.get(key, ())
    with located(f"forward.{key}"):
        if not is_list(names):
            raise InvalidFunction("this is a list of tensors")
        if len(names) > MAX_TENSORS:
            raise LimitExceeded(f"{len(names)} tensors, {MAX_TENSORS} are possible")
        for name in names:
            if not isinstance(name, str) or name not in known:
                raise InvalidFunction(f"{name!r:.60} is no tensor of forward")
    return tuple(names)


# Functions in Python ---------------------------------------------------------------------------------


class Installed(Applicable):
    """An autograd Function with a name, whose ``forward`` declares its parameters like an op's kernel::

        class Swish(Function):
            '''``x * sigmoid(beta * x)``.'''

            @staticmethod
            def forward(ctx, x: Array, beta: Number = 1.0): ...

    If a Function returns several tensors, the class attribute ``outputs`` is their number.
    """

    def __init__(self, name: str, cls: type[Function]) -> None:
        self.cls = cls
        separate = cls.setup_context is not Function.setup_context
        signature = Signature(name, read_params(cls.forward, skip=0 if separate else 1))
        super().__init__(signature, inspect.getdoc(cls) or "", int(getattr(cls, "outputs", 1)))

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Apply it to tensors and parameters by name. Return the outputs."""
        if budget is not None and not budget.python:
            raise NotSupported(f"{self.name} is Python that was installed on the server")
        given, values = self.check_arguments(tensors, parameters)
        values.update(given)
        result = self.cls.apply(*[values[p.name] for p in self.signature.params])
        return list(result) if isinstance(result, (list, tuple)) else [result]


class Foreign(Applicable):
    """A function that is installed on a server, of which a client knows the signature alone."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        params = []
        for each in sorted([*entry["inputs"], *entry["attrs"]], key=itemgetter("position")):
            kind = TensorKind() if each["source"] == "input" else Kind()
            params.append(Param(each["name"], kind, REQUIRED if each["required"] else each["default"], False))
        super().__init__(Signature(entry["name"], tuple(params)), entry["doc"], entry["outputs"])

    def call(self, tensors: Sequence[Any], parameters: Mapping[str, Any], budget: Budget | None = None) -> list[Any]:
        """Raise DataDependentShape: the outputs are known only where the function is installed."""
        raise DataDependentShape(f"what {self.name} gives is known only where it is installed")


def from_entry(entry: Mapping[str, Any], find: Find) -> Applicable:
    """Return the function in a response of ``GET …/functions/{name}``; ``find`` returns the functions it applies."""
    return Foreign(entry) if entry["definition"] is None else FunctionProgram(entry["definition"], find)
