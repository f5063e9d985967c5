"""Traces a Function or a plain Python function to definitions, the data that a server accepts.

The code runs on stand-ins for its arguments (:mod:`.traced_tensor`), along all its paths (:mod:`.tracer`). A function
usually has one trace for all inputs, or one per input shape if the code reads sizes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from telegrad_engine.autograd.custom_function import Function
from telegrad_engine.errors import InvalidArgument, InvalidOperation, NeedsExample
from telegrad_engine.program.registered_functions import WRITES_TO_INPUT
from telegrad_engine.program.registered_functions.blocks import FACTS, evaluate, parse
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.transforms.tangents import as_tuple

from ..tensor.handle import Tensor
from .traced_tensor import UNKNOWN, Symbol, refusal, to_json
from .tracer import Data, Paths, Tracer

VARIANT = "__"
"""The separator between a function's name and the number of a trace after the first."""
TYPES = {"int": "int", "float": "number", "bool": "bool", "str": "str"}
"""The types of parameters, by the name of the annotation."""

OWN = ("backward", "jvp", "setup_context", "vjp")
"""The methods that a Function may have of its own, besides ``forward``."""


class Trace(NamedTuple):
    """A definition and its assumptions about the inputs: expressions and the values that they must have."""

    definition: Data
    guards: dict[str, Any]


def trace(function: Any, name: str, example: Sequence[Any] | None = None) -> Trace:
    """Return the definition of a Function or a plain function under a name.

    ``example`` has tensors and values for the arguments: then the number of dimensions is known, and sizes where the
    code needs numbers. Raises NeedsExample for code that requires one, and errors that name the line of code that
    cannot be traced.
    """
    source = TracedCode(function)
    arguments = source.arguments(example)
    found, suspects = _definition(source, name, arguments)
    if example is not None or not suspects:
        return found
    # Kept on ctx unchanged, and without a gradient: that is how Functions keep non-tensor arguments.
    arguments = [a._replace(type="number") if a.name in suspects else a for a in arguments]
    return _definition(source, name, arguments)[0]


# The code -----------------------------------------------------------------------------------------


class Argument(NamedTuple):
    """An argument of forward: a tensor, or a parameter of this type."""

    name: str
    type: str | None
    default: Any
    example: Any

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.type is None

    def stand_in(self, tracer: Tracer) -> Any:
        """What the code gets as this argument."""
        if self.type is not None:
            return Symbol(tracer, {"attr": self.name}, self.example)
        if self.example is UNKNOWN:
            return tracer.input(self.name, UNKNOWN)
        return tracer.input(self.name, Meta(Spec(tuple(self.example.shape), self.example._data.dtype)))

    def parameter(self) -> Data:
        """Its declaration as a parameter."""
        default = {} if self.default is UNKNOWN else {"default": to_json(self.default)}
        return {"name": self.name, "type": self.type, **default}


