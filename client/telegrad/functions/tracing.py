"""Traces a Function or a plain Python function to a definition, the data that a server accepts.

The code runs on tensors without values (:mod:`.tracing_tensors`), along all its paths (:mod:`.tracing_paths`), with
symbols for its non-tensor arguments (:mod:`.tracing_symbols`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta

from ..tensor.handle import Tensor
from .tracing_context import ForwardCtx, Left
from .tracing_paths import Explorer, Program, Result
from .tracing_recorder import Data, Tracer
from .tracing_source import Argument, Source
from .tracing_symbols import UNKNOWN, Symbol, here, to_json


class Traces(NamedTuple):
    """A definition and its assumptions about the inputs: expressions and the values that they must have."""

    definition: Data
    guards: dict[str, Any]


def trace(function: Any, name: str, example: Sequence[Any] | None = None) -> Traces:
    """Return the definition of a Function or a plain function under a name.

    ``example`` has tensors and values for the arguments: then the number of dimensions is known, and sizes where the
    code needs numbers. Raises NeedsExample for code that requires one, and errors that name the line of code that
    cannot be traced.
    """
    source = Source(function)
    arguments = source.arguments(example)
    if example is None:
        found, suspects = _definition(source, name, arguments)
        if not suspects:
            return found
        # Kept on ctx unchanged, and without a gradient: that is how Functions keep non-tensor arguments.
        arguments = [a._replace(type="number") if a.name in suspects else a for a in arguments]
    return _definition(source, name, arguments)[0]


def _definition(source: Source, name: str, arguments: list[Argument]) -> tuple[Traces, set[str]]:
    """The definition, and the inputs that are probably not tensors."""
    forward = Explorer("v", lambda tracer: _run_forward(source, tracer, arguments)).program()
    outputs, saved, attributes, constants, kept = forward.result.rest
    names = forward.result.tensors
    data: Data = {"name": name}
    if doc := source.function.__doc__:
        data["doc"] = inspect.cleandoc(doc)
    if parameters := [_parameter(a) for a in arguments if not a.is_tensor]:
        data["attrs"] = parameters
        data["order"] = [a.name for a in arguments]
    inputs = [a.name for a in arguments if a.is_tensor]
    leaving = [n for n in names[outputs:] if n]
    saves = list(dict.fromkeys([*leaving, *mentioned(list(attributes.values()))]))
    data["forward"] = {"inputs": inputs, "instructions": forward.instructions, "outputs": list(names[:outputs])}
    if constants:
        data["forward"]["non_differentiable"] = [names[i] for i in constants]
    guards = dict(forward.guards)
    context = Left(saves, list(names[outputs:]), saved, attributes, kept)
    context.metas = forward.metas
    suspects: set[str] = set()
    if source.backward is not None:
        program = _derive(source.backward, "w", context, arguments, names[:outputs])
        data["backward"] = _block(program, [*saves, *_grads(outputs)])
        guards |= program.guards
        suspects = {
            n for n, g in zip(inputs, data["backward"]["outputs"], strict=True) if g is None and n in context.raw
        }
        if getattr(source.backward, "is_once_differentiable", False):
            data["once_differentiable"] = True
    if source.jvp is not None:
        program = _derive(source.jvp, "j", context, arguments, inputs)
        data["jvp"] = _block(program, [*saves, *_grads(len(inputs))])
        guards |= program.guards
    if source.backward is not None or source.jvp is not None:
        data["forward"]["saves"] = saves
    guards = _of_inputs(guards, arguments)
    data["forward"]["instructions"] = [*_requirements(guards), *forward.instructions]
    return Traces(data, guards), suspects


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


def _parameter(argument: Argument) -> Data:
    data: Data = {"name": argument.name, "type": argument.type}
    if argument.default is not UNKNOWN:
        data["default"] = to_json(argument.default)
    return data


def mentioned(value: Any) -> list[str]:
    """Return the tensors whose shapes or dtypes the expressions in a value refer to."""
    found: list[str] = []
    if isinstance(value, Mapping):
        for word, operand in value.items():
            if word in ("shape", "numel", "ndim", "dtype"):
                found.append(operand[0] if isinstance(operand, list) else operand)
            else:
                found += mentioned(operand)
    elif isinstance(value, (list, tuple)):
        for item in value:
            found += mentioned(item)
    return found


def _grads(count: int) -> list[str]:
    return [f"grad_{i}" for i in range(count)]


def _block(program: Program, inputs: list[str]) -> Data:
    tensors = iter(program.result.tensors)
    return {
        "inputs": inputs,
        "instructions": program.instructions,
        "outputs": [next(tensors) if has else None for has in program.result.rest],
    }


# Forward ------------------------------------------------------------------------------------------


class _Rest(NamedTuple):
    """What all paths of forward have in common."""

    outputs: int
    saved: tuple[bool, ...]
    attributes: dict[str, Any]
    constants: tuple[int, ...]
    kept: tuple[str, ...]


def _run_forward(source: Source, tracer: Tracer, arguments: Sequence[Argument]) -> Result:
    values = [_value(tracer, a) for a in arguments]
    ctx = ForwardCtx(tuple(a.is_tensor for a in arguments))
    if source.takes_ctx:
        result = source.forward(ctx, *values)
    else:
        result = source.forward(*values)
        if source.separate:
            source.function.setup_context(ctx, tuple(values), result)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    for output in outputs:
        if not isinstance(output, Tensor):
            raise InvalidOperation(
                f"{source.forward.__qualname__}: the outputs of a registered function are tensors, not "
                f"{type(output).__name__}"
            )
    saved = ctx._saved
    attributes = ctx.attributes
    kept = tuple(k for k, v in attributes.items() if isinstance(v, Tensor))
    names = [t._id for t in outputs] + [t._id for t in saved if t is not None] + [attributes[k]._id for k in kept]
    plain = {k: _plain(tracer, k, v) for k, v in attributes.items() if k not in kept}
    constants = tuple(i for i, t in enumerate(outputs) if any(t is c for c in ctx._constants))
    rest = _Rest(len(outputs), tuple(t is not None for t in saved), plain, constants, kept)
    return Result(tuple(names), rest)


def _value(tracer: Tracer, argument: Argument) -> Any:
    if argument.is_tensor:
        example = argument.example
        meta = None if example is UNKNOWN else Meta(Spec(tuple(example.shape), example._data.dtype))
        return tracer.input(argument.name, meta)
    return Symbol(tracer, {"attr": argument.name}, argument.example)


def _plain(tracer: Tracer, name: str, value: Any) -> Any:
    """A non-tensor value on ctx, as data."""
    data = to_json(value)
    try:
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidOperation(
            f"{here()}: ctx.{name} is {type(value).__name__}; it keeps tensors, numbers and words"
        ) from None
    return data


# Backward -----------------------------------------------------------------------------------------


def _derive(
    code: Callable[..., Any], prefix: str, context: Left, arguments: Sequence[Argument], like: Sequence[str]
) -> Program:
    """Trace backward or jvp with a gradient for each of the tensors named in ``like``."""
    needs = tuple(a.is_tensor for a in arguments)

    def run(tracer: Tracer) -> Result:
        saved = {name: tracer.input(name, context.metas.get(name)) for name in context.saves}
        ctx = context.make(tracer, saved, needs)
        grads = [tracer.input(g, context.metas.get(name)) for g, name in zip(_grads(len(like)), like, strict=True)]
        if prefix == "j":
            tangents = iter(grads)
            grads = [next(tangents) if a.is_tensor else None for a in arguments]  # type: ignore[misc]
        result = code(ctx, *grads)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if prefix == "w":
            results = _for_tensors(code, results, arguments)
        for found in results:
            if found is not None and not isinstance(found, Tensor):
                raise InvalidOperation(f"expected Variable or None (got {type(found).__name__})")
        return Result(tuple([r._id for r in results if r is not None]), tuple(r is not None for r in results))

    return Explorer(prefix, run).program()


def _for_tensors(code: Callable[..., Any], results: list[Any], arguments: Sequence[Argument]) -> list[Any]:
    """The gradients of the arguments that are tensors."""
    if len(results) > len(arguments) and all(r is None for r in results[len(arguments) :]):
        del results[len(arguments) :]
    if len(results) != len(arguments):
        name = code.__qualname__.split(".")[-2]
        raise InvalidOperation(
            f"function {name}Backward returned an incorrect number of gradients "
            f"(expected {len(arguments)}, got {len(results)})"
        )
    for position, (result, argument) in enumerate(zip(results, arguments, strict=True)):
        if result is not None and not argument.is_tensor:
            raise InvalidOperation(
                f"function returned a gradient different than None at position {position + 1}, but the corresponding "
                "forward input was not a Variable"
            )
    return [r for r, a in zip(results, arguments, strict=True) if a.is_tensor]
