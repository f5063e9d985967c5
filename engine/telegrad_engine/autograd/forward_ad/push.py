"""Pushes tangents through an op, from its inputs to its results.

An op's derivative maps the results' gradients to the inputs' and is linear in them. Differentiating it with respect to
the gradients gives its transpose, which maps the inputs' tangents to the results'. So each op is recorded separately,
on stand-ins for its inputs. For a pointwise op the transpose is the derivative itself. For a Function, its ``jvp``
computes the tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...context import enable_grad, state
from ...dtypes import FLOATING
from ...errors import InvalidOperation, NotSupported
from ...graph import differentiation
from ...graph.node_evaluation import saved_values
from ...schema.op import CATALOGUE, Op
from ...tensor.base import Tracked
from ...tensor.namespace import Functions
from ..custom_function.ctx import is_tensor
from ..custom_function.outputs import Outputs
from .level import Execute, Level


def push(level: Level, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Execute an op with an input that has a tangent, and set the tangents of its results."""
    tangents = _tangents(level, inputs)
    result: Any = None
    pushed: Sequence[Any] = ()
    with level.suspended():
        if op.view:
            pushed = as_tuple(execute(op, (tangents[0], *inputs[1:]), attrs))
        elif op.differentiable:
            pushed, result = _pushed(level, execute, op, inputs, attrs, tangents)
        if result is None:
            result = execute(op, inputs, attrs)
    outputs = as_tuple(result)
    pushed = pushed or (None,) * len(outputs)
    for output, tangent in zip(outputs, pushed, strict=True):
        if tangent is not None:
            level.give(output, tangent)
    level.remember(outputs, tangents, pushed)
    return result


def push_in_place(
    level: Level, change: Callable[..., Any], tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]
) -> Any:
    """Modify a tensor in place, and its tangent too, so that the tangents of views change with it."""
    target = level.of(tensor)
    with level.suspended():
        if op.view:
            if target is not None:
                target._inplace(op, (target, *inputs[1:]), attrs)
            return change(tensor, op, inputs, attrs)
        tangents = (None if target is None else target.clone(), *_tangents(level, inputs[1:]))
        tangent: Any = None
        if op.differentiable:
            tangent = _pushed(level, tensor._apply, op, inputs, attrs, tangents)[0][0]
        if tangent is None:
            tangent = tensor.detach().new_zeros(tuple(tensor.shape))
        change(tensor, op, inputs, attrs)
        if target is None and tensor._base is not None:
            level.give(tensor._base, tensor._base.detach().new_zeros(tuple(tensor._base.shape)))
            target = level.of(tensor)
        if target is None:
            level.give(tensor, tangent)
        else:
            target._inplace(CATALOGUE.get("copy"), (target, tangent))
    level.remember((tensor,), tangents, (tangent,))
    return tensor


def _pushed(level: Level, execute: Execute, op: Op, *call: Any) -> tuple[Any, Any]:
    """Return what ``level.pushed`` does. Raises NotSupported if the op's derivative cannot be differentiated."""
    try:
        return level.pushed(execute, op, *call)
    except InvalidOperation as error:
        if "not implemented" not in str(error):
            raise
        raise NotSupported(
            f"Trying to use forward AD with {op.name} that does not support it because it has not been implemented "
            "yet.\nPlease file an issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?"
            "template=feature-request.yml so that we can prioritize its implementation or submit a PR adding the "
            "implementation to derivatives.yaml"
        ) from error