class TracedCode:
    """The code to trace: a Function in either form, or a plain function."""

    def __init__(self, function: Any) -> None:
        is_class = isinstance(function, type) and issubclass(function, Function)
        own = {n for n in OWN if is_class and getattr(function, n) is not getattr(Function, n)}
        self.function = function
        self.forward: Callable[..., Any] = function.forward if is_class else function
        self.separate = "setup_context" in own
        self.takes_ctx = is_class and not self.separate
        self.backward: Callable[..., Any] | None = function._choose_backward() if own & {"backward", "vjp"} else None
        self.jvp: Callable[..., Any] | None = function.jvp if "jvp" in own else None

    def arguments(self, example: Sequence[Any] | None) -> list[Argument]:
        """Return the arguments of forward, with the example's values."""
        params = list(inspect.signature(self.forward).parameters.values())[int(self.takes_ctx) :]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in params):
            raise InvalidArgument(
                f"{self.forward.__qualname__} takes *args or **kwargs; a registered function names each"
            )
        if example is not None and len(example) > len(params):
            raise InvalidArgument(f"the example has {len(example)} arguments, forward takes {len(params)}")
        given = [*(example or ()), *[UNKNOWN] * len(params)]
        return [_argument(p, value) for p, value in zip(params, given, strict=False)]

    def run(self, tracer: Tracer, arguments: Sequence[Argument]) -> Any:
        """Run forward. Return its outputs, ``ctx.saved_tensors``, the attributes of ctx, and constant outputs."""
        values = [a.stand_in(tracer) for a in arguments]
        ctx = ForwardCtx(tuple([a.is_tensor for a in arguments]))
        result = self.forward(ctx, *values) if self.takes_ctx else self.forward(*values)
        if self.separate:
            self.function.setup_context(ctx, tuple(values), result)
        outputs = as_tuple(result)
        for output in outputs:
            if not isinstance(output, Tensor):
                raise InvalidOperation(
                    f"{self.forward.__qualname__}: the outputs of a registered function are tensors, not "
                    f"{type(output).__name__}"
                )
        constants = tuple(i for i, t in enumerate(outputs) if any(t is c for c in ctx._constants))
        return outputs, tuple(ctx._saved), ctx._attributes(), constants


def _argument(parameter: inspect.Parameter, example: Any) -> Argument:
    default = UNKNOWN if parameter.default is parameter.empty else parameter.default
    value = default if example is UNKNOWN else example
    annotation = parameter.annotation  # a string after ``from __future__ import annotations``
    kind = TYPES.get(annotation.__name__ if isinstance(annotation, type) else annotation)
    if kind is None and value is not UNKNOWN and not hasattr(value, "_data"):
        if isinstance(value, (list, tuple)):
            kind = "ints" if all(type(v) is int for v in value) else "list"
        else:
            kind = {bool: "bool", str: "str"}.get(type(value), "number")
    return Argument(parameter.name, kind, default, value)