def transposed(
    execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Compute the results' tangents from the inputs' by the op's transposed derivative.

    It is None for a result without a derivative. The tangents have a history if an input or a tangent requires grad.
    """
    tracked = state.grad_enabled and (_requires_grad(inputs) or _requires_grad(tangents))
    with enable_grad():
        pairs = list(moving(inputs, tangents))
        # New tensors for those with a tangent, so that only this use of them is differentiated.
        anew = [
            x.view(tuple(x.shape)) if tracked and x.requires_grad else x.detach().requires_grad_() for x, _ in pairs
        ]
        results = as_tuple(execute(op, replaced(inputs, tangents, iter(anew)), attrs))
        if op.pointwise and results[0].requires_grad and results[0]._node.plan.direct is not None:
            return (_pointwise(results[0], tangents, tracked),)
        return _transposed(results, anew, [tangent for _, tangent in pairs], tracked)


def _pointwise(result: Any, tangents: Sequence[Any], tracked: bool) -> Any:
    """Return the tangent of a pointwise op's result; its derivative is a factor per element, so its own transpose."""
    node, values = result._node, result._values(tracked)
    shape, dtype = result._data.shape, result._data.dtype
    total = None
    with values:
        saved = saved_values(values, node)
        for edge, rule, arguments in node.plan.direct:
            tangent = tangents[edge]
            if tangent is not None:
                given = values.seed(result, _as_wide(tangent, result))
                pushed = rule(values.F, given, *[saved[i] for i in arguments])
                total = pushed if total is None else total + pushed
        return values.wrap(values.unbroadcast(total, shape, dtype))


def _as_wide(tangent: Any, result: Any) -> Any:
    """Return an input's tangent, cast and broadcast to the result's dtype and shape as the input was."""
    if tangent._data.dtype != result._data.dtype:
        tangent = tangent.to(dtype=result.dtype)
    return tangent if tangent._data.shape == result._data.shape else tangent.expand(tuple(result.shape))


def _transposed(
    results: Sequence[Any], stand_ins: Sequence[Any], tangents: Sequence[Any], tracked: bool
) -> tuple[Any, ...]:
    """Return, for each result, the product of its derivatives by the stand-ins with the stand-ins' tangents."""
    live = [out for out in results if out.requires_grad]
    if not live:
        return (None,) * len(results)
    seeds = [out._zeros_like().requires_grad_() for out in live]
    pulled = differentiation.grad(live, stand_ins, seeds, create_graph=True, allow_unused=True)
    linear = [
        (grad, tangent.to(dtype=grad.dtype))
        for grad, tangent in zip(pulled, tangents, strict=True)
        if grad is not None and grad.requires_grad
    ]
    products: Sequence[Any] = [None] * len(live)
    if linear:
        grads, vectors = zip(*linear, strict=True)
        products = differentiation.grad(grads, seeds, vectors, create_graph=tracked, allow_unused=True)
    found = iter([seed._zeros_like() if p is None else p for p, seed in zip(products, seeds, strict=True)])
    return tuple([next(found) if out.requires_grad else None for out in results])


def moving(values: Sequence[Any], tangents: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the inputs that have a tangent, with it."""
    for value, tangent in zip(values, tangents, strict=True):
        if isinstance(value, tuple):
            yield from moving(value, tangent)
        elif tangent is not None:
            yield value, tangent


def replaced(values: Sequence[Any], tangents: Sequence[Any], anew: Iterator[Any]) -> tuple[Any, ...]:
    """Return the inputs, with the next of ``anew`` for each one that has a tangent."""
    return tuple(
        [
            replaced(value, tangent, anew) if isinstance(value, tuple) else value if tangent is None else next(anew)
            for value, tangent in zip(values, tangents, strict=True)
        ]
    )


def _tangents(level: Level, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the tangent or None for each input; a tuple of them for a list of tensors."""
    return tuple(
        [
            _tangents(level, x) if isinstance(x, tuple) else level.of(x) if isinstance(x, Tracked) else None
            for x in values
        ]
    )


def _requires_grad(values: Sequence[Any]) -> bool:
    return any(_requires_grad(x) if isinstance(x, tuple) else is_tensor(x) and x.requires_grad for x in values)


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return the results of an op."""
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)


# Functions -----------------------------------------------------------------------------------------------


def push_function(level: Level, enter: Callable[[], Outputs]) -> Outputs:
    """Enter a Function's outputs into the graph, and set their tangents, which its ``jvp`` computes.

    Raises MethodMissing if the Function has no ``jvp``, and InvalidOperation for an invalid result of it.
    """
    with level.suspended():
        entry = enter()
    ctx, tangents = entry.ctx, _tangents(level, entry.args)
    with level.suspended():
        given = _materialized(entry, tangents) if ctx.materialize_grads else tangents
        results = ctx._push_forward(given, len(entry.outputs))
        for index, (output, tangent) in enumerate(zip(entry.outputs, results, strict=True)):
            if tangent is not None:
                _check(entry, index, tangent, tangents)
                level.give(output, tangent)
    level.remember_outputs(entry.node, results)
    return entry


def _materialized(entry: Outputs, tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents, with zeros for floating-point tensors without one."""
    zeros = Functions(type(next(t for t in tangents if t is not None))._apply).zeros
    return [
        zeros(arg.shape, dtype=arg.dtype) if tangent is None and is_tensor(arg) and arg.is_floating_point() else tangent
        for arg, tangent in zip(entry.args, tangents, strict=True)
    ]


def _check(entry: Outputs, index: int, tangent: Any, tangents: Sequence[Any]) -> None:
    """Raise InvalidOperation unless a tangent from ``jvp`` is valid for its output.

    The output must be differentiable. The tangent of a modified input must be modified in place, and that of a view
    must be a view.
    """
    result, output = entry.results[index], entry.outputs[index]
    if not is_tensor(result) or id(result) in entry.constant or result._data.dtype not in FLOATING:
        raise InvalidOperation(
            f"Function's jvp returned a gradient at position {index}, but  the corresponding forward output is not a "
            "differentiable Tensor.You should return None at that position instead."
        )
    if id(result) in entry.dirty:
        place = next(i for i, arg in enumerate(entry.args) if arg is result)
        if tangents[place] is not None and tangent is not tangents[place]:
            raise InvalidOperation(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
    elif output._base is not None and tangent._base is None:
        raise InvalidOperation(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