def in_order(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return a call's arguments in forward's order, including defaults. Raises TypeError like a Python call."""
    source = TracedCode(function)
    bound = inspect.signature(source.forward).bind(*(None,) * source.takes_ctx, *args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())[int(source.takes_ctx) :]


class ForwardCtx:
    """The ctx of a traced forward: it collects what the definition needs."""

    _saved: tuple[Any, ...] = ()
    _constants: tuple[Any, ...] = ()

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors for backward."""
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for jvp, which gets the same ones as backward."""
        self._saved = self._saved or tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that have no gradient."""
        self._constants = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Raise InvalidOperation: traced code may not write to its inputs."""
        raise refusal(WRITES_TO_INPUT)

    def set_materialize_grads(self, value: bool) -> None:
        """Do nothing: missing gradients are always zeros."""

    def _attributes(self) -> dict[str, Any]:
        """The attributes that the code set: tensors, and values as data."""
        own = ("needs_input_grad", "_saved", "_constants")
        return {name: _plain(name, value) for name, value in vars(self).items() if name not in own}


def _plain(name: str, value: Any) -> Any:
    """A value on ctx: a tensor, or data."""
    if isinstance(value, Tensor):
        return value
    data = to_json(value)
    try:
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError):
        raise refusal(f"ctx.{name} is {type(value).__name__}; it keeps tensors, numbers and words") from None
    return data


class BackwardCtx(SimpleNamespace):
    """The ctx of one run of backward or jvp."""


class SavedContext:
    """What forward stored on ctx, for backward and jvp."""

    def __init__(self, saved: tuple[Any, ...], attributes: Data) -> None:
        self._saved, self._attributes = saved, attributes
        kept = _names([value for value in attributes.values() if isinstance(value, Tensor)])
        own = [name for name in _names(saved) if name is not None]
        self.raw = {*kept} - {*own}
        """Tensors that are attributes of ctx and were not saved with ``save_for_backward``."""
        self.names = [*dict.fromkeys([*own, *kept, *mentioned([*attributes.values()])])]
        """All tensors that backward and jvp need."""

    def ctx(self, tracer: Tracer, given: Mapping[str, Any], needs: tuple[bool, ...]) -> Any:
        """Return the ctx of one run of backward or jvp."""

        def read(value: Any) -> Any:
            if isinstance(value, Tensor):
                return given[value._id]
            if isinstance(value, Mapping):
                return Symbol(tracer, value)
            return tuple([read(v) for v in value]) if isinstance(value, (list, tuple)) else value

        own = {"needs_input_grad": needs, "saved_tensors": read(self._saved)}
        return BackwardCtx(**own | {name: read(value) for name, value in self._attributes.items()})


# The definition -----------------------------------------------------------------------------------


def _definition(source: TracedCode, name: str, arguments: list[Argument]) -> tuple[Trace, set[str]]:
    """The definition, and the inputs that are probably not tensors."""
    guards: Data = {}
    hints: Data = {}
    forward = Paths("v", lambda tracer: source.run(tracer, arguments), guards, hints).program()
    outputs, saved, attributes, constants = forward.result
    data: Data = {"name": name}
    if doc := source.function.__doc__:
        data["doc"] = inspect.cleandoc(doc)
    if parameters := [a.parameter() for a in arguments if not a.is_tensor]:
        data["attrs"] = parameters
        data["order"] = [a.name for a in arguments]
    inputs = [a.name for a in arguments if a.is_tensor]
    data["forward"] = {"inputs": inputs, "instructions": forward.instructions, "outputs": _names(outputs)}
    if constants:
        data["forward"]["non_differentiable"] = [outputs[i]._id for i in constants]
    context, suspects = SavedContext(saved, attributes), set[str]()
    needs = tuple(a.is_tensor for a in arguments)

    def derive(code: Callable[..., Any], prefix: str, like: Sequence[Any]) -> Data:
        """Trace backward or jvp with a gradient for each of the tensors named in ``like``."""
        data["forward"]["saves"] = context.names
        names = [f"grad_{i}" for i in range(len(like))]

        def run(tracer: Tracer) -> list[Any]:
            given = {each: tracer.input(each, hints.get(each, UNKNOWN)) for each in context.names}
            grads = [tracer.input(g, hints.get(of, UNKNOWN)) for g, of in zip(names, like, strict=True)]
            return _gradients(code, context.ctx(tracer, given, needs), grads, needs, is_backward=prefix == "w")

        program = Paths(prefix, run, guards, hints).program()
        outputs = _names(program.result)
        return {"inputs": [*context.names, *names], "instructions": program.instructions, "outputs": outputs}

    if source.backward is not None:
        data["backward"] = derive(source.backward, "w", data["forward"]["outputs"])
        unused = {n for n, gradient in zip(inputs, data["backward"]["outputs"], strict=True) if gradient is None}
        suspects = unused & context.raw
        if getattr(source.backward, "is_once_differentiable", False):
            data["once_differentiable"] = True
    if source.jvp is not None:
        data["jvp"] = derive(source.jvp, "j", inputs)
    guards = _of_inputs(guards, arguments)
    data["forward"]["instructions"] = [*_requirements(guards), *forward.instructions]
    return Trace(data, guards), suspects


def _gradients(
    code: Callable[..., Any], ctx: Any, grads: Sequence[Any], needs: Sequence[bool], is_backward: bool
) -> list[Any]:
    """Run backward or jvp. Return a gradient or None for each tensor among forward's arguments, or for each output."""
    tangents = iter(grads)
    result = code(ctx, *(grads if is_backward else [next(tangents) if tensor else None for tensor in needs]))
    results = list(as_tuple(result))
    if is_backward:
        while len(results) > len(needs) and results[-1] is None:
            results.pop()
        if len(results) != len(needs):
            name = code.__qualname__.split(".")[-2]
            raise InvalidOperation(
                f"function {name}Backward returned an incorrect number of gradients "
                f"(expected {len(needs)}, got {len(results)})"
            )
        for position, (found, tensor) in enumerate(zip(results, needs, strict=True)):
            if found is not None and not tensor:
                raise InvalidOperation(
                    f"function returned a gradient different than None at position {position + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
        results = [found for found, tensor in zip(results, needs, strict=True) if tensor]
    for found in results:
        if found is not None and not isinstance(found, Tensor):
            raise InvalidOperation(f"expected Variable or None (got {type(found).__name__})")
    return results


def _names(tensors: Sequence[Any]) -> list[Any]:
    return [None if tensor is None else tensor._id for tensor in tensors]


def _of_inputs(guards: dict[str, Any], arguments: Sequence[Argument]) -> dict[str, Any]:
    """The guards of a trace on an example, expressed by the inputs alone, plus the inputs' dimensions."""
    examples = {a.name: a.example for a in arguments if a.is_tensor and a.example is not UNKNOWN}
    found = {json.dumps({"ndim": name}): tensor.dim() for name, tensor in examples.items()}
    for text, value in guards.items():
        if set(mentioned(json.loads(text))) <= set(examples):
            found[text] = value
        else:  # an intermediate tensor: its properties follow from the shapes of all inputs
            found |= {json.dumps({"shape": name}): list(tensor.shape) for name, tensor in examples.items()}
    return found


def _requirements(guards: dict[str, Any]) -> list[Data]:
    """Instructions that reject inputs for which the trace does not hold."""
    return [
        {
            "op": "require",
            "inputs": [{"eq": [json.loads(text), value]}],
            "attrs": {"message": f"this function was traced for {text} = {value}; trace it for other inputs too"},
        }
        for text, value in guards.items()
    ]


def mentioned(value: Any) -> list[str]:
    """Return the tensors whose shapes or dtypes the expressions in a value refer to."""
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in mentioned(item)]
    found: list[str] = []
    for word, operand in value.items() if isinstance(value, Mapping) else ():
        found += [operand[0] if isinstance(operand, list) else operand] if word in FACTS else mentioned(operand)
    return found


# The traces of one function ----------------------------------------------------------------------


class Variants:
    """A user's function and its traces."""

    def __init__(self, name: str, function: Any, scope: str, example: Sequence[Any] | None) -> None:
        self.name = name
        self.scope = scope
        self._function = function
        self._found: list[Trace] = []
        if isinstance(function, Mapping):
            self._found.append(Trace({**function, "name": name}, {}))
            return
        try:
            self._found.append(trace(function, name, None))
        except NeedsExample:
            if example is not None:
                self._trace(example)

    @property
    def first(self) -> Trace | None:
        """The trace under the function's own name, or None while the required example is missing."""
        return self._found[0] if self._found else None

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """Return the definition with this name, or None."""
        return next((t.definition for t in self._found if t.definition["name"] == name), None)

    def fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
        """Return the trace that fits a call's arguments, after tracing one if none does."""
        if self._found and not self._found[0].guards:
            return self._found[0]
        values = in_order(self._function, args, kwargs)
        for found in self._found:
            if _holds(found, values):
                return found
        return self._trace(values)

    def _trace(self, example: Sequence[Any]) -> Trace:
        number = len(self._found)
        found = trace(self._function, f"{self.name}{VARIANT}{number + 1}" if number else self.name, example)
        self._found.append(found)
        return found


def _holds(found: Trace, args: Sequence[Any]) -> bool:
    """Whether the arguments satisfy the trace's guards."""
    definition = found.definition
    inputs = definition["forward"]["inputs"]
    names = definition.get("order", inputs)
    given = dict(zip(names, args, strict=False))
    tensors = {n: v for n, v in given.items() if n in inputs}
    parameters = {p["name"]: given.get(p["name"], p.get("default")) for p in definition.get("attrs", ())}
    conditions = ({"eq": [json.loads(text), value]} for text, value in found.guards.items())
    return all(evaluate(parse(condition, tensors, parameters), tensors, parameters) for condition in conditions)
